"""The readers on the real transcripts beside the repository, if there are any."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.clients.follow import recognize
from contextstash.clients.transcripts import Reader, State, split_lines, unseen
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


names = st.lists(st.integers(0, 2_000), unique=True, max_size=60)


def said(*keys: object) -> list[TranscriptMessage]:
    return [TranscriptMessage(body={"role": "user", "content": str(key)}, key=str(key)) for key in keys]


def new_keys(messages: list[TranscriptMessage], state: State) -> list[str | None]:
    return [message.key for message in unseen(messages, state)]


@given(kept=st.integers(0, 20), gone=st.integers(1, 20), new=st.integers(1, 20))
def test_messages_that_took_the_place_of_others_take_the_conversation_back(kept: int, gone: int, new: int) -> None:
    state: State = {}
    unseen(said(*range(kept + gone)), state)
    first, *rest = unseen(said(*range(kept), *range(1_000, 1_000 + new)), state)
    assert first.rewind_to_key == (str(kept - 1) if kept else "")
    assert all(message.rewind_to_key is None for message in rest)
    assert len(rest) == new - 1


def test_messages_that_only_moved_are_not_taken_back() -> None:
    state: State = {}
    unseen(said("a", "b", "c"), state)
    [first, *_] = unseen(said("a", "summary", "b", "c"), state)
    assert (first.key, first.rewind_to_key) == ("summary", None)
