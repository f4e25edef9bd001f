"""The transcripts of one import, recorded by two processes: each once, a session's in their order."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_process
import pytest

from contextstash.cli.options import StashOpener, settings_from
from contextstash.cli.start import transcript_import
from contextstash.cli.start.transcript_import import Found, Imported, import_all
from contextstash_storage.sqlite import open_sqlite
from tests.support.command_line import write_transcript

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def always_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process for any work, however small, and its batches small too."""
    monkeypatch.setattr(transcript_import, "WORTH_BYTES", 1)
    monkeypatch.setattr(transcript_import, "BATCH_BYTES", 20_000)
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # put back after the test


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the transcripts that the second process has recorded."""
    names: list[str] = []
    run = anyio.to_process.run_sync

    async def noted(work: Any, opener: Any, batch: list[Found], *more: Any, **options: Any) -> Any:
        done = await run(work, opener, batch, *more, **options)
        names.extend(item.path.name for item in batch)
        return done

    monkeypatch.setattr(anyio.to_process, "run_sync", noted)
    return names


async def recorded(folder: Path, paths: list[Path], advanced: dict[str, int] | None = None) -> list[Imported]:
    opener = StashOpener(folder / "sessions.db", settings_from(None, ()))
    found = [Found(path, False, path.stat().st_size) for path in paths]

    def advance(name: str, size: int) -> None:
        if advanced is not None:
            advanced[name] = advanced.get(name, 0) + size

    async with opener.stash() as stash:
        results = await import_all(opener, stash, found, None, advance)
    assert all(isinstance(result, Imported) for result in results)
    return [result for result in results if isinstance(result, Imported)]


async def bodies(folder: Path, session_id: str) -> list[Any]:
    store = await open_sqlite(folder / "sessions.db")
    try:
        return [message.body for message in await store.read_messages(session_id)]
    finally:
        await store.close()


def transcripts(folder: Path, count: int) -> list[Path]:
    paths = []
    for number in range(count):
        name = f"5b1f6c1e-0000-4000-8000-0000000000{number:02}"
        paths.append(folder / f"{name}.jsonl")
        write_transcript(paths[-1], session=name, outputs=5)
    return paths


async def test_two_processes_record_each_transcript_once(tmp_path: Path, there: list[str]) -> None:
    paths = transcripts(tmp_path / "projects", 12)
    advanced: dict[str, int] = {}
    results = await recorded(tmp_path, paths, advanced)
    assert there
    assert len(there) < len(paths), "this process has worked too"
    assert [(result.file, result.session_id, result.recorded) for result in results] == [
        (str(path), path.stem, 12) for path in paths
    ]
    assert advanced == {path.name: path.stat().st_size for path in paths}, "the progress bar reaches its end"
    alone = tmp_path / "alone"
    alone.mkdir()
    await recorded(alone, paths[-1:])
    assert await bodies(tmp_path, paths[-1].stem) == await bodies(alone, paths[-1].stem)


async def test_known_transcripts_start_no_second_process(tmp_path: Path, there: list[str]) -> None:
    paths = transcripts(tmp_path / "projects", 6)
    await recorded(tmp_path, paths)
    there.clear()
    results = await recorded(tmp_path, paths)
    assert sum(result.recorded for result in results) == 0
    assert there == []


def rollout(path: Path, session: str, texts: list[str]) -> Path:
    head = {"type": "session_meta", "payload": {"id": session, "cwd": "/srv"}}
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in texts]
    lines = [head, *({"type": "response_item", "payload": item} for item in items)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


async def test_files_of_one_session_are_recorded_in_their_order(tmp_path: Path, there: list[str]) -> None:
    parts = [[f"{part}: step {step} " + "x" * 4_000 for step in range(20)] for part in range(6)]
    ours = [rollout(tmp_path / f"rollout-{place}.jsonl", "one-session", texts) for place, texts in enumerate(parts)]
    others = transcripts(tmp_path / "projects", 6)
    mixed = [path for pair in zip(others, ours, strict=True) for path in pair]
    await recorded(tmp_path, mixed)
    assert there
    told = [body["content"][0]["text"] for body in await bodies(tmp_path, "one-session")]
    assert told == [text for texts in parts for text in texts]


async def test_a_broken_second_process_leaves_its_transcripts_to_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        raise anyio.BrokenWorkerProcess

    monkeypatch.setattr(anyio.to_process, "run_sync", broken)
    results = await recorded(tmp_path, transcripts(tmp_path / "projects", 6))
    assert [result.recorded for result in results] == [12] * 6


async def test_what_is_logged_in_the_second_process_is_logged_here(
    tmp_path: Path, there: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    paths = transcripts(tmp_path / "projects", 8)
    for path in paths:
        with path.open("a", encoding="utf-8") as file:
            file.write('{"type": "user", "cut\n')
    with caplog.at_level(logging.WARNING):
        await recorded(tmp_path, paths)
    assert there
    assert len([text for text in caplog.messages if "damaged record" in text]) == len(paths)
