"""A request as a program sends it: the messages, and the other arguments of the provider's SDK.

    request = await session.request(messages, system=system, tools=tools, max_tokens=4_000)
    if not request.fits:
        raise SystemExit(request.reason)
    response = await client.messages.create(messages=request.messages, **request.options)

`options` are the other arguments in the form of the provider's SDK, with those that the program passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextstash.library.replies import as_json
from contextstash.messages.request import SERVER_STATE_KEYS
from contextstash.results import ContextResult, LeftOut
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

MAX_DEFAULT_REPLY = 16_000
"""Most tokens of a reply if a program names no `max_tokens` and the provider demands one. Anthropic's SDK refuses more
than 21,333 in a request that is not streamed (it expects that to take over ten minutes)."""


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """The request to send next: `client.messages.create(messages=request.messages, **request.options)`.

    `fits` is false only if system prompt, tools and what cannot be cut exceed the window; then `reason` says what takes
    the room. `left_out` says what was left out for want of room; search and retrieval find it.
    """

    messages: list[Native]
    options: dict[str, Any]
    fits: bool
    tokens: int
    budget: int
    format: str
    request_id: str | None = None
    left_out: LeftOut | None = None
    reason: str | None = None
    done: tuple[str, ...] = ()

    def check_fits(self) -> None:
        """Raises BadInputError if the request does not fit: for adapters, which cannot ask the program."""
        if not self.fits:
            raise BadInputError(self.reason or "The conversation does not fit the window.")


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A program's further arguments of a call, in its provider's own form."""

    model: str | None = None
    system: Any = None
    tools: Sequence[Any] | None = None
    max_tokens: int | None = None
    more: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Raises BadInputError if an argument has the wrong type, or lets the provider add what is sent already."""
        if self.max_tokens is not None and not isinstance(self.max_tokens, int):
            raise BadInputError(f"max_tokens is a whole number, not a {type(self.max_tokens).__name__}.")
        if self.tools is not None and not isinstance(self.tools, list | tuple):
            raise BadInputError(f"tools is the list of the tools' definitions, not a {type(self.tools).__name__}.")
        for name in SERVER_STATE_KEYS:
            if (self.more or {}).get(name) is not None:
                raise BadInputError(
                    f"With {name} the provider adds the conversation that it holds, and request.messages is the whole"
                    f" of it already. Leave {name} out."
                )


def request_of(
    result: ContextResult, arguments: CallArguments, reserve: int, done: Sequence[str] = ()
) -> ContextRequest:
    """The result of `get_context` as a request. `reserve` is how many tokens of the window are left for the reply."""
    return ContextRequest(
        messages=[_own_copy(native) for native in result.messages],
        options=_options(arguments, result, reserve),
        fits=result.fits,
        tokens=result.tokens,
        budget=result.budget,
        format=result.format,
        request_id=result.request_id,
        left_out=result.left_out,
        reason=result.reason,
        done=tuple(done),
    )


def _own_copy(native: Native) -> Native:
    """A message that the program may mark for the cache, while the session keeps what was recorded: the message and its
    content blocks are copied, not what is inside those."""
    return {
        key: [dict(part) if isinstance(part, dict) else part for part in child] if isinstance(child, list) else child
        for key, child in native.items()
    }


def plain_system(system: object) -> str | list[dict[str, Any]] | None:
    """A system prompt as the service takes it: text, or a list of content blocks."""
    plain = as_json(list(system) if isinstance(system, tuple) else system)
    if plain is None or isinstance(plain, str):
        return plain
    if isinstance(plain, list) and all(isinstance(part, dict) for part in plain):
        return plain
    if not isinstance(plain, list | dict):
        raise BadInputError(f"system is a text or a list of content blocks, not a {type(plain).__name__}.")
    return _text_of(plain)


def plain_tools(tools: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Tool definitions as the service takes them. Python functions, of which an SDK makes definitions, are left out."""
    if tools is None:
        return None
    return [plain for tool in tools if isinstance(plain := as_json(tool), dict)]


def _text_of(value: object) -> str:
    if isinstance(value, Mapping):
        return _text_of(value.get("text") or value.get("parts") or value.get("content") or "")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n\n".join(filter(None, map(_text_of, value)))
    return str(value)


def _with_fields(options: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the fields that a shortened request needs. `betas` becomes a header, which all methods take."""
    for name, value in fields.items():
        if name == "betas":
            headers = options.get("extra_headers") or {}
            betas = [headers.get("anthropic-beta"), *value]
            options["extra_headers"] = {**headers, "anthropic-beta": ",".join(filter(None, betas))}
        elif isinstance(value, Mapping):
            options[name] = {**value, **(options.get(name) or {})}
        else:
            options.setdefault(name, value)
    return options


OPTION_NAMES = {
    "anthropic": ("system", "max_tokens"),
    "openai-chat": (None, "max_completion_tokens"),
    "openai-responses": ("instructions", "max_output_tokens"),
    "gemini": ("system_instruction", "max_output_tokens"),
}
"""By format, what the provider's SDK calls the system prompt, if it takes it beside the messages, and the most tokens
of a reply. Gemini's takes both, and the tools, in `config`."""


def _options(given: CallArguments, result: ContextResult, reserve: int) -> dict[str, Any]:
    system, limit = OPTION_NAMES[result.format]
    named: dict[str, Any] = {"tools": given.tools, limit: given.max_tokens}
    if result.format == "anthropic" and not given.max_tokens:
        named[limit] = min(reserve, MAX_DEFAULT_REPLY)
    if system is not None:
        named[system] = given.system if result.format == "gemini" else result.system
    named = {name: value for name, value in named.items() if value is not None}
    model = {} if given.model is None else {"model": given.model}
    more = dict(given.more or {})
    if result.format == "gemini":
        return {**model, **more, "config": {**named, **(more.get("config") or {})}}
    return _with_fields({**model, **named, **more}, result.request or {})
