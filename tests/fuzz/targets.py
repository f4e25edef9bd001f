"""The targets of the fuzzing: each takes bytes, and raises an error only if it has found a defect.

What a caller is told by an error of its own kind is no defect; any other exception is, and so is a broken law.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from contextstash.clients.follow import own_readers, recognize
from contextstash.clients.transcripts import Batch, Head, Line, Reader, split_lines
from contextstash.messages import FORMATS, detect_format, get_format
from contextstash.messages.json_positions import JsonPositionError
from contextstash.messages.repair import repaired
from contextstash.messages.request.edits import SummaryOf, edited
from contextstash.messages.request.text import LIST_KEYS, read_request
from contextstash.proxy.replies import ReplyReader
from contextstash.stash import Stash
from contextstash_storage.errors import ContextstashError
from contextstash_storage.records import Native
from contextstash_storage.sqlite.store import open_sqlite
from tests.fuzz.seeds import CHAT

Target = Callable[[bytes], None]

READERS: Sequence[Reader] = own_readers()


def parsed(data: bytes) -> Any:
    """The JSON value of the input, None if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def natives_of(data: bytes) -> list[Native]:
    """The messages of an input: a list, an object, or a line for each."""
    value = parsed(data)
    if value is None:
        value = [parsed(line) for line in data.split(b"\n")]
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def message_format(name: str) -> Target:
    """The laws of a format: reading raises its own error alone, nothing changes its arguments, and what is written is
    readable again."""
    subject = get_format(name)

    def check(data: bytes) -> None:
        natives = natives_of(data)
        for native in natives:
            assert 0.0 <= subject.matches(native) <= 1.0
        readable = [native for native in natives if _is_readable(name, native)]
        for native in readable:
            _check_message(name, native)
        if readable:
            for native in repaired(subject, readable):
                subject.read(native)
            assert len(subject.limit_breakpoints(readable, 2, None)) == len(readable)
            _accepted(lambda: detect_format(readable))
        assert json.dumps(natives) == json.dumps(natives_of(data)), "an argument was changed"

    return check


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


def _check_message(name: str, native: Native) -> None:
    subject = get_format(name)
    reading = subject.read(native)
    assert len(reading.blocks) == len(reading.texts)
    assert subject.replace(native, {}) == native
    outputs = {place: "[output]" for place, block in enumerate(reading.blocks) if block.type == "tool_result"}
    again = subject.read(subject.replace(native, outputs))
    assert [each.call_id for each in again.blocks if each.type == "tool_result"] == [
        reading.blocks[place].call_id for place in outputs
    ]
    without = subject.without_thinking(native)
    if without is not None:
        subject.read(without)


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


TEXT = "[shortened; get_archived_output('out_x')]"


def proxy_request(name: str) -> Target:
    """A request's body: if it is read, then as JSON parsers read it, and an edit changes nothing but what it names."""

    def check(data: bytes) -> None:
        try:
            request = read_request(name, data)
        except (JsonPositionError, ValueError, RecursionError):
            return
        whole = parsed(data)
        if whole is None:  # what is not looked at need not be JSON: it goes out as it came
            return
        messages = whole[LIST_KEYS[name]]
        assert len(request.messages) == len(messages) == len(request.spans)
        for message, span, plain in zip(request.messages, request.spans, messages, strict=True):
            assert message.native == plain == json.loads(data[span.start : span.end])
        _check_edits(name, data, whole)
        again = read_request(name, data, request)
        assert [each.native for each in again.messages] == [each.native for each in request.messages]

    return check


def _check_edits(name: str, data: bytes, whole: dict[str, Any]) -> None:
    request = read_request(name, data)
    edits = {
        place: {result.path: TEXT for result in message.results}
        for place, message in enumerate(request.messages)
        if message.results
    }
    try:
        body = edited(request, edits)
    except JsonPositionError:  # a message that the provider refuses: the request goes out as it came
        return
    changed = json.loads(body)
    assert {**changed, LIST_KEYS[name]: 0} == {**whole, LIST_KEYS[name]: 0}
    for place, (old, new) in enumerate(zip(whole[LIST_KEYS[name]], changed[LIST_KEYS[name]], strict=True)):
        assert place in edits or old == new
    if len(request.messages) > 2 and whole[LIST_KEYS[name]][-1].get("content"):
        json.loads(edited(request, {}, [SummaryOf(0, len(request.messages) - 2, "Summary.")]))


def proxy_reply(data: bytes) -> None:
    """A reply in pieces, as a stream and as JSON: reading it never raises."""
    size = 1 + (data[0] if data else 0)
    chunks = [data[place : place + size] for place in range(0, len(data), size)][:2_000]
    for kind in ("text/event-stream; charset=utf-8", "application/json", None):
        tap = ReplyReader(kind)
        for chunk in chunks:
            tap.take(chunk)
        usage = tap.usage
        assert usage is None or usage.prompt_tokens is None or usage.prompt_tokens >= 0
    asyncio.run(_start(chunks))


async def _start(chunks: Sequence[bytes]) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    held = await ReplyReader("text/event-stream").start(stream())
    assert b"".join(held) == b"".join(chunks[: len(held)])


TARGETS: dict[str, Target] = {
    **{f"format-{name}": message_format(name) for name in FORMATS},
    **{f"reader-{number}-{reader.name}": transcript_reader(number) for number, reader in enumerate(READERS)},
    "transcript-file": transcript_file,
    "uri": resource_uri,
    **{f"request-{name}": proxy_request(name) for name in LIST_KEYS},
    "reply": proxy_reply,
}
