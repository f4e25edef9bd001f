"""Values that JSON round-trips badly, in each way in: stored exactly, or refused with an error that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.follow import ingest
from contextstash.record.output_archive import MAX_CHARACTERS
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, BadMessageError
from tests.support.stashes import history

HALF = "half emoji \ud83d and \ude00"
KEPT: list[dict[str, Any]] = [
    {"role": "user", "content": HALF},
    {"role": "user", "content": "x", "more": {HALF: [HALF * 1_000, -0.0, 10**4_000, -(2**64), 5e-324]}},
]


@pytest.mark.parametrize(
    ("value", "name"),
    [(float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf"), (10**5_000, "4,299 digits")],
    ids=["NaN", "Infinity", "-Infinity", "a long integer"],
)
async def test_a_number_that_json_cannot_represent_is_refused_by_name(stash: Stash, value: object, name: str) -> None:
    with pytest.raises(BadMessageError, match=name):
        await stash.record_messages([{"role": "user", "content": "x", "more": [value]}], session_id="session")
    await stash.record_messages(KEPT, session_id="session")
    assert repr(await history(stash)) == repr(KEPT)


async def test_a_message_of_a_transcript_with_a_number_that_json_cannot_hold_is_skipped_and_named(
    stash: Stash, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = {"NaN": "nan", "-Infinity": "-inf", "1E400": "inf"}
    lines = [f'{{"role": "user", "content": "half \\ud83d", "a": [-0.0, {number}]}}' for number in numbers]
    lines.append('{"role": "assistant", "content": "done \\ud83d", "b": [-0.0, 1.5, 5e-324]}')
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(lines) + "\n")
    report = await ingest(stash, path)
    assert report.session_id is not None
    assert repr(await history(stash, report.session_id)) == repr([json.loads(lines[-1])])
    for said in numbers.values():
        assert f"holds {said}" in caplog.text


@pytest.mark.parametrize(
    ("value", "name"), [((1, 2), "tuple"), ({1: 2}, "int"), ({None: 2}, "NoneType"), (b"x", "bytes"), ({1}, "set")]
)
async def test_a_value_that_json_would_change_is_refused_by_its_type(stash: Stash, value: object, name: str) -> None:
    asked = {"role": "user", "content": "x"}
    with pytest.raises(BadMessageError, match=f"Message 1 holds a (key|value) of type {name}"):
        await stash.record_messages([asked, {**asked, "more": [value]}], session_id="session")
    with pytest.raises(BadInputError, match=f"tools holds a (key|value) of type {name}"):
        await stash.get_context("session", messages=[asked], tools=[{"name": "read", "more": value}])
    with pytest.raises(BadInputError, match=f"system holds a (key|value) of type {name}"):
        await stash.get_context("session", messages=[asked], system=[{"text": "Be brief.", "more": value}])
    assert (await stash.list_sessions()).sessions == []


async def test_a_message_that_would_hold_the_write_lock_for_long_is_refused_and_says_what_to_do(stash: Stash) -> None:
    block = {"type": "text", "text": "x" * (MAX_CHARACTERS // 4)}
    with pytest.raises(BadMessageError, match=r"Message 0 has more than 67,108,864 characters.* send its path"):
        await stash.record_messages([{"role": "user", "content": [block] * 5}], session_id="session")
    assert (await stash.list_sessions()).sessions == []
