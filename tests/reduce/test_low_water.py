"""The automatic reduction of the preset `default`: one step from a full window down to the low-water mark."""

from __future__ import annotations

from pathlib import Path

from contextstash_storage.records import Native
from tests.support.stashes import called, stash_at

SESSION = "s"
WINDOW = 16_000


def step(number: int) -> list[Native]:
    """A call and its output, in which a file defines a function of its own."""
    path = f"/srv/app/part_{number}.py"
    text = "\n".join(f"def handle_part_{number}(order_{line}): ...  # step {line} of the work" for line in range(25))
    return called(number, "read", {"path": path}, text, f"Reading part {number}.")


async def test_a_full_window_is_reduced_once_to_the_mark_and_then_only_grows(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", automatic=True, window=WINDOW, output_reserve=0) as stash:
        await stash.record_messages([{"role": "user", "content": "Read all parts."}], session_id=SESSION)
        views: list[list[Native]] = []
        fills: list[float] = []
        reduced: list[int] = []
        for number in range(70):
            recorded = await stash.record_messages(step(number), session_id=SESSION)
            context = await stash.get_context(SESSION)
            views.append(context.messages)
            fills.append(context.tokens / WINDOW)
            if recorded.done:
                reduced.append(number)
        summary = await stash.get_summary(SESSION)
    assert len(reduced) >= 2
    assert max(fills) <= 0.92
    assert all(0.25 < fills[number] <= 0.44 for number in reduced)
    for before, (number, after) in zip(views, list(enumerate(views))[1:], strict=False):
        assert number in reduced or after[: len(before)] == before
    shown = str(views[reduced[-1]])
    assert "archived output of read" in shown
    assert "## Names in use" in summary.summary
    assert "handle_part_" in summary.summary


async def test_outputs_become_placeholders_only_until_the_mark_is_nearly_reached(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "p.db", automatic=True, window=WINDOW, output_reserve=0) as stash:
        await stash.record_messages([{"role": "user", "content": "Read all parts."}], session_id=SESSION)
        done: list[str] = []
        for number in range(90):
            *call, output = step(number)
            output["content"] = "\n".join(f"line {line} of part {number}" for line in range(190 if number < 8 else 9))
            done = (await stash.record_messages([*call, output], session_id=SESSION)).done
            if done:
                break
        context = await stash.get_context(SESSION)
    assert done[0].startswith("Archived")
    assert 0.35 < context.tokens / WINDOW <= 0.5
    shown = [message["content"] for message in context.messages if message["role"] == "tool"]
    whole = [len(text) for text in shown if "archived output" not in text]
    assert len([length for length in whole if length > 3_000]) == 3


async def test_an_output_is_limited_by_what_the_system_prompt_leaves(tmp_path: Path) -> None:
    long = "\n".join(f"line {line} of the report" for line in range(3_000))
    messages = [{"role": "user", "content": "Run it."}, *called(0, "run", {}, long)]
    shown = {}
    for lines in (0, 1_000):
        prompt = {"role": "system", "content": "Follow the rules.\n" + "Never leave a test red.\n" * lines}
        async with stash_at(tmp_path / f"{lines}.db", automatic=False, window=WINDOW, output_reserve=0) as stash:
            await stash.record_messages([prompt], session_id=SESSION)
            await stash.record_messages(messages, session_id=SESSION)
            shown[lines] = len((await stash.get_context(SESSION)).messages[-1]["content"])
    assert shown[1_000] < 0.8 * shown[0]


def edited(number: int) -> list[Native]:
    """A file that is read and edited."""
    path = f"/srv/app/part_{number}.py"
    text = "\n".join(f"{line}\tdef handle_part_{number}_{line}(order): return order + {line}" for line in range(1, 41))
    change = {"file_path": path, "old_string": f"part_{number}_2(order)", "new_string": f"part_{number}_2(orders)"}
    natives = called(2 * number, "Read", {"file_path": path}, text)
    return natives + called(2 * number + 1, "Edit", change, f"The file {path} has been updated.")


async def test_the_texts_of_files_take_only_what_is_left_of_half_the_window(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", automatic=True, window=WINDOW, output_reserve=0) as stash:
        await stash.record_messages([{"role": "user", "content": "Edit all parts."}], session_id=SESSION)
        fills: list[float] = []
        shown: list[bool] = []
        for number in range(60):
            recorded = await stash.record_messages(edited(number), session_id=SESSION)
            context = await stash.get_context(SESSION)
            if any(each.startswith("Summarized") for each in recorded.done):
                fills.append(context.tokens / WINDOW)
                shown.append("files in use, as they stood" in str(context.messages))
    assert len(fills) >= 3
    assert all(shown)
    assert max(fills) <= 0.5
