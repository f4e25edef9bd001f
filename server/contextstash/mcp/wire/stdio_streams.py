"""The streams of one client on stdin and stdout, one JSON-RPC message per line: each invalid line gets an error.

The SDK's own streams drop a line that they cannot parse, so the client waits for ever, and parse on the event loop. Its
claims of the two descriptors, which are private, are used here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import stdio
from mcp.shared.message import SessionMessage

from contextstash.mcp.wire.json_rpc import MAX_MESSAGE_BYTES, Refusal, read_message, too_large, written

logger = logging.getLogger(__name__)

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

MAX_ID_SEARCH_BYTES = 64 * 1024
"""Bytes at each end of a line that is too long in which its id is searched: libraries write the id first or last."""


@asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The client's messages, and the stream of answers. Meanwhile the process's own stdin is empty and its stdout is
    stderr, so that no child process and no print can write into a line."""
    read_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_in, write_out = anyio.create_memory_object_stream[SessionMessage](0)
    with _own_descriptors() as (lines, out):
        async with anyio.create_task_group() as group:
            group.start_soon(_read, lines, read_in, write_in.clone())
            group.start_soon(_write, write_out, out)
            yield read_out, write_in


async def _read(lines: BinaryIO, messages: MemoryObjectSendStream[Any], answers: Outgoing) -> None:
    async with messages, answers:
        while (each := await anyio.to_thread.run_sync(_next, lines)) is not None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session ended before stdin
                if isinstance(each, SessionMessage):
                    await messages.send(each)
                    continue
                for reply in each.replies:
                    await answers.send(SessionMessage(reply))


def _next(lines: BinaryIO) -> SessionMessage | Refusal | None:
    """The message in the next line; None at the end. Runs in a thread, so that parsing does not block other calls."""
    line = lines.readline(MAX_MESSAGE_BYTES)
    if not line:
        return None
    whole = len(line) < MAX_MESSAGE_BYTES or line.endswith(b"\n")
    read = read_message(line) if whole else _too_long(lines, line)
    if isinstance(read, Refusal):
        size = f"{len(line):,} bytes" if whole else f"over {MAX_MESSAGE_BYTES:,} bytes"
        logger.warning("a message of %s from the client was refused: %s", size, read.kind)
        return read
    return SessionMessage(read)


def _too_long(lines: BinaryIO, start: bytes) -> Refusal:
    """Skip the rest of the line."""
    end = start
    while not end.endswith(b"\n") and (more := lines.readline(MAX_MESSAGE_BYTES)):
        end = more
    return too_large(start[:MAX_ID_SEARCH_BYTES], end[-MAX_ID_SEARCH_BYTES:])


async def _write(messages: MemoryObjectReceiveStream[SessionMessage], out: BinaryIO) -> None:
    def write(message: SessionMessage) -> None:
        out.write(written(message.message) + b"\n")
        out.flush()

    async with messages:
        async for message in messages:
            await anyio.to_thread.run_sync(write, message)


@contextmanager
def _own_descriptors() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The SDK's claims of stdin and stdout. A closed one is empty."""
    lines, release_lines = _claimed(0, sys.stdin, "rb", stdio._open_stdin_diversion)
    out, release_out = _claimed(1, sys.stdout, "wb", stdio._open_stdout_diversion)
    try:
        yield lines, out
    finally:
        release_out()
        release_lines()


def _claimed(
    descriptor: int, stream: TextIO | None, mode: Literal["rb", "wb"], divert: Callable[[], int]
) -> tuple[BinaryIO, Callable[[], None]]:
    if stream is None:
        return Path(os.devnull).open(mode), lambda: None
    claimed, release = stdio._claim_fd(descriptor, stream, mode, divert)
    return claimed, release or (lambda: None)
