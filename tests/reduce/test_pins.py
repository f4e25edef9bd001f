"""Pins: what the user or the agent wants to keep stays in the view through prunes, compactions and requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.records import Native
from tests.support.stashes import SESSION, called, stash_at

RULES = "\n".join(f"Rule {number}: table rates_{number} is rounded to {number} digits." for number in range(40))


def step(number: int, path: str, text: str) -> list[Native]:
    """A call that reads a file, and the file."""
    return called(number, "read", {"path": path}, text, f"Reading {path}.")


def part(number: int) -> list[Native]:
    lines = "\n".join(f"def handle_part_{number}(order_{line}): ...  # step {line}" for line in range(40))
    return step(number, f"/srv/part_{number}.py", lines)


async def recorded(stash: Stash, *steps: list[Native]) -> list[str]:
    """Records the steps after a first request. Returns the handles of their outputs."""
    messages = [{"role": "user", "content": "Read the rules, then all parts."}, *(m for each in steps for m in each)]
    await stash.record_messages(messages, session_id=SESSION)
    outputs = await stash.store.read_outputs(SESSION)
    return [output.handle for output in sorted(outputs, key=lambda output: output.seq)]


async def shown(stash: Stash, budget: int | None = None) -> str:
    context = await stash.get_context(SESSION, budget=budget)
    assert context.fits
    return "\n".join(str(message["content"]) for message in context.messages)


async def test_a_session_that_compacts_itself_keeps_what_is_pinned(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", automatic=True, window=16_000, output_reserve=0) as stash:
        [handle] = await recorded(stash, step(0, "/srv/rules.md", RULES))
        await stash.configure_session(SESSION, pin=[handle])
        reductions: list[str] = []
        for number in range(1, 60):
            reductions += (await stash.record_messages(part(number), session_id=SESSION)).done
            assert (await shown(stash)).count(RULES) == 1
    assert {each.split()[0] for each in reductions} == {"Archived", "Summarized"}


@pytest.mark.parametrize("path", ["rules.md", "out_of_date/rules.md"])
async def test_a_pinned_path_stands_for_the_newest_output_that_shows_the_file(stash: Stash, path: str) -> None:
    newer = RULES.replace("rounded", "cut")
    steps = [step(0, f"/srv/{path}", RULES), step(1, f"/srv/{path}", newer), *map(part, range(2, 6))]
    await recorded(stash, *steps)
    await stash.prune_tool_outputs(SESSION, keep_last=0)
    assert newer not in await shown(stash)
    await stash.configure_session(SESSION, pin=[path])
    assert newer in await shown(stash)  # it comes back
    again = await stash.prune_tool_outputs(SESSION, keep_last=0)
    assert "archived or pinned" in again.reason
    view = await shown(stash)
    assert newer in view
    assert RULES not in view


@pytest.mark.parametrize("fit_by", ["archive", "leave_out"])
async def test_a_request_that_is_too_long_keeps_pinned_outputs_as_long_as_anything_else_can_go(
    tmp_path: Path, fit_by: str, preset_with: Callable[..., str]
) -> None:
    async with stash_at(tmp_path / "s.db", window=100_000, preset=preset_with(fit_by=fit_by)) as stash:
        handles = await recorded(stash, step(0, "/srv/rules.md", RULES), *map(part, range(1, 12)))
        await stash.configure_session(SESSION, pin=[handles[0]])
        assert RULES in await shown(stash, budget=3_000)
        assert RULES in await shown(stash, budget=2_500)


async def test_pins_larger_than_their_share_are_cut_so_that_the_view_still_fits(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", automatic=True, window=16_000, output_reserve=0) as stash:
        handles = await recorded(stash, *map(part, range(12)))
        await stash.configure_session(SESSION, pin=handles)
        for number in range(20, 60):
            await stash.record_messages(part(number), session_id=SESSION)
            context = await stash.get_context(SESSION)
            assert context.fits
        view = await shown(stash)
    assert all(f"pinned output {handle}" in view or f"handle_part_{n}" in view for n, handle in enumerate(handles))


async def test_what_cannot_be_pinned_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db") as stash:
        await recorded(stash, step(0, "/srv/rules.md", RULES))
        with pytest.raises(HandleNotFoundError, match="search_history finds handles"):
            await stash.configure_session(SESSION, pin=["out_missing"])
        with pytest.raises(BadInputError, match="pin: String should have at least 1"):
            await stash.configure_session(SESSION, pin=[" "])
        assert (await stash.configure_session(SESSION, unpin=[" never/pinned.py "])).settings["pin"] == ()
