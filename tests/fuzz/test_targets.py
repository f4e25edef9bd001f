"""Each target on its seeds and on changes of them: it takes bytes, and raises an error only if it has found a defect.

What a caller is told by an error of ours is no defect; any other exception is, and so is a broken law. Messages and
requests of any JSON have property tests of their own (tests/messages).
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from contextstash.clients.follow import readers, recognize
from contextstash.clients.transcripts import Batch, Line, Reader, split_lines
from contextstash.messages.detection import get_format
from contextstash.proxy.replies import Reply
from contextstash_storage.errors import ContextstashError
from tests.fuzz.mutation import mutated, parsed, seeds_of
from tests.support.effort import examples

Target = Callable[[bytes], None]

READERS: Sequence[Reader] = tuple(readers())


def _accepted(work: Callable[[], Any]) -> Any:
    """What `work` returns; None if it refuses the input by an error of ours."""
    with suppress(ContextstashError):
        return work()
    return None


def transcript_reader(number: int) -> Target:
    """A reader on lines of its own kind that are damaged: it skips them, and what it finds is readable."""
    reader = READERS[number]

    def check(data: bytes) -> None:
        lines, _ = split_lines(data, at_end=True)
        document = parsed(data)
        if not lines and isinstance(document, list):
            lines = [Line(each, str(place)) for place, each in enumerate(document) if isinstance(each, dict)]
        if not reader.load:
            reader.claims(Path("session.jsonl"), [line.record for line in lines])
        state: dict[str, Any] = {}
        half = len(lines) // 2
        for part in (lines[:half], lines[0 if reader.load else half :]):
            _check_found(lambda part=part: reader.read(part, state, "/srv/session.jsonl"))  # type: ignore[misc]
            assert json.loads(json.dumps(state)) == state, "the state cannot be stored"

    return check


def _check_found(read: Callable[[], Batch | None]) -> None:
    """What a reader finds is read by its format, or refused: such a message is skipped when it is recorded."""
    batch = _accepted(read)
    for message in batch.messages if batch else ():
        get_format(batch.session.format).misfit(message.body)
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
    assert all(usage.prompt_tokens >= 0 for usage in reply.usages)
    assert isinstance(reply.last_words, list)


TARGETS: dict[str, Target] = {
    **{f"reader-{number}-{reader.name}": transcript_reader(number) for number, reader in enumerate(READERS)},
    "transcript-file": transcript_file,
    "reply": proxy_reply,
}


FINDINGS = (
    ("reader-1-codex", '{"type":"response_item","payload":{"type":[]}}\n'),
    ("reader-3-opencode", '[{"id":"ses_1"},{"info":{"role":"assistant","time":{"completed":2}},"parts":[{"type":"text",'
     '"text":"x"}]}]'),
    ("reply", 'data: {"type":{}}\n\n'),
    ("reply", 'data: {"type":"error","error":{"code":[]}}\n\n'),
    ("reply", "data: " + "[" * 100_000 + "\n\n"),
)  # fmt: skip
"""Inputs that raised errors of other kinds before."""

MAX_INPUT_BYTES = 8_000


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_that_is_read_from_outside_raises_an_error_of_another_kind(name: str) -> None:
    seeds = [seed[:MAX_INPUT_BYTES] for seed in seeds_of(name)]
    rng = random.Random(28)
    inputs = seeds[:12] + [mutated(rng.choice(seeds), rng)[:MAX_INPUT_BYTES] for _ in range(examples(500))]
    for data in inputs:
        try:
            TARGETS[name](data)
        except Exception as error:
            error.add_note(f"input: {data!r}")
            raise


@pytest.mark.parametrize(
    ("name", "data"), FINDINGS, ids=[f"{name}-{place}" for place, (name, _) in enumerate(FINDINGS)]
)
def test_what_was_found_is_mended(name: str, data: str) -> None:
    TARGETS[name](data.encode())
