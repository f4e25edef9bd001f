"""The targets of the fuzzing: each takes bytes, and raises an error only if it has found a defect.

What a caller is told by an error of its own kind is no defect; any other exception is, and so is a broken law. Messages
and requests of any JSON have property tests of their own (tests/messages).
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx2

from contextstash.clients.follow import own_readers, recognize
from contextstash.clients.transcripts import Batch, Head, Line, Reader, split_lines
from contextstash.messages.detection import get_format
from contextstash.proxy.replies import Reply
from contextstash.stash import Stash
from contextstash_storage.errors import ContextstashError
from contextstash_storage.records import Native
from contextstash_storage.sqlite import open_sqlite
from tests.fuzz.seeds import CHAT

Target = Callable[[bytes], None]

READERS: Sequence[Reader] = own_readers()


def parsed(data: bytes) -> Any:
    """The JSON value of the input, None if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _is_readable(name: str, native: Native) -> bool:
    return _accepted(lambda: get_format(name).read(native)) is not None


def _accepted(work: Callable[[], Any]) -> Any:
    """What `work` returns; None if it refuses the input by an error of ours."""
    try:
        return work()
    except ContextstashError as error:
        _check_said(error)
        return None


def _check_said(error: Exception) -> None:
    """An error says something, and is not about a crash inside."""
    assert str(error)
    assert "inside contextstash" not in str(error), str(error)


def transcript_reader(number: int) -> Target:
    """A reader on lines of its own kind that are damaged: it skips them, and what it finds is readable."""
    reader = READERS[number]

    def check(data: bytes) -> None:
        lines, _ = split_lines(data, at_end=True)
        document = parsed(data)
        if not lines and isinstance(document, list):
            lines = [Line(each, str(place)) for place, each in enumerate(document) if isinstance(each, dict)]
        if not reader.load:
            reader.claims(Head(Path("session.jsonl"), document, [line.record for line in lines]))
        state: dict[str, Any] = {}
        for part in (lines[: len(lines) // 2], lines) if reader.load else _halves(lines):
            _check_found(lambda part=part: reader.read(part, state, "/srv/session.jsonl"))  # type: ignore[misc]
            assert json.loads(json.dumps(state)) == state, "the state cannot be stored"

    return check


def _halves(lines: Sequence[Line]) -> tuple[Sequence[Line], Sequence[Line]]:
    return lines[: len(lines) // 2], lines[len(lines) // 2 :]


def _check_found(read: Callable[[], Batch | None]) -> None:
    """What a reader finds is read by its format, or refused: such a message is skipped when it is recorded."""
    batch = _accepted(read)
    for message in batch.messages if batch else ():
        _is_readable(batch.session.format, message.body)
        assert message.key is None or isinstance(message.key, str)


def transcript_file(data: bytes) -> None:
    """Any file that is imported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.json"
        path.write_bytes(data)
        reader = _accepted(lambda: recognize(path))
        if reader is None:
            return
        lines = reader.lines(path) if reader.load else split_lines(data, at_end=True)[0]
        _check_found(lambda: reader.read(lines, {}, str(path)))


@cache
def _server() -> tuple[asyncio.Runner, Any]:
    """A server on a short session, in a loop of its own."""
    from contextstash.mcp.server import build_server

    async def opened() -> Stash:
        stash = Stash(await open_sqlite(Path(tempfile.mkdtemp()) / "s.db"), settings={"automatic": False})
        await stash.record_messages(CHAT, session_id="s", format="openai-chat")
        return stash

    runner = asyncio.Runner()
    stash = runner.run(opened())
    return runner, build_server(lambda: asyncio.sleep(0, stash))


def resource_uri(data: bytes) -> None:
    """A URI as a client sends it: a result, or an error of the protocol that is not about a crash."""
    from mcp import MCPError
    from mcp.server.mcpserver.exceptions import ResourceError

    text = data.decode("utf-8", "surrogateescape")
    runner, server = _server()
    for uri in (text, "context://" + text, "context://sessions/s/" + text):
        try:
            runner.run(server.read_resource(uri))
        except (MCPError, ResourceError, ValueError) as error:
            _check_said(error)


def proxy_reply(data: bytes) -> None:
    """A reply in pieces, as a stream and as JSON: reading it never raises."""
    size = 1 + (data[0] if data else 0)
    chunks = [data[place : place + size] for place in range(0, len(data), size)][:2_000]
    for kind in ("text/event-stream; charset=utf-8", "application/json", ""):
        for format_name in ("anthropic", "openai-responses"):
            asyncio.run(_read(chunks, kind, format_name))


async def _read(chunks: Sequence[bytes], kind: str, format_name: str) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    reply = Reply(httpx2.Response(200, headers={"content-type": kind}, content=stream()), format_name)
    await reply.begin()
    assert b"".join([chunk async for chunk in reply.chunks()]) == b"".join(chunks)
    assert reply.usage is None or reply.usage.prompt_tokens >= 0
    assert isinstance(reply.last_words, list)


TARGETS: dict[str, Target] = {
    **{f"reader-{number}-{reader.name}": transcript_reader(number) for number, reader in enumerate(READERS)},
    "transcript-file": transcript_file,
    "uri": resource_uri,
    "reply": proxy_reply,
}
