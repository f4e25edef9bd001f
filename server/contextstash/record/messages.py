"""Messages: reads each provider-native message once, counts it, and stores it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ParamSpec, TypeVar, Unpack

from contextstash.base.json_values import NotJsonError, check_json, value_bytes
from contextstash.messages.base import Format
from contextstash.messages.detection import get_format
from contextstash.outputs.own_tools import is_own_call
from contextstash.record.output_archive import MAX_CHARACTERS, output_of
from contextstash.session.access import Access
from contextstash.session.masks import derived, stored_body
from contextstash.session.open_session import RECENT_MESSAGES, Calls, remember_calls
from contextstash.view.session_counters import count_message
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter, measure
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Appended, Block, Native, NewMessage, Output, Session
from contextstash_storage.store import Placement

MAX_BLOCKS = 10_000
"""Blocks of one message, including those inside its tool results. Reading and measuring them blocks the interpreter:
100,000 blocks delayed other calls by 0.8 s, 10,000 by less than 0.1 s (measured). The longest message in the
real sessions that were examined has 17."""

_LISTS = ("content", "output", "parts", "tool_calls")

IN_THREAD_BYTES = 30_000
"""Values and texts above this size are read and counted in a worker thread, so that the event loop is blocked for at
most about 10 ms: text takes 0.3 ms for 1,000 characters, and a small block, of some 35 bytes, 0.01 ms."""

Returned = TypeVar("Returned")
Arguments = ParamSpec("Arguments")


def size_of(natives: Sequence[Native]) -> int:
    """The bytes of these messages, for `in_thread_if_large`."""
    return sum(len(value_bytes(native) or b"") for native in natives)


async def in_thread_if_large(
    size: int, work: Callable[Arguments, Returned], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Returned:
    """The result of `work`, which reads values or texts of this size, in a worker thread above IN_THREAD_BYTES."""
    if size > IN_THREAD_BYTES:
        return await asyncio.to_thread(work, *arguments, **named)
    return work(*arguments, **named)


def check_limits(natives: Sequence[Mapping[str, Any]]) -> None:
    """Raises BadMessageError if a message is larger than can be recorded. To be called before any processing."""
    for place, native in enumerate(natives):
        if (problem := limit_problem(native)) is not None:
            raise BadMessageError(f"Message {place} {problem}")


def limit_problem(native: Mapping[str, Any]) -> str | None:
    """The limit that a message exceeds, or what it holds that JSON does not have, and what to do; None if it can be
    recorded. The text continues a sentence about the message."""
    count = _blocks_of(native)
    if count > MAX_BLOCKS:
        return (
            f"has {count:,} blocks; at most {MAX_BLOCKS:,} can be recorded. Join its texts, or send it as several"
            " messages."
        )
    try:
        size = check_json(native)
    except NotJsonError as error:
        return str(error)
    if size > MAX_CHARACTERS:
        return (
            f"has more than {MAX_CHARACTERS:,} characters, the most that can be recorded and more than providers"
            " accept. Write the data to a file, and send its path."
        )
    return None


def _blocks_of(native: Mapping[str, Any], levels: int = 2) -> int:
    """How many blocks a message has, including those inside its tool results; stops counting above MAX_BLOCKS."""
    count = 0
    for blocks in map(native.get, _LISTS):
        if isinstance(blocks, list):
            count += len(blocks)
            if levels > 1 and count <= MAX_BLOCKS:
                count += sum([_blocks_of(block, levels - 1) for block in blocks if isinstance(block, dict)])
    return count


async def append(
    access: Access,
    session: Session,
    natives: Sequence[Native],
    *,
    extras: Sequence[Mapping[str, Any]] = (),
    listed_before: int = 0,
    behind: Sequence[Native] = (),
    **placed: Unpack[Placement],
) -> Appended:
    """Read, count and store messages whose size is checked; see SessionStore.append_messages. `extras[i]` are further
    fields of NewMessage for `natives[i]`. These come `behind` others that are not the newest ones stored, if the
    conversation switches back to an older branch. If a message is invalid, raises BadMessageError before anything is
    stored; it names its index in the caller's list, in which `listed_before` messages precede these."""
    settings, opened = access.settings(session), access.opened(session.session_id)
    counter = access.counter(settings, session.model)
    calls = await opened.calls(session)
    # An output is counted as a block and as an output, and counting takes longer than all else.
    reader = _Reader(get_format(session.format), replace(counter, raw=cache(counter.raw)), settings, calls)
    for native in behind[-RECENT_MESSAGES:]:
        remember_calls(calls, reader.fmt.read(native).blocks)
    size = size_of(natives) if counter.name in access.loaded else IN_THREAD_BYTES + 1
    messages = await in_thread_if_large(size, reader.messages, natives, extras, listed_before)
    access.loaded.add(counter.name)
    appended = await access.store.append_messages(session.session_id, messages, count=count_message, **placed)
    opened.keep_calls(appended.session, calls)
    return appended


@dataclass(frozen=True)
class _Reader:
    """Reads messages of one session. `calls` are its recent ones, to which those of the messages are added."""

    fmt: Format
    counter: Counter
    settings: ContextSettings
    calls: Calls

    def messages(self, natives: Sequence[Native], extras: Sequence[Mapping[str, Any]], first: int) -> list[NewMessage]:
        """The messages as they are stored; the first of them is number `first` of its list."""
        read = []
        for place, native in enumerate(natives):
            try:
                read.append(self._message(native, extras[place] if extras else {}))
            except BadMessageError as error:
                raise BadMessageError(f"Message {first + place} cannot be recorded: {error}") from error
        return self._with_reported_reasoning(read)

    def _message(self, native: Native, extra: Mapping[str, Any]) -> NewMessage:
        reading = self.fmt.read(native)
        texts = reading.texts or ("",)
        measured = measure(reading, self.counter, self.settings)
        blocks, masked = derived(self.settings, reading.role, measured, texts)
        remember_calls(self.calls, blocks)
        blocks = tuple(self._named(block) for block in blocks)
        results = [place for place, block in enumerate(blocks) if block.type == "tool_result"]
        fields: dict[str, Any] = {
            "kind": "tool_result" if results else "message",
            "usage": reading.usage,
            "model": reading.model,
            "group": reading.group,
            **extra,
        }
        return NewMessage(
            body=stored_body(self.settings, native),
            role=reading.role,
            blocks=blocks,
            outputs=tuple(self._output(place, blocks[place], texts[place]) for place in results),
            texts=search_texts(masked, blocks, self.calls),
            **fields,
        )

    def _named(self, block: Block) -> Block:
        """The block; a tool result gets the name of its tool."""
        if block.type != "tool_result" or block.tool or block.call_id not in self.calls:
            return block
        return block.model_copy(update={"tool": self.calls[block.call_id][0]})

    def _output(self, place: int, block: Block, text: str) -> Output:
        tool, argument = self.calls.get(block.call_id or "", (block.tool or "tool", ""))
        return output_of(tool, argument, text, self.counter.count(text), block=place, is_error=block.is_error)

    def _with_reported_reasoning(self, messages: list[NewMessage]) -> list[NewMessage]:
        """The messages; in each reply whose usage names reasoning tokens, its unreadable thinking has as many. They are
        subtracted when the reply leaves the view: counted too low, the estimate would stay too high."""
        start = 0
        for end, message in enumerate(messages):
            tokens = message.usage.reasoning_tokens if message.usage else 0
            hidden = [
                (place, index)
                for place in range(start if tokens else end + 1, end + 1)
                for index, block in enumerate(messages[place].blocks)
                if block.type == "thinking" and not self.fmt.read(messages[place].body).texts[index]
            ]
            for number, (place, index) in enumerate(hidden):
                share = tokens // len(hidden) + (number < tokens % len(hidden))
                blocks = list(messages[place].blocks)
                blocks[index] = blocks[index].model_copy(update={"tokens": share})
                messages[place] = messages[place].model_copy(update={"blocks": tuple(blocks)})
            if message.role != "assistant" or message.usage:
                start = end + 1
        return messages


def search_texts(texts: Sequence[str], blocks: Sequence[Block], calls: Calls) -> tuple[tuple[int, str], ...]:
    """The texts that search finds, each after the number of its block. The calls of our own tools and their results are
    left out: a search would find itself, and quotations before the originals."""
    return tuple(
        (number, text)
        for number, (block, text) in enumerate(zip(blocks, texts, strict=True))
        if block.type not in ("image", "document", "opaque")
        and (text or block.type != "text")
        and not _is_own(block, calls)
    )


def _is_own(block: Block, calls: Calls) -> bool:
    if block.type not in ("tool_call", "tool_result"):
        return False
    return is_own_call(*calls.get(block.call_id or "", (block.tool or "", block.argument or "")))
