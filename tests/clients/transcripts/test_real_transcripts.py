"""The readers on the real transcripts beside the repository, if there are any."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from contextstash.clients.follow import recognize
from contextstash.clients.transcripts import Reader, State, split_lines
from contextstash.messages.detection import get_format
from contextstash.record.transcript_records import TranscriptMessage
from tests.support.effort import sample

TRACES = Path(__file__).parents[3] / ".." / "shared" / "traces"
KINDS = {"claude_code": "claude-code", "codex": "codex", "pi": "pi"}
FILES = sample([path for folder in KINDS for path in sorted((TRACES / folder).rglob("*.jsonl"))], quick=10)
MAX_STATE = 40_000


def read(reader: Reader, path: Path, largest: int) -> tuple[list[TranscriptMessage], State]:
    """All messages of a file, read in random pieces of at most `largest` bytes."""
    data = path.read_bytes()
    chance = random.Random(path.name)
    found: list[TranscriptMessage] = []
    state: State = {}
    place = end = 0
    while end < len(data):
        end = min(len(data), end + chance.randint(1, largest))
        lines, length = split_lines(data[place:end], at_end=end == len(data))
        state = json.loads(json.dumps(state))
        batch = reader.read(lines, state, str(path))
        found += batch.messages if batch else []
        place += length
    return found, state


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem[:30]}")
def test_a_real_transcript_is_read_whole_and_the_same_in_pieces(path: Path) -> None:
    reader = recognize(path)
    assert reader.name == KINDS[path.relative_to(TRACES).parts[0]]
    whole, _ = read(reader, path, 1 << 30)
    pieces, state = read(reader, path, 60_000)
    assert len(whole) > 1
    assert {message.key for message in pieces} == {message.key for message in whole}
    assert len({message.key for message in whole}) == len(whole)
    assert len(json.dumps(state)) < MAX_STATE
    for message in whole:
        batch_format = "openai-responses" if reader.name == "codex" else None
        get_format(batch_format or "anthropic").read(message.body)


@pytest.mark.parametrize(
    "path", sample(sorted((TRACES / "openai_chat").rglob("*.jsonl")), quick=2), ids=lambda path: path.stem
)
def test_every_message_of_a_recorded_list_is_there_verbatim(path: Path) -> None:
    reader = recognize(path)
    batch = reader.read(reader.lines(path), {}, str(path))
    assert batch
    assert (reader.name, batch.session.format) == ("messages", "openai-chat")
    assert [message.body for message in batch.messages] == [
        json.loads(line) for line in path.read_text("utf-8").splitlines()
    ]


@pytest.mark.parametrize(
    "path", sample(sorted((TRACES / "claude_code").glob("*.jsonl")), quick=4), ids=lambda path: path.stem
)
def test_every_message_of_a_claude_code_transcript_is_there_verbatim(path: Path) -> None:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    spoken = {
        record["uuid"]: record["message"]
        for record in records
        if record["type"] in ("user", "assistant") and record["message"].get("model") != "<synthetic>"
    }
    found, _ = read(recognize(path), path, 1 << 30)
    recorded = {message.key: message.body for message in found}
    assert {key: json.dumps(recorded.get(key)) for key in spoken} == {
        key: json.dumps(body) for key, body in spoken.items()
    }
    boundaries = sum(record.get("subtype") == "compact_boundary" for record in records)
    assert sum(message.covers_before for message in found) == boundaries
