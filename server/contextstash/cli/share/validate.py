"""`contextstash validate`: validate a message list against its provider's rules, or repair it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from contextstash.cli.output import echo, echo_json, shortened
from contextstash.context.text.counts import counted
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.formats.base import Format


MAX_NUMBERS = 60
"""Characters of the messages' numbers in one line."""

_PLACE = re.compile(r"essage (\d+)")


@dataclass(frozen=True)
class Document:
    """A message list, and the request that contains it, if any."""

    messages: list[Any]
    request: dict[str, Any] | None = None
    key: str = ""

    def with_messages(self, messages: list[Any]) -> Any:
        """The document with other messages; everything else is unchanged."""
        return messages if self.request is None else {**self.request, self.key: messages}


@click.command()
@click.argument("file", type=click.File(encoding="utf-8-sig"))
@click.option(
    "--format", "format_name", help="openai-chat, openai-responses, anthropic or gemini.  [default: detected]"
)
@click.option("--repair", is_flag=True, help="Print the repaired list, which can be sent.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def validate(file: IO[str], format_name: str | None, repair: bool, as_json: bool) -> int:
    """Validate the messages in FILE ('-' for standard input) against their provider's rules.

    FILE is a JSON list, a whole request, or JSON lines. Exit code 1 if the provider would reject it.
    """
    document = read_document(_text(file))
    fmt = _format(document, format_name)
    found = _violations(fmt, document)
    if repair:
        echo_json(repaired(document, fmt))
        for problem in found:
            echo(f"Repaired: {problem}", err=True)
        return 0
    if as_json:
        result = {"format": fmt.name, "messages": len(document.messages), "valid": not found, "violations": found}
        echo_json(result)
    elif found:
        for line in _grouped(found):
            echo(line)
        echo(
            f"{counted(len(found), 'violation')} of the rules of {fmt.name}. To repair the list:"
            " contextstash validate --repair FILE"
        )
    else:
        echo(f"Valid: {counted(len(document.messages), 'message')}, {fmt.name}.")
    return 1 if found else 0


def _grouped(problems: Sequence[str]) -> Iterator[str]:
    """The violations; those that differ only in the message's number as one line with their count."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        found = _PLACE.search(problem)
        places.setdefault(_PLACE.sub("essage …", problem, count=1), []).append(found[1] if found else "")
    for text, numbers in places.items():
        if len(numbers) == 1 or not numbers[0]:
            yield from [text.replace("essage …", f"essage {numbers[0]}", 1)] * len(numbers)
        else:
            yield f"{text} ({len(numbers):,} messages: {shortened(', '.join(numbers), MAX_NUMBERS)})"


def repaired(document: Document, fmt: Format) -> Any:
    """The document with repaired messages; everything else is unchanged. Raises BadInputError, naming the message, if a
    message is not of that format."""
    from contextstash.formats.repairs import unreadable

    for problem in unreadable(fmt, document.messages):
        raise BadInputError(f"It cannot be repaired. {problem}")
    return document.with_messages(fmt.assemble(_with_few_marks(fmt, document)))


def _format(document: Document, name: str | None) -> Format:
    """The named format, or the detected one. Raises BadInputError if the document does not hold all messages."""
    from contextstash.formats import get_format
    from contextstash.formats.request.whole import format_of, kept_elsewhere

    request = document.request or {}
    if key := kept_elsewhere(request):
        raise BadInputError(
            f"The request continues messages that the provider stores ({key}), so the file does not hold all messages."
            " Pass a list with all of them."
        )
    return get_format(name or format_of(request, document.messages))


def _violations(fmt: Format, document: Document) -> list[str]:
    """What the provider would refuse: messages that cannot be read, or what a repair would change."""
    from contextstash.formats.repairs import repairs, unreadable
    from contextstash.formats.request.whole import too_many_marks

    if found := unreadable(fmt, document.messages):
        return found
    marks = too_many_marks(document.request or {}, document.messages) if fmt.name == "anthropic" else []
    return [*marks, *repairs(fmt, _with_few_marks(fmt, document))]


def _with_few_marks(fmt: Format, document: Document) -> Sequence[Any]:
    """The messages with as many cache breakpoints as the request may have."""
    from contextstash.formats.breakpoints import MAX_BREAKPOINTS
    from contextstash.formats.request.whole import marks_beside

    most = max(0, MAX_BREAKPOINTS - marks_beside(document.request or {}))
    return fmt.limit_breakpoints(document.messages, most, None)


def _text(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}.") from error


def read_document(text: str) -> Document:
    """The message list in a text: a JSON list, a request, or JSON lines. Raises BadInputError if there is none."""
    from contextstash.formats.request.whole import LIST_KEYS

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
    if isinstance(data, dict) and ("role" in data or "type" in data or "parts" in data):
        return Document([data])
    raise BadInputError(
        "The file has no message list: expected a JSON list, or an object with `messages`, `input` or `contents`."
    )


def _lines(text: str, error: ValueError) -> list[Any]:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
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
            raise BadInputError(f"Message {place} is not a JSON object.")
    return messages
