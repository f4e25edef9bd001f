"""What a view holds after 1, 3 and 10 compactions in a row: the rules, the changed files, what failed, what is open."""

from __future__ import annotations

import json
from pathlib import Path

from contextstash_storage.records import Native
from tests.support.sized_sessions import called
from tests.support.stashes import SESSION, stash_at, valid_view

RULE = "Never edit the files below tests/."
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
        await stash.record_messages(
            [{"role": "user", "content": f"Move the billing to the ledger. {RULE}"}], session_id=SESSION
        )
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
        await stash.record_messages(
            [{"role": "user", "content": f"Move the billing to the ledger. {RULE}"}], session_id=SESSION
        )
        for number in range(24):
            await stash.record_messages(part(number), session_id=SESSION)
        result = await stash.compact_session(SESSION, summary="Half of the modules write to the ledger now.")
        assert result.compacted
        shown = json.dumps(await valid_view(stash, "openai-chat"))
        assert "Half of the modules write to the ledger now." in shown
        assert RULE in shown
        assert [each for each in range(24) if f"module_{each}.py" not in shown] == []
