"""Messages kept in memory are those of the store, whatever happens to the session meanwhile."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.session.access import MAX_VIEWS, Access
from contextstash.session.open_session import Scope
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native, Request
from tests.support.effort import examples
from tests.support.stashes import SESSION, all_handles, called, history, stash_at, view


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_many_sessions_at_once(stash: Stash) -> None:
    names = [f"{SESSION}-{number}" for number in range(2 * MAX_VIEWS)]
    for name in names:
        await stash.record_messages([said(name)], session_id=name)
    for name in [*names, *names]:
        assert await view(stash, name) == [said(name)]
    assert sum(each.has_view for each in stash._open.values()) == MAX_VIEWS


CALLS = ("a", "b", "c")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("say", "call", "prune", "compact", "restore", "rewind", "remake", "older copy")),
        st.booleans(),
        st.sampled_from(CALLS),
    ),
    min_size=3,
    max_size=12,
)


def reading(name: str, number: int) -> list[Native]:
    """A call with an output of about 200 tokens."""
    return called(number, "read_file", {"path": f"{name}.py"}, f"{name} line of {number}\n" * 40)


async def take(stash: Stash, step: str, name: str, number: int, copies: list[list[str]]) -> None:
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
                    await take(other if by_other else one, step, name, number, copies)
                for scope in (Scope(bodies=True), Scope(bodies=True, all_outputs=True)):
                    await check_kept(one, scope)


async def check_kept(stash: Stash, scope: Scope) -> None:
    """What is kept in memory, advanced by the news, equals what is read again; so do the messages to send."""
    store = stash.store
    news = await stash.news(SESSION)
    assert ([] if news.request is None else [news.request]) == await store.read_log(
        SESSION, Request, newest=True, limit=1
    )
    kept = await stash.snapshot_of(news.session, scope, news)
    again = await Access(store).snapshot(SESSION, scope)
    assert kept.session == again.session
    assert (kept.edits, kept.overlay) == (again.edits, again.overlay)
    assert (kept.entries, kept.outputs) == (again.entries, again.outputs)
    assert await stash.read_context(SESSION) == await Stash(store).read_context(SESSION)
