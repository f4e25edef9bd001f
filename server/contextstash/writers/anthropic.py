"""The summarizer that calls a model through Anthropic's Messages API, or an API that is compatible with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from contextstash.messages.usage import read_usage
from contextstash.window.refusals import recognize
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

MIN_PART_TOKENS = 2_000
"""Parts are not smaller: a summary of so small a part would hardly be shorter than the part."""

_PARSER_ERRORS = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""The errors of the SDK's stream parser for a reply that is not such a stream; pydantic's errors are ValueErrors."""

NO_KEY = "not-needed"
"""Sent as the key to an API of the user's own that needs none: the SDK refuses to start without a key."""


class AnthropicSummarizer:
    """Lets a model write the summary. A history that is too long for one request is summarized in parts. Each part
    includes the summary so far, so that decisions from the beginning are known in every later part."""

    strategy, slow = "anthropic", True

    def __init__(self, settings: WriterSettings) -> None:
        self._settings = settings

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        model = _Model(self._settings)
        try:
            text, whole = await model.summary(request)
        except WriterFailedError as error:
            raise WriterFailedError(str(error), tuple(model.calls)) from error
        finally:
            await model.close()
        written = WrittenSummary(text, self.strategy, self._settings.model, tuple(model.calls))
        if whole and request.count(text) <= request.max_tokens * MAX_EXCESS:
            return written
        text = prompts.first_lines(text, request.max_tokens, request.count)
        return replace(written, text=text, note="The summary was too long and was cut.")


class _Model:
    """The requests of one summary, over one connection."""

    def __init__(self, settings: WriterSettings) -> None:
        self._settings = settings
        self._client: AsyncAnthropic | None = None
        self.calls: list[WriterCall] = []

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def summary(self, request: SummaryRequest) -> tuple[str, bool]:
        """The summary, and whether it is complete. The parts are halved if one is too long for the model."""
        part_tokens = self._settings.input_tokens
        while True:
            try:
                return await self._in_parts(request, part_tokens)
            except _TooLongError:
                part_tokens //= 2
                if part_tokens < MIN_PART_TOKENS:
                    raise

    async def _in_parts(self, request: SummaryRequest, part_tokens: int) -> tuple[str, bool]:
        system = prompts.system_text(request)
        text, previous, replaces, whole = "", request.previous, request.replaces, True
        for part in _parts(request, self._settings.output_chars, part_tokens):
            asked = prompts.user_text(part, previous, replaces=replaces)
            text, whole = await self.ask(system, asked, request.max_tokens)
            previous, replaces = text, True
        return text, whole

    async def ask(self, system: str, asked: str, max_tokens: int) -> tuple[str, bool]:
        """The model's reply, and whether it is complete. Raises WriterFailedError."""
        # Twice the length of the summary, so that a reply slightly too long is whole.
        message = await self._send(system, asked, max(MIN_REPLY_TOKENS, 2 * max_tokens))
        if message.stop_reason == "refusal":
            raise WriterFailedError("The model refused to summarize this session.")
        text = "".join(block.text for block in message.content if block.type == "text").strip()
        if len(text) < MIN_CHARACTERS:
            raise WriterFailedError("The model's reply was empty or too short to be a summary.")
        return text, message.stop_reason != "max_tokens"

    async def _send(self, system: str, asked: str, max_tokens: int) -> Message:
        client = self._client if self._client is not None else await asyncio.to_thread(self._connect)
        import anthropic
        import httpx2

        started = time.perf_counter()
        message: Message | None = None
        failure: WriterFailedError | None = None
        try:
            async with asyncio.timeout(self._settings.timeout * (self._settings.retries + 1)):
                message = await self._streamed(client, system, asked, max_tokens)
            if message.stop_reason is None:
                failure = WriterFailedError("The reply ended before it was complete.")
                raise failure
            return message
        except (anthropic.AnthropicError, httpx2.HTTPError, TimeoutError, *_PARSER_ERRORS) as error:
            failure = _failure(error)
            raise failure from error
        finally:
            duration = round(1000 * (time.perf_counter() - started), 2)
            usage = read_usage(message.usage.model_dump()) if message is not None else None
            error_text = str(failure) if failure is not None else None
            self.calls.append(WriterCall(self._settings.model, usage, duration, error_text))

    async def _streamed(self, client: AsyncAnthropic, system: str, asked: str, max_tokens: int) -> Message:
        from anthropic.types import Message

        async with client.messages.stream(
            model=self._settings.model,
            system=system,
            messages=[{"role": "user", "content": asked}],
            max_tokens=max_tokens,
        ) as stream:
            if "json" in stream.response.headers.get("content-type", ""):  # an API that does not stream
                return Message.model_validate_json(await stream.response.aread())
            return await stream.get_final_message()

    def _connect(self) -> AsyncAnthropic:
        """The SDK's client. Call this in a thread: importing the SDK and reading certificates takes a second or two."""
        from anthropic import AsyncAnthropic

        settings = self._settings
        self._client = AsyncAnthropic(
            api_key=settings.api_key or NO_KEY,
            base_url=settings.base_url,
            timeout=settings.timeout,
            max_retries=settings.retries,
        )
        return self._client


class _TooLongError(WriterFailedError):
    """The request did not fit into the writer's own window."""


def _failure(error: Exception) -> WriterFailedError:
    """The failure, in a sentence that contains nothing of the request: it may be logged and stored."""
    import anthropic

    if isinstance(error, _PARSER_ERRORS):
        told = "The reply of the model that writes summaries could not be read: it is not a message of that API."
    elif recognize(f"{error} {getattr(error, 'body', None) or ''}".strip()) is not None:
        return _TooLongError("The session is too long for the model that writes summaries, even in parts.")
    elif isinstance(error, anthropic.AuthenticationError | anthropic.PermissionDeniedError):
        told = "The API refused the key of the model that writes summaries; check ANTHROPIC_API_KEY."
    elif isinstance(error, TimeoutError | anthropic.APITimeoutError):
        told = "The model that writes summaries did not answer in time."
    elif isinstance(error, anthropic.APIStatusError):
        kind = error.body.get("error", {}).get("type") if isinstance(error.body, dict) else None
        told = f"The API answered with status {error.status_code}{f' ({kind})' if isinstance(kind, str) else ''}."
    else:
        told = f"The connection to the model that writes summaries failed ({type(error).__name__})."
    return WriterFailedError(told)


def _parts(request: SummaryRequest, output_chars: int | None, part_tokens: int) -> Iterator[str]:
    """The turns as texts that each fit into a request, split between messages. The middle of a message that alone is
    too long is cut out."""
    # Each request also contains the summary so far, of up to `max_tokens`.
    share = max(MIN_PART_TOKENS // 2, part_tokens - request.max_tokens)
    pending: list[str] = []
    held = 0
    for turn in request.turns:
        text = prompts.shortened_to(prompts.turn_text(turn, output_chars), share, request.count)
        tokens = request.count(text)
        if pending and held + tokens > share:
            yield "\n\n".join(pending)
            pending, held = [], 0
        pending.append(text)
        held += tokens
    if pending:
        yield "\n\n".join(pending)


async def digest_output_text(
    settings: WriterSettings, tool: str, argument: str, text: str, max_chars: int
) -> tuple[str, WriterCall]:
    """A model's digest of one tool output, of at most `max_chars` characters, and the request that it took. Raises
    WriterFailedError."""
    model = _Model(settings)
    # English has about six characters a word and four a token: seven and three leave a margin on both sides.
    system = prompts.DIGEST.format(words=max(20, max_chars // 7))
    asked = prompts.digest_text(tool, argument, text)
    try:
        digest, _ = await model.ask(system, asked, max_chars // 3)
    except WriterFailedError as error:
        raise WriterFailedError(str(error), tuple(model.calls)) from error
    finally:
        await model.close()
    return digest[:max_chars], model.calls[-1]
