"""The targets of the fuzzing: each takes bytes, and raises an error only if it has found a defect.

What a caller is told by an error of its own kind is no defect; any other exception is, and so is a broken law.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from contextstash.clients.follow import own_readers, recognize
from contextstash.clients.transcripts import Batch, Head, Line, Reader, split_lines
from contextstash.messages import FORMATS, detect_format
from contextstash.messages.json_positions import JsonPositionError
from contextstash.messages.repair import repaired
from contextstash.messages.request.edits import SummaryOf, edited
from contextstash.messages.request.text import LIST_KEYS, read_request
from contextstash.outputs.regex_search import matching_lines
from contextstash.proxy.replies import UsageTap, held_start
from contextstash.safety.imitations import defused, is_speaker_line
from contextstash.safety.sanitize import one_line, skeleton
from contextstash.safety.secret_masks import masked, masked_value, secrets_in, shown
from contextstash.stash import Stash
from contextstash_storage.errors import ContextstashError
from contextstash_storage.json_values import NotJsonError, check_json
from contextstash_storage.records import Native
from contextstash_storage.sqlite.store import open_in_memory

Target = Callable[[bytes], None]

READERS: Sequence[Reader] = own_readers()

SEARCHED: list[Native] = [
    {"role": "user", "content": "Find why parse_config in src/app/config.py fails: it says KeyError 'window'."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "cat x.py"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "def f(x):\n    return x + 1\n" * 40},
    {"role": "assistant", "content": "The fix is in line 7. Ça va, 漢字?"},
]


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
    subject = FORMATS[name]

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
    return _accepted(lambda: FORMATS[name].read(native)) is not None


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
    subject = FORMATS[name]
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


class _Recorded:
    """A stash with a short session, opened at its first use, in a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stash: Stash | None = None

    def run(self, work: Callable[[Stash], Coroutine[Any, Any, Any]]) -> Any:
        return self._loop.run_until_complete(self._accepted(work))

    async def _accepted(self, work: Callable[[Stash], Coroutine[Any, Any, Any]]) -> Any:
        if self._stash is None:
            self._stash = Stash(await open_in_memory(), settings={"automatic": False})
            await self._stash.record_messages(SEARCHED, session_id="s", format="openai-chat")
        try:
            return await work(self._stash)
        except ContextstashError as error:
            _check_said(error)
            return None


_recorded = _Recorded()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def search_query(data: bytes) -> None:
    found = _recorded.run(lambda stash: stash.search_history(_text(data), session_id="s"))
    if found is not None:
        assert all(hit.snippet for hit in found.hits)


def pattern(data: bytes) -> None:
    """The first line is the pattern, the others are searched."""
    first, _, rest = _text(data).partition("\n")
    lines = rest.splitlines(keepends=True)[:200]
    for place, (start, end) in _accepted(lambda: matching_lines(lines, 0, first)) or ():
        assert 0 <= start <= end <= len(lines[place])


def handle(data: bytes) -> None:
    text = _text(data)
    for session_id in ("s", text, None):
        _recorded.run(lambda stash, name=session_id: stash.get_archived_output(text, session_id=name))  # type: ignore[misc]
    _recorded.run(lambda stash: stash.get_summary("s", level=text))
    _recorded.run(lambda stash: stash.restore_outputs([text], session_id="s"))


_servers: dict[str, Any] = {}


def resource_uri(data: bytes) -> None:
    """A URI as a client sends it: a result, or an error of the protocol that is not about a crash."""
    from mcp import MCPError
    from mcp.server.mcpserver.exceptions import ResourceError

    from contextstash.mcp.server import build_server

    async def read(stash: Stash) -> None:
        async def opened() -> Stash:
            return stash

        server = _servers.setdefault("one", None) or build_server(opened)
        _servers["one"] = server
        for uri in (_text(data), "context://" + _text(data), "context://sessions/s/" + _text(data)):
            try:
                await server.read_resource(uri)
            except (MCPError, ResourceError, ValueError) as error:
                _check_said(error)

    _recorded.run(read)


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
        tap = UsageTap(kind)
        for chunk in chunks:
            tap.take(chunk)
        usage = tap.usage
        assert usage is None or usage.prompt_tokens is None or usage.prompt_tokens >= 0
    asyncio.run(_start(chunks))


async def _start(chunks: Sequence[bytes]) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    held, _ = await held_start(stream())
    assert b"".join(held) == b"".join(chunks[: len(held)])


def _is_storable(value: Any) -> bool:
    try:
        check_json(value)
    except NotJsonError:  # refused before it is masked, for example for its depth
        return False
    return True


def masks(data: bytes) -> None:
    """Masking keeps length and lines, and finds nothing in what it has masked."""
    text = _text(data)
    found = secrets_in(text)
    assert all(0 <= each.start < each.end <= len(text) for each in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    hidden = masked(text, private=True)
    assert len(hidden) == len(text)
    assert hidden.count("\n") == text.count("\n")
    for each in found:
        assert text[each.start : each.end] not in (hidden[each.start : each.end],)
    shown(text, private=True)
    value = parsed(data)
    if isinstance(value, dict | list) and _is_storable(value):
        assert type(masked_value(value)) is type(value)
        assert json.dumps(value) == json.dumps(parsed(data)), "the argument was changed"


def imitations(data: bytes) -> None:
    """No line of a text that is shown again is a speaker's, and to defuse it twice changes nothing."""
    text = _text(data)
    shown_again = defused(text)
    assert not any(is_speaker_line(line) for line in shown_again.split("\n"))
    assert defused(shown_again) == shown_again
    assert len(skeleton(text)) == len(text)
    assert len(one_line(text, 80)) <= 80


TARGETS: dict[str, Target] = {
    **{f"format-{name}": message_format(name) for name in FORMATS},
    **{f"reader-{number}-{reader.name}": transcript_reader(number) for number, reader in enumerate(READERS)},
    "transcript-file": transcript_file,
    "search-query": search_query,
    "pattern": pattern,
    "handle": handle,
    "uri": resource_uri,
    **{f"request-{name}": proxy_request(name) for name in LIST_KEYS},
    "reply": proxy_reply,
    "masks": masks,
    "imitations": imitations,
}
