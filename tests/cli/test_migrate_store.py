"""migrate-store copies whole databases, goes on where it was interrupted, and compares what arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from contextstash.cli.app import run
from contextstash_storage.databases import name_of, open_store
from contextstash_storage.records import Call, Cursor, DeclaredVersion, Event, KeptState, Request, RestoreEdit
from contextstash_storage.store import SessionStore
from tests.support.postgres_server import new_store_address
from tests.support.stored_sessions import (
    answers,
    archiving,
    calls,
    conversation,
    new_session,
    record,
    says,
    summarizing,
)

if TYPE_CHECKING:
    from contextstash_storage.databases import Location


Result = TypeVar("Result")
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}],
}
BIG = "".join(f"line {number} of a long output\n" for number in range(300))


def with_store(location: Location, work: Callable[[SessionStore], Awaitable[Result]]) -> Result:
    async def opened() -> Result:
        async with await open_store(location) as store:
            return await work(store)

    return asyncio.run(opened())


async def fill(store: SessionStore) -> None:
    for owner in ("local", "another"):
        mine = store.for_owner(owner)
        for name in ("one", "two"):
            await new_session(
                mine, name, title=f"{name} of {owner}", parent_session_id="one" if name == "two" else None
            )
            await record(
                mine,
                *conversation(6),
                calls("call_0").model_copy(update={"body": CALL}),
                answers("call_0", BIG, handle=f"out_{name}"),
                says("odd \ud800\x00 text"),
                session_id=name,
                known_by="turn 1",
                cursor=Cursor(source=f"{name} file", offset=7),
            )
            await record(mine, says("keyed", key=f"k\x00{name}"), session_id=name)
            await mine.change_session(
                name, edits=[archiving(13), summarizing(0, 3), RestoreEdit(undoes=(1,))], expected=0
            )
            await mine.append_log(name, Event(kind="prune", tokens_before=2, tokens_after=1, reason="asked"))
            await mine.append_log(name, Call(purpose="summary", request_seq=1, prompt_tokens=2))
            part = DeclaredVersion(part="tools", content=[{"name": "Bash"}], tokens=9)
            await mine.declare(
                name, [part], lambda declared, versions: declared.model_copy(update={"tools": versions[0]})
            )
            await mine.put_note(name, KeptState(text="{}", rewinds=()))
            await mine.append_request(name, Request(messages=3, edits=1, appended=9, budget=100, counted=5, tokens=7))


async def contents(store: SessionStore) -> list[object]:
    found: list[object] = []
    for owner in await store.owners():
        mine = store.for_owner(owner)
        for session in await mine.list_sessions():
            name = session.session_id
            found += [owner, session, await mine.read_messages(name), await mine.read_edits(name)]
            found += [
                await mine.read_outputs(name),
                await mine.read_log(name, DeclaredVersion),
                await mine.read_log(name, Request),
            ]
            found.append(await mine.get_note(name, KeptState))
            found.append([call.prompt_tokens for call in await mine.read_log(name, Call)])
            found += [[hit.seq for hit in await mine.search("long output", session_ids=[name])]]
    return found


@pytest.mark.postgres
def test_sessions_go_to_postgresql_and_back_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = tmp_path / "first.db", new_store_address(), tmp_path / "third.db"
    with_store(first, fill)
    for source, target in ((first, second), (second, third)):
        assert run(["migrate-store", name_of(source), name_of(target)]) == 0
        assert "Copied 4 sessions, each compared; 0 were there already." in capsys.readouterr().out
    everything = with_store(first, contents)
    assert len(everything) == 4 * 10
    assert with_store(second, contents) == everything
    assert with_store(third, contents) == everything


@pytest.mark.postgres
def test_what_was_deleted_is_known_in_the_new_store(tmp_path: Path) -> None:
    """A client that goes on with a deleted session must not bring it back because the database was moved."""
    source, target = tmp_path / "source.db", new_store_address()
    with_store(source, fill)
    with_store(source, lambda store: store.delete_session("one"))
    for _ in range(2):
        assert run(["migrate-store", str(source), name_of(target)]) == 0
    known = with_store(target, lambda store: store.deleted_sessions())
    assert known == with_store(source, lambda store: store.deleted_sessions())
    assert len(known) == 1


@pytest.mark.postgres
def test_a_second_run_copies_what_is_new_and_names_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source.db", new_store_address()
    with_store(source, fill)
    assert run(["migrate-store", str(source), name_of(target)]) == 0
    with_store(source, lambda store: new_session(store, "three"))
    assert run(["migrate-store", str(source), name_of(target)]) == 0
    assert "Copied 1 session, each compared; 4 were there already." in capsys.readouterr().out
    with_store(target, lambda store: store.update_session("one", title="changed there"))
    with_store(source, lambda store: record(store, says("more"), session_id="two"))
    assert run(["migrate-store", str(source), name_of(target)]) == 1
    printed = capsys.readouterr()
    assert "3 were there already" in printed.out
    assert "Not copied, and not changed there: one: it is stored there with another content" in printed.err
    assert "Not copied, and not changed there: two: A different session two exists already" in printed.err
