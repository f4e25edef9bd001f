"""`contextstash validate`: a message list held against its provider's rules, and repaired if that is asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Any

import click

from contextstash_storage.errors import BadInputError

LIST_KEYS = ("messages", "input")
"""Where a whole request holds its messages: Anthropic and Chat Completions, Responses."""


@dataclass(frozen=True)
class Document:
    """A message list, and the request around it where there is one."""

    messages: list[Any]
    request: dict[str, Any] | None = None
    key: str = ""

    def with_messages(self, messages: list[Any]) -> Any:
        """The document with other messages, all else as it was."""
        return messages if self.request is None else {**self.request, self.key: messages}


@click.command()
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--format", "format_name", help="openai-chat, openai-responses or anthropic.  [default: detected]")
@click.option("--repair", is_flag=True, help="Print the list repaired, as it may be sent.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def validate(file: IO[str], format_name: str | None, repair: bool, as_json: bool) -> int:
    """Hold the messages in FILE ('-' for standard input) against their provider's rules.

    FILE is a JSON list, a whole request, or JSON lines. Exit code 1 where the provider would refuse it.
    """
    from contextstash.context.pairing.rules import violations
    from contextstash.formats import detect_format, get_format
    from contextstash.formats.render import render

    document = read_document(_text(file))
    fmt = get_format(format_name or detect_format(document.messages))
    found = violations(fmt.name, document.messages)
    if repair:
        for place, message in enumerate(document.messages):
            _check(fmt, place, message)
        click.echo(json.dumps(document.with_messages(render(fmt, document.messages)), ensure_ascii=False, indent=2))
        for problem in found:
            click.echo(f"Repaired: {problem}", err=True)
        return 0
    if as_json:
        answer = {"format": fmt.name, "messages": len(document.messages), "valid": not found, "violations": found}
        click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
    elif found:
        for problem in found:
            click.echo(problem)
        click.echo(f"{len(found)} violations of the rules of {fmt.name}. Repaired list: validate --repair FILE")
    else:
        click.echo(f"Valid: {len(document.messages)} messages, {fmt.name}.")
    return 1 if found else 0


def _text(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}.") from error


def _check(fmt: Any, place: int, message: Any) -> None:
    from contextstash_storage.errors import BadMessageError

    try:
        fmt.read(message)
    except BadMessageError as error:
        raise BadInputError(f"Message {place} cannot be repaired: {error}") from error


def read_document(text: str) -> Document:
    """The message list that a text holds: a JSON list, a request with one, or JSON lines. Raises BadInputError."""
    try:
        data = json.loads(text)
    except ValueError as error:
        return Document(_checked(_lines(text, error)))
    except RecursionError as error:
        raise BadInputError("The file is nested too deeply to be a message list.") from error
    if isinstance(data, list):
        return Document(_checked(data))
    key = next((key for key in LIST_KEYS if isinstance(data, dict) and isinstance(data.get(key), list)), None)
    if key is not None:
        return Document(_checked(data[key]), data, key)
    if isinstance(data, dict) and ("role" in data or "type" in data):
        return Document([data])
    raise BadInputError(
        "The file holds no message list: expected a JSON list, or an object with `messages` or `input`."
    )


def _lines(text: str, error: ValueError) -> list[Any]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as problem:
                raise BadInputError(f"Neither JSON ({error}) nor JSON lines: line {number}: {problem}.") from problem
    return found


def _checked(messages: list[Any]) -> list[Any]:
    if not messages:
        raise BadInputError("The message list is empty.")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise BadInputError(f"Message {place} is no JSON object.")
    return messages
