"""Of a view far larger than the window only the newest part is read, and everything is as if it had been read whole;
what is kept in memory is what the store holds, whatever happens to the session meanwhile."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.session import open_session
from contextstash.session.access import Access
from contextstash.session.open_session import WITHIN_REACH, Scope
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, DamagedError
from contextstash_storage.records import Native, Request
from tests.support.effort import examples
from tests.support.stashes import SESSION, all_handles, called, counters_in_step, history, stash_at

WINDOW = 6_000
TASK = "Please make the importer accept Latin-1 files."
CALLS = 260
"""About 40,000 tokens: far more than the window."""


def conversation(calls: int = CALLS) -> list[Native]:
    natives: list[Native] = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": TASK}]
    for number in range(calls):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/{number}.py"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        lines = "\n".join(f"{number}:{line} = value {line * number % 97}" for line in range(4 + 20 * (number % 5 == 0)))
        natives += [
            {"role": "assistant", "content": f"I read file {number}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": lines},
        ]
    return natives


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_session, "READ_AT_ONCE", 40)


@pytest.fixture
async def stash(tmp_path: Path) -> AsyncIterator[Stash]:
    """A stash with such a session."""
    async with stash_at(tmp_path / "c.db", window=WINDOW) as opened:
        await opened.record_messages(conversation(), session_id=SESSION)
        yield opened


async def read_whole(stash: Stash, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Native], object]:
    with monkeypatch.context() as patch:
        patch.setattr(open_session, "MANY_WINDOWS", 10**9)
        found = await stash.read_context(SESSION)
    return found.messages, found.left_out


async def test_a_request_is_the_same_as_if_the_whole_view_had_been_read(
    stash: Stash, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await stash.snapshot(SESSION, WITHIN_REACH)).beyond is not None
    whole = await read_whole(stash, monkeypatch)
    part = await stash.read_context(SESSION)
    assert (part.messages, part.left_out) == whole
    assert part.left_out is not None
    for number in range(3):
        sent = await stash.get_context(SESSION)
        assert sent.fits
        await stash.record_messages([{"role": "user", "content": f"And {number}?"}], session_id=SESSION)
        following = await stash.read_context(SESSION)
        assert (following.messages, following.left_out) == await read_whole(stash, monkeypatch)
        assert following.messages[: len(sent.messages)] == sent.messages
    await counters_in_step(stash)


async def test_reductions_keep_the_counters_in_step_and_can_be_undone(stash: Stash) -> None:
    before = (await stash.snapshot(SESSION)).view_tokens
    pruned = await stash.prune_tool_outputs(SESSION, keep_last=1)
    assert pruned.tokens_before == before
    await counters_in_step(stash)
    compacted = await stash.compact_session(SESSION)
    assert (compacted.tokens_before, compacted.first_seq) == (pruned.tokens_after, 1)
    assert (await stash.snapshot(SESSION)).view_tokens == compacted.tokens_after
    await counters_in_step(stash)
    assert compacted.summary_id
    await stash.restore_outputs([compacted.summary_id, *await all_handles(stash)], session_id=SESSION)
    assert (await stash.snapshot(SESSION)).view_tokens == before
    await counters_in_step(stash)


@pytest.mark.parametrize("window", [4_000, WINDOW, 9_000])
async def test_after_everything_was_restored_the_first_request_comes_again(
    tmp_path: Path, window: int, preset_with: Callable[..., str]
) -> None:
    async with stash_at(tmp_path / "c.db", window=window, preset=preset_with(output_share=None)) as stash:
        await stash.record_messages(conversation(), session_id=SESSION)
        first = await stash.get_context(SESSION)
        assert first.left_out is not None
        await stash.restore_outputs(await all_handles(stash), session_id=SESSION)
        assert (await stash.get_context(SESSION)).messages == first.messages


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


NAMES = ("a", "b", "c")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("say", "call", "prune", "compact", "restore", "rewind", "remake", "older copy")),
        st.booleans(),
        st.sampled_from(NAMES),
    ),
    min_size=3,
    max_size=12,
)


def reading(name: str, number: int) -> list[Native]:
    """A call with an output of about 200 tokens."""
    return called(number, "read_file", {"path": f"{name}.py"}, f"{name} line of {number}\n" * 40)


async def step_of(stash: Stash, step: str, name: str, number: int, copies: list[list[str]]) -> None:
    """One step of a session's life, by either process."""
    match step:
        case "say":
            await stash.record_messages([said(f"{name} {number}")], session_id=SESSION)
        case "call":
            await stash.record_messages(reading(name, number), session_id=SESSION)
        case "prune":
            await stash.prune_tool_outputs(SESSION, keep_last=1)
        case "compact":
            await stash.compact_session(SESSION, summary=f"Summary {number}.")
        case "restore":
            if handles := await all_handles(stash):
                await stash.restore_outputs(handles, session_id=SESSION)
        case "rewind":
            shown = [each for each in await history(stash) if each["role"] != "tool"][:1]
            await stash.record_messages([*shown, said(f"again {name} {number}")], session_id=SESSION, whole=True)
        case "remake":
            await stash.delete_session(SESSION)
            await stash.record_messages([said(name)], session_id=SESSION, format="openai-chat")
        case "older copy":
            copy = copies[number % len(copies)]
            await stash.delete_session(SESSION)
            await stash.import_session(copy)
    copies.append([json.dumps(record) async for record in stash.export_session(SESSION)])


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
async def test_what_is_kept_equals_what_is_read_again_whatever_another_process_does(
    steps: list[tuple[str, bool, str]],
) -> None:
    with TemporaryDirectory() as folder:
        async with stash_at(Path(folder) / "c.db") as one, stash_at(Path(folder) / "c.db") as other:
            await one.record_messages([said("begin"), *reading("a", 99)], session_id=SESSION, format="openai-chat")
            copies = [[json.dumps(record) async for record in one.export_session(SESSION)]]
            for number, (step, by_other, name) in enumerate(steps):
                with suppress(BadInputError):
                    await step_of(other if by_other else one, step, name, number, copies)
                for scope in (Scope(bodies=True), Scope(bodies=True, all_outputs=True)):
                    await check_kept(one, scope)


async def check_kept(stash: Stash, scope: Scope) -> None:
    """What is kept in memory, advanced by the news, equals what is read again; so do the messages to send."""
    store = stash.store
    known = await stash.opened(SESSION).now()
    newest = await store.read_log(SESSION, Request, newest=True, limit=1)
    assert ([] if known.request is None else [known.request]) == newest
    kept = await stash.snapshot_of(known, scope)
    again = await Access(store).snapshot(SESSION, scope)
    assert kept.session == again.session
    assert (kept.edits, kept.overlay) == (again.edits, again.overlay)
    assert (kept.entries, kept.outputs) == (again.entries, again.outputs)
    assert await stash.read_context(SESSION) == await Stash(store).read_context(SESSION)


async def test_a_view_or_page_whose_output_is_missing_in_a_damaged_database_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with stash_at(path) as stash:
        await stash.record_messages(conversation(9), session_id=SESSION)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM outputs WHERE seq = 5")
    async with stash_at(path) as stash:
        for read in (stash.get_context, stash.read_messages):
            with pytest.raises(DamagedError, match=r"an output of message 5 .*doctor"):
                await read(SESSION)
