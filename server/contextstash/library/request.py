"""A request as a program sends it: the messages, and the other arguments of the provider's SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextstash.service.results import ContextResult, LeftOut
from contextstash_storage.records import Native

MAX_DEFAULT_REPLY = 16_000
"""Most tokens of a reply if a program names no `max_tokens` and the provider demands one. Anthropic's SDK refuses more
than 21,333 in a request that is not streamed (it expects that to take over ten minutes)."""


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """What to send next: `client.messages.create(messages=request.messages, **request.options)`.

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


@dataclass(frozen=True, slots=True)
class CallArguments:
    """What a program passes beside the messages, in its provider's own form."""

    model: str | None = None
    system: Any = None
    tools: Sequence[Any] | None = None
    max_tokens: int | None = None
    more: Mapping[str, Any] | None = None


def request_of(
    result: ContextResult, arguments: CallArguments, reserve: int, done: Sequence[str] = ()
) -> ContextRequest:
    """The result of `get_context` as a request. `reserve` is how many tokens of the window are left for the reply."""
    return ContextRequest(
        messages=result.messages,
        options=_OPTIONS[result.format](arguments, result, reserve),
        fits=result.fits,
        tokens=result.tokens,
        budget=result.budget,
        format=result.format,
        request_id=getattr(result, "request_id", None),
        left_out=result.left_out,
        reason=result.reason,
        done=tuple(done),
    )


def system_text(system: object) -> str | None:
    """The text of a system prompt in any provider's form."""
    if system is None or isinstance(system, str):
        return system
    if isinstance(system, Mapping):
        return system_text(system.get("text", system.get("parts", system.get("content"))))
    if isinstance(system, Sequence):
        return "\n\n".join(filter(None, map(system_text, system)))
    return str(getattr(system, "text", "") or "")


def _anthropic(given: CallArguments, result: ContextResult, reserve: int) -> dict[str, Any]:
    system = given.system if given.system is not None else result.system
    options = {
        **_named(model=given.model, system=system, tools=given.tools),
        "max_tokens": given.max_tokens or min(reserve, MAX_DEFAULT_REPLY),
    }
    return _with_fields({**options, **(given.more or {})}, result.request or {})


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


def _openai_chat(given: CallArguments, result: ContextResult, reserve: int) -> dict[str, Any]:
    named = _named(model=given.model, tools=given.tools, max_completion_tokens=given.max_tokens)
    return {**named, **(given.more or {})}


def _openai_responses(given: CallArguments, result: ContextResult, reserve: int) -> dict[str, Any]:
    named = _named(model=given.model, instructions=given.system, tools=given.tools, max_output_tokens=given.max_tokens)
    return {**named, **(given.more or {})}


def _gemini(given: CallArguments, result: ContextResult, reserve: int) -> dict[str, Any]:
    more = dict(given.more or {})
    config = _named(system_instruction=given.system, tools=given.tools, max_output_tokens=given.max_tokens)
    return {**_named(model=given.model), **more, "config": {**config, **(more.get("config") or {})}}


def _named(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


_OPTIONS = {
    "anthropic": _anthropic,
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
}
