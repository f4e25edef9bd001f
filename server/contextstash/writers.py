"""The model that writes summaries and digests: what it is asked, a session as text for it, and its calls through
Anthropic's Messages API or one that is compatible with it. `reduce/compact.py` chooses who writes."""

from __future__ import annotations

import asyncio
import json
import re
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import get_data
from typing import TYPE_CHECKING

from contextstash.events.turns import Turn
from contextstash.messages.base import read_usage
from contextstash.outputs.limits import OutputLimits, limit
from contextstash.safety.sanitize import defused, encodable, one_line, unbracketed
from contextstash_storage.errors import ContextstashError
from contextstash_storage.records import Call, Usage

MIN_CHARACTERS = 20
"""A shorter text is not a summary but a reply such as "Done."."""

EXTRACTIVE = "extractive"
"""The strategy of a summary that is made of the session's state: the next one has what it tells."""

CONSENT = 'summarizer = "anthropic", summarizer_model, or the variable CONTEXTSTASH_ANTHROPIC_API_KEY'
"""The ways in which a user consents to calls of a model, as text for messages."""

MAX_EXCESS = 1.25
"""A summary may exceed the requested length by this factor before it is cut. Models count words inaccurately."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a model is called for a summary. `api_key` is a secret; it is never logged, stored or shown.

    `timeout` is in seconds, for one request; after it and the retries the summary is made of the session's state. Tool
    results are cut to `output_chars` characters for the model. `input_tokens` is the limit of one request, which leaves
    room for the prompt and the reply in a window of 200,000 tokens: of a longer history, the newest turns are sent.
    """

    model: str
    api_key: str | None = None
    base_url: str | None = None
    timeout: float = 60.0
    retries: int = 2
    output_chars: int | None = None
    input_tokens: int = 120_000


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The turns to summarize, oldest first, and the summary before them.

    `previous` is the summary of everything before the turns. If `replaces` is true, the new summary replaces it; if
    not, it stays and the new one builds on it. `instructions` are the user's. `prompt` is the name or the text of a
    prompt (see prompts.toml). The summary may have `max_tokens` tokens, counted with `count`.

    `extract` writes one without a model, from the state of the session.
    """

    turns: tuple[Turn, ...]
    max_tokens: int
    count: Callable[[str], int]
    extract: Callable[[], str]
    previous: str | None = None
    replaces: bool = True
    instructions: str | None = None
    prompt: str = "handoff"


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    """A summary and who wrote it. `calls` are the requests to models that were made; `note` is what a person should
    know about how it was written, such as that the model failed."""

    text: str
    strategy: str
    model: str | None = None
    calls: tuple[Call, ...] = ()
    note: str | None = None


class WriterFailedError(ContextstashError):
    """The model wrote nothing that can be used; `calls` are the requests that were made."""

    def __init__(self, text: str, calls: tuple[Call, ...] = ()) -> None:
        super().__init__(text)
        self.calls = calls


_DATA = tomllib.loads((get_data(__package__, "prompts.toml") or b"").decode())
_TEXTS: dict[str, str] = _DATA["texts"]


def system_text(request: SummaryRequest) -> str:
    """The instructions to the model."""
    # Two thirds of the tokens, because English text has about 1.3 tokens a word and the limit should not be reached.
    words = max(50, request.max_tokens * 2 // 3)
    prompt = _DATA["prompts"].get(request.prompt, request.prompt).replace("{contents}", _DATA["contents"])
    parts = [prompt, f"Use at most about {words} words.", _TEXTS["rules"]]
    if request.instructions and request.instructions.strip():
        parts.append(f"The user's wishes for this summary: {request.instructions.strip()}")
    return "\n\n".join(parts)


def user_text(session: str, previous: str | None, *, replaces: bool) -> str:
    """The message to the model: the summary of what came before, then the session."""
    before = ""
    if previous:
        note = _TEXTS["previous_replaced" if replaces else "previous_stands"]
        before = f"{note}\n\n<previous_summary>\n{_TAGS.sub('‹', encodable(previous))}\n</previous_summary>\n\n"
    return f"{before}<session>\n{encodable(session)}\n</session>\n\nWrite the summary now."


def turn_text(turn: Turn, output_chars: int | None) -> str:
    """One message as text for a model; archived tool results have their handles."""
    speaker = "host" if turn.role == "user" and turn.kind == "host" else turn.role
    lines = [f"### {speaker} (message {turn.seq})"]
    for index, (block, text) in enumerate(zip(turn.blocks, turn.texts, strict=True)):
        tool = unbracketed(one_line(block.tool or "a tool", 80))
        if block.type in ("image", "document"):
            lines.append(f"[{block.type}]")
        elif block.type == "tool_call":
            lines.append(f"[calls {tool}] {_cut(text, output_chars)}")
        elif block.type == "tool_result":
            kept, failed = f", {turn.handles[index]}" if index in turn.handles else "", " failed" * block.is_error
            lines.append(f"[result of {tool}{kept}{failed}]\n{_cut(text, output_chars)}")
        elif text:
            lines.append(f"[thinks] {_cut(text, output_chars)}" if block.type == "thinking" else _material(text))
    return "\n".join(lines)


_LABELS = re.compile(
    r"^(?P<lead>[ \t]*)(?P<label>\[(?:calls |result of |thinks\])|#{1,6}[ \t]*(?:host|tool)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_TAGS = re.compile(r"<(?=/?[ \t]*(?:session|previous_summary|summary|output)[ \t]*>)", re.IGNORECASE)


def _material(text: str) -> str:
    """Text of a session in which nothing looks like a label between its messages or like its end."""
    return _TAGS.sub("‹", _LABELS.sub(lambda found: f"{found['lead']}“{found['label']}”", defused(text)))


def _cut(text: str, most: int | None) -> str:
    return limit(_material(text), OutputLimits(chars=most, cut="head_tail"), len)


def digest_text(tool: str, argument: str, text: str) -> str:
    """The message to the model with one tool output to digest."""
    call = json.dumps({"tool": tool, "argument": argument}, ensure_ascii=False)
    return f"{encodable(call)}\n<output>\n{_material(encodable(text))}\n</output>\n\nWrite the digest now."


def shortened_to(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The text, or its head and tail, with at most `max_tokens` tokens."""
    return limit(text, OutputLimits(tokens=max_tokens, cut="head_tail"), count)


def compaction_prompt(session_id: str | None = None, instructions: str | None = None) -> str:
    """The prompt `compact`: asks the host's model to write the summary and to pass it to compact_session."""
    session = f' and session_id "{session_id}"' if session_id else ""
    wishes = f"\n\nIn particular: {instructions.strip()}" if instructions and instructions.strip() else ""
    return _TEXTS["compact"].format(contents=_DATA["contents"], wishes=wishes, session=session)


if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message


async def summary_by_model(settings: WriterSettings, request: SummaryRequest) -> WrittenSummary:
    """The model's summary, by one request. Raises WriterFailedError."""
    asked = _session_text(request, settings)
    text, whole, call = await _ask(settings, system_text(request), asked, request.max_tokens)
    note = None
    if not whole or request.count(text) > request.max_tokens * MAX_EXCESS:
        text, note = shortened_to(text, request.max_tokens, request.count), "The summary was too long and was cut."
    return WrittenSummary(text, "anthropic", settings.model, (call,), note)


async def digest_by_model(
    settings: WriterSettings, tool: str, argument: str, text: str, max_chars: int
) -> tuple[str, tuple[Call, ...]]:
    """The model's digest of one tool output, of at most `max_chars` characters, and the request that it took. Raises
    WriterFailedError."""
    # English has about six characters a word and four a token: seven and three leave a margin on both sides.
    system = _TEXTS["digest"].format(words=max(20, max_chars // 7))
    digest, _, call = await _ask(settings, system, digest_text(tool, argument, text), max_chars // 3)
    return digest[:max_chars], (call,)


def _session_text(request: SummaryRequest, settings: WriterSettings) -> str:
    """The turns with the summary before them. Of a history that is too long for a request, the newest turns that fit,
    behind what the session's state tells of all; the middle of a turn that alone is too long is cut out."""
    room = settings.input_tokens - request.max_tokens
    texts: list[str] = []
    for turn in reversed(request.turns):
        text = turn_text(turn, settings.output_chars)
        room -= request.count(text)
        if room < 0:
            texts = texts or [shortened_to(text, settings.input_tokens - request.max_tokens, request.count)]
            return user_text("\n\n".join(texts[::-1]), request.extract(), replaces=True)
        texts.append(text)
    return user_text("\n\n".join(texts[::-1]), request.previous, replaces=request.replaces)


def _client(settings: WriterSettings) -> AsyncAnthropic:
    """The SDK's client. Call this in a thread: importing the SDK and reading certificates takes a second or two."""
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(
        api_key=settings.api_key or "not-needed",  # by an API of the user's own; the SDK does not start without one
        base_url=settings.base_url,
        timeout=settings.timeout,
        max_retries=settings.retries,
    )


async def _ask(settings: WriterSettings, system: str, asked: str, max_tokens: int) -> tuple[str, bool, Call]:
    """The model's reply, whether it is complete, and the request. Raises WriterFailedError."""
    client = await asyncio.to_thread(_client, settings)
    started = time.perf_counter()
    message: Message | None = None
    failure, cause = "The reply ended before it was complete.", None
    try:
        async with (
            asyncio.timeout(settings.timeout * (settings.retries + 1)),
            client,
            client.messages.stream(
                model=settings.model,
                system=system,
                messages=[{"role": "user", "content": asked}],
                max_tokens=2 * max_tokens,  # so that a reply slightly too long is whole
            ) as stream,
        ):
            message = await stream.get_final_message()
    except Exception as error:  # the SDK's parser raises errors of many types for a reply in another form
        failure, cause = _what_failed(error), error
    complete = message is not None and message.stop_reason is not None
    usage = read_usage(message.usage.model_dump()) if message is not None else None
    call = Call(
        purpose="summary",
        model=settings.model,
        request_seq=0,
        cost=None if usage else 0.0,
        duration_ms=round(1000 * (time.perf_counter() - started), 2),
        error=None if complete else failure,
        **(usage or Usage(prompt_tokens=0)).model_dump(),
    )
    if message is None or not complete:
        raise WriterFailedError(failure, (call,)) from cause
    if message.stop_reason == "refusal":
        raise WriterFailedError("The model refused to summarize this session.", (call,))
    text = "".join(block.text for block in message.content if block.type == "text").strip()
    if len(text) < MIN_CHARACTERS:
        raise WriterFailedError("The model's reply was empty or too short to be a summary.", (call,))
    return text, message.stop_reason != "max_tokens", call


def _what_failed(error: Exception) -> str:
    """The failure, in a sentence that contains nothing of the request: it may be logged and stored."""
    import anthropic
    import httpx2

    if isinstance(error, anthropic.AuthenticationError | anthropic.PermissionDeniedError):
        return "The API refused the key of the model that writes summaries; check ANTHROPIC_API_KEY."
    if isinstance(error, TimeoutError | anthropic.APITimeoutError):
        return "The model that writes summaries did not answer in time."
    if isinstance(error, anthropic.APIStatusError):
        return f"The API answered with status {error.status_code}."
    if isinstance(error, anthropic.APIConnectionError | httpx2.HTTPError):
        return f"The connection to the model that writes summaries failed ({type(error).__name__})."
    return "The reply of the model that writes summaries could not be read: it is not a message of that API."
