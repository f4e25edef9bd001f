"""The model that writes summaries and digests, through Anthropic's Messages API or one that is compatible with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from contextstash.messages.base import read_usage
from contextstash.writers import prompts
from contextstash.writers.base import (
    MIN_CHARACTERS,
    SummaryRequest,
    WriterCall,
    WriterFailedError,
    WriterSettings,
    WrittenSummary,
)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message

MAX_EXCESS = 1.25
"""A summary may exceed the requested length by this factor before it is cut. Models count words inaccurately."""

MIN_REPLY_TOKENS = 1_024
"""The least `max_tokens` of a request. It leaves room for a model that writes more than requested."""

_PARSER_ERRORS = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""The errors of the SDK's stream parser for a reply that is not such a stream; pydantic's errors are ValueErrors."""

NO_KEY = "not-needed"
"""Sent as the key to an API of the user's own that needs none: the SDK refuses to start without a key."""


async def summary_by_model(settings: WriterSettings, request: SummaryRequest) -> WrittenSummary:
    """The model's summary, by one request. Raises WriterFailedError."""
    async with _connected(settings) as model:
        asked = _session_text(request, settings)
        text, whole = await model.ask(prompts.system_text(request), asked, request.max_tokens)
    written = WrittenSummary(text, "anthropic", settings.model, tuple(model.calls))
    if whole and request.count(written.text) <= request.max_tokens * MAX_EXCESS:
        return written
    shorter = prompts.first_lines(written.text, request.max_tokens, request.count)
    return replace(written, text=shorter, note="The summary was too long and was cut.")


async def digest_by_model(
    settings: WriterSettings, tool: str, argument: str, text: str, max_chars: int
) -> tuple[str, tuple[WriterCall, ...]]:
    """The model's digest of one tool output, of at most `max_chars` characters, and the requests that it took. Raises
    WriterFailedError."""
    # English has about six characters a word and four a token: seven and three leave a margin on both sides.
    system = prompts.DIGEST.format(words=max(20, max_chars // 7))
    async with _connected(settings) as model:
        digest, _ = await model.ask(system, prompts.digest_text(tool, argument, text), max_chars // 3)
    return digest[:max_chars], tuple(model.calls)


def _session_text(request: SummaryRequest, settings: WriterSettings) -> str:
    """The turns with the summary before them. Of a history that is too long for a request, the newest turns that fit,
    behind what the session's state tells of all; the middle of a turn that alone is too long is cut out."""
    room = settings.input_tokens - request.max_tokens
    texts: list[str] = []
    for turn in reversed(request.turns):
        text = prompts.turn_text(turn, settings.output_chars)
        room -= request.count(text)
        if room < 0:
            text = prompts.shortened_to(text, settings.input_tokens - request.max_tokens, request.count)
            texts = texts or [text]
            return prompts.user_text("\n\n".join(texts[::-1]), request.extract(), replaces=True)
        texts.append(text)
    return prompts.user_text("\n\n".join(texts[::-1]), request.previous, replaces=request.replaces)


@asynccontextmanager
async def _connected(settings: WriterSettings) -> AsyncIterator[_Model]:
    """A connection to the model, for the requests of one text."""
    client = await asyncio.to_thread(_client, settings)
    try:
        yield _Model(settings, client)
    finally:
        await client.close()


def _client(settings: WriterSettings) -> AsyncAnthropic:
    """The SDK's client. Call this in a thread: importing the SDK and reading certificates takes a second or two."""
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(
        api_key=settings.api_key or NO_KEY,
        base_url=settings.base_url,
        timeout=settings.timeout,
        max_retries=settings.retries,
    )


class _Model:
    """The requests of one text, over one connection."""

    def __init__(self, settings: WriterSettings, client: AsyncAnthropic) -> None:
        self._settings = settings
        self._client = client
        self.calls: list[WriterCall] = []

    async def ask(self, system: str, asked: str, max_tokens: int) -> tuple[str, bool]:
        """The model's reply, and whether it is complete. Raises WriterFailedError."""
        # Twice the length of the text, so that a reply slightly too long is whole.
        message = await self._send(system, asked, max(MIN_REPLY_TOKENS, 2 * max_tokens))
        if message.stop_reason == "refusal":
            raise self._failed("The model refused to summarize this session.")
        text = "".join(block.text for block in message.content if block.type == "text").strip()
        if len(text) < MIN_CHARACTERS:
            raise self._failed("The model's reply was empty or too short to be a summary.")
        return text, message.stop_reason != "max_tokens"

    async def _send(self, system: str, asked: str, max_tokens: int) -> Message:
        import anthropic
        import httpx2

        started = time.perf_counter()
        message: Message | None = None
        failure, cause = "The reply ended before it was complete.", None
        try:
            async with asyncio.timeout(self._settings.timeout * (self._settings.retries + 1)):
                message = await self._streamed(system, asked, max_tokens)
        except (anthropic.AnthropicError, httpx2.HTTPError, TimeoutError, *_PARSER_ERRORS) as error:
            failure, cause = _what_failed(error), error
        complete = message is not None and message.stop_reason is not None
        usage = read_usage(message.usage.model_dump()) if message is not None else None
        duration = round(1000 * (time.perf_counter() - started), 2)
        self.calls.append(WriterCall(self._settings.model, usage, duration, None if complete else failure))
        if message is None or not complete:
            raise self._failed(failure) from cause
        return message

    async def _streamed(self, system: str, asked: str, max_tokens: int) -> Message:
        from anthropic.types import Message

        async with self._client.messages.stream(
            model=self._settings.model,
            system=system,
            messages=[{"role": "user", "content": asked}],
            max_tokens=max_tokens,
        ) as stream:
            if "json" in stream.response.headers.get("content-type", ""):  # an API that does not stream
                return Message.model_validate_json(await stream.response.aread())
            return await stream.get_final_message()

    def _failed(self, text: str) -> WriterFailedError:
        return WriterFailedError(text, tuple(self.calls))


def _what_failed(error: Exception) -> str:
    """The failure, in a sentence that contains nothing of the request: it may be logged and stored."""
    import anthropic

    if isinstance(error, _PARSER_ERRORS):
        return "The reply of the model that writes summaries could not be read: it is not a message of that API."
    if isinstance(error, anthropic.AuthenticationError | anthropic.PermissionDeniedError):
        return "The API refused the key of the model that writes summaries; check ANTHROPIC_API_KEY."
    if isinstance(error, TimeoutError | anthropic.APITimeoutError):
        return "The model that writes summaries did not answer in time."
    if isinstance(error, anthropic.APIStatusError):
        kind = error.body.get("error", {}).get("type") if isinstance(error.body, dict) else None
        return f"The API answered with status {error.status_code}{f' ({kind})' if isinstance(kind, str) else ''}."
    return f"The connection to the model that writes summaries failed ({type(error).__name__})."
