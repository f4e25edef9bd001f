"""Compactions, also many in a row: what the view holds afterwards, and that one runs at a time."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from contextstash.reduce.compact import COMPACTION, only_one
from contextstash.safety.sanitize import USER_BLOCK
from contextstash.stash import Stash
from contextstash.view import ladder
from contextstash_storage.records import Native, SummaryEdit
from tests.support.stashes import SESSION, as_bytes, called, history, reply, stash_at, user, valid_view, view

RULE = "Never edit the files below tests/."
TASK = {"role": "user", "content": f"Move the billing to the ledger. {RULE}"}
COMPACTIONS = (1, 3, 10)


def code(number: int) -> str:
    return "\n".join(
        f"{line + 1}\tdef order_{number}_{line}(order): return order.total_{number} + {line}" for line in range(40)
    )


def plan(number: int) -> list[dict[str, str]]:
    """The agent's list: one item is done for each part of the work, and the next is begun."""
    return [
        {
            "content": f"Move billing step {each} to the ledger",
            "status": "completed" if each < number else "in_progress" if each == number else "pending",
        }
        for each in range(number - 2, number + 3)
        if each >= 0
    ]


FILES = 70


def part(number: int) -> list[Native]:
    """A part of the work: read a file, edit it, see a test run pass; in every fourth part an attempt fails first."""
    path, at = f"/srv/shop/billing/module_{number % FILES}.py", number * 10
    natives = called(at, "TodoWrite", {"todos": plan(number)}, "Todos have been modified.")
    natives += called(at + 1, "Read", {"file_path": path}, code(number))
    if number % 4 == 0:
        failed = f"ValueError: ledger_{number} is closed\nFAILED test_ledger_{number}\n1 failed in 0.1s"
        natives += called(at + 2, "Bash", {"command": f"pytest -k ledger_{number} --reopen"}, failed)
        natives += [{"role": "assistant", "content": f"Reopening ledger_{number} did not work, because it is closed."}]
    edit = {"file_path": path, "old_string": f"order_{number}_1(order)", "new_string": f"ledger_{number}_1(order)"}
    natives += called(at + 3, "Edit", edit, f"The file {path} has been updated.")
    return natives + called(at + 4, "Bash", {"command": "pytest -q billing"}, f"{number + 3} passed in 0.2s")


async def test_rules_and_changed_files_stay_and_no_done_item_is_open_after_ten_compactions(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", automatic=True, window=16_000, output_reserve=0) as stash:
        await stash.record_messages([TASK], session_id=SESSION)
        done = number = 0
        while done < max(COMPACTIONS):
            result = await stash.record_messages(part(number), session_id=SESSION)
            number += 1
            if not any(each.startswith("Summarized") for each in result.done):
                continue
            done += 1
            if done not in COMPACTIONS:
                continue
            shown = await valid_view(stash, "openai-chat")
            text = "\n".join(json.dumps(message) for message in shown)
            assert RULE in text
            missing = [each for each in range(min(number, FILES)) if f"module_{each}.py" not in text]
            assert missing == [], f"after {done} compactions, of {number} changed files"
            summary = "\n".join(str(message["content"]) for message in shown if message["role"] == "user")
            stale = [each for each in range(number - 1) if f"- Move billing step {each} to" in summary]
            assert stale == [], f"after {done} compactions"


async def test_a_summary_by_the_host_gets_the_rules_and_changed_files_that_it_lacks(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", window=200_000) as stash:
        await stash.record_messages([TASK], session_id=SESSION)
        for number in range(24):
            await stash.record_messages(part(number), session_id=SESSION)
        result = await stash.compact_session(SESSION, summary="Half of the modules write to the ledger now.")
        assert result.compacted
        shown = json.dumps(await valid_view(stash, "openai-chat"))
        assert "Half of the modules write to the ledger now." in shown
        assert RULE in shown
        assert [each for each in range(24) if f"module_{each}.py" not in shown] == []


def chapter(number: int) -> list[Native]:
    """Ten messages of about 500 tokens each, on a topic of their own."""
    natives = [{"role": "user", "content": f"Now do part {number}: never touch module_{number}.py."}]
    for place in range(9):
        natives.append((reply, user)[place % 2](2_000 + 10 * number + place))
    return natives


async def compacted_chapters(stash: Stash, chapters: int) -> list[Native]:
    natives: list[Native] = []
    for number in range(chapters):
        natives += chapter(number)
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        summary = f"Part {number} is done: " + f"detail {number} " * 40
        assert (await stash.compact_session(SESSION, summary=summary)).compacted
        await valid_view(stash, "openai-chat")
    return natives


async def visible_summaries(stash: Stash) -> list[SummaryEdit]:
    snapshot = await stash.snapshot(SESSION)
    return [entry.summary for entry in snapshot.entries if entry.summary]


async def test_a_new_summary_stands_beside_the_last_one(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "n.db", window=60_000, compact_keep_tokens=0) as stash:
        await compacted_chapters(stash, 3)
        found = await visible_summaries(stash)
        shown = await view(stash)
    assert [edit.first_seq for edit in found[1:]] == [edit.last_seq + 1 for edit in found[:-1]]
    after_words = [text for message in shown if not (text := str(message["content"])).startswith(USER_BLOCK)]
    assert [f"Part {number} is done" in after_words[number] for number in range(3)] == [True] * 3


async def test_once_they_pass_their_share_the_next_summary_takes_the_place_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "SUMMARIES_SHARE", 0.04)
    async with stash_at(tmp_path / "m.db", window=20_000, compact_keep_tokens=0) as stash:
        natives = await compacted_chapters(stash, 8)
        found, *later = await visible_summaries(stash)
        assert found.first_seq == 0
        assert len(later) < 6
        assert as_bytes(await history(stash)) == as_bytes(natives)
        restored = await stash.restore_outputs([found.summary_id], session_id=SESSION)
        assert restored.restored
        await valid_view(stash, "openai-chat")


CODE = "\n".join(f"def handle_{line}(order): return order.total_{line}" for line in range(80))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Edit", {"file_path": "/srv/a.py", "old_string": "handle_1(", "new_string": "take_1("}),
        ("bash", {"command": "sed -i s/handle_1/take_1/ /srv/a.py"}),
    ],
)
async def test_a_placeholder_says_that_its_file_was_changed_since(
    stash: Stash, tool: str, arguments: dict[str, str]
) -> None:
    natives = [{"role": "user", "content": "Fix a.py."}, *called(0, "Read", {"file_path": "/srv/a.py"}, CODE)]
    natives += called(1, "Read", {"file_path": "/srv/b.py"}, CODE.replace("handle", "serve"))
    await stash.record_messages([*natives, *called(2, tool, arguments, "ok"), reply(40)], session_id=SESSION)
    await stash.prune_tool_outputs(SESSION, keep_last=0, minimum_tokens=0)
    shown = [str(message["content"]) for message in await view(stash)]
    [first, second] = [text for text in shown if "archived output of Read" in text]
    assert "The file was changed since, at message 6. As it was at message 2: get_archived_output" in first
    assert "changed since" not in second


async def test_a_cancelled_compaction_releases_its_lease(tmp_path: Path) -> None:
    held = anyio.Event()

    async def compact(stash: Stash) -> None:
        async with only_one(stash, SESSION) as is_only_one:
            assert is_only_one
            held.set()
            await anyio.sleep_forever()

    async with stash_at(tmp_path / "c.db") as stash:
        await stash.record_messages([user(4)], session_id=SESSION)
        async with anyio.create_task_group() as group:
            group.start_soon(compact, stash)
            await held.wait()
            group.cancel_scope.cancel()
        assert await stash.store.acquire_lease(SESSION, COMPACTION, "another", 1)
