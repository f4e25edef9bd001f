"""Codex's compressed rollouts: read as the plain ones, and not a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash.base.zstandard import zstandard
from contextstash.clients import transcripts
from contextstash.clients.follow import ingest, transcripts_in
from contextstash_storage.errors import BadInputError
from tests.support.host_files import write_lines
from tests.support.stashes import history, stash_at

LINES = [
    {"timestamp": "t", "type": "session_meta", "payload": {"id": "rollout", "cwd": "/srv/orchard"}},
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Prune the tree."}]},
    },
]


def compressed(plain: Path) -> Path:
    """The rollout as Codex leaves it once it is old."""
    path = plain.with_name(f"{plain.name}.zst")
    path.write_bytes(zstandard().compress(plain.read_bytes()))
    return path


async def test_what_was_read_of_the_plain_rollout_is_not_recorded_again(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "rollout-1.jsonl", LINES)
    async with stash_at(tmp_path / "c.db") as stash:
        assert (await ingest(stash, plain)).recorded == 1
        archived = compressed(plain)
        plain.unlink()
        report = await ingest(stash, archived)
        assert (report.session_id, report.recorded, report.duplicates) == ("rollout", 0, 1)
        assert len(await history(stash, "rollout")) == 1


def test_a_compressed_rollout_is_found_where_the_plain_one_is_gone(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "rollout-1.jsonl", LINES)
    archived = tmp_path / "rollout-1.jsonl.zst"
    archived.write_bytes(b"")
    assert list(transcripts_in(tmp_path)) == [plain]
    plain.unlink()
    assert list(transcripts_in(tmp_path)) == [archived]


async def test_a_damaged_rollout_is_refused(tmp_path: Path) -> None:
    archived = compressed(write_lines(tmp_path / "rollout-1.jsonl", LINES))
    archived.write_bytes(archived.read_bytes()[:-5])
    async with stash_at(tmp_path / "d.db") as stash:
        with pytest.raises(BadInputError, match="damaged"):
            await ingest(stash, archived)


def test_a_rollout_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "MAX_WHOLE_BYTES", 100_000)
    bomb = compressed(write_lines(tmp_path / "rollout-1.jsonl", [{"padding": "x" * 200_000}]))
    with pytest.raises(BadInputError, match="unpacks to more than"):
        transcripts.unpacked(bomb)


def test_a_rollout_of_several_frames_is_read_whole(tmp_path: Path) -> None:
    parts = [compressed(write_lines(tmp_path / f"rollout-{part}.jsonl", [line])) for part, line in enumerate(LINES)]
    whole = tmp_path / "rollout.jsonl.zst"
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    assert len(transcripts.split_lines(transcripts.unpacked(whole), at_end=True)[0]) == len(LINES)
