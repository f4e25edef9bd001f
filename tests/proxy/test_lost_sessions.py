"""A session that is deleted, or served by two proxies, while its client runs; and one that the provider keeps."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash.request.proxied import ProxiedSessions, RecordedList
from contextstash_storage.errors import EditConflictError
from contextstash_storage.sqlite import open_sqlite
from tests.proxy.test_identity import recorded
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import (
    ID,
    OLD,
    READ,
    Clock,
    RunningProxy,
    placeholders,
    prune_cold,
    request_of,
    running_proxy,
    session,
    turn,
)


def delete(database: Path, session_id: str = ID) -> None:
    async def run() -> None:
        store = await open_sqlite(database)
        await store.delete_session(session_id)
        await store.close()

    asyncio.run(run())


def test_the_edits_of_a_deleted_session_end_with_it_and_it_is_not_recorded_again(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock
) -> None:
    messages = session(8)
    prune_cold(proxy, clock, messages)
    assert placeholders(provider.bodies[-1]) == OLD
    delete(proxy.database)
    for number in range(3):
        messages += turn(20 + number, "x" * 9_000)
        clock.now += 400
        proxy.send(request_of(messages))
        assert provider.asked[-1].body == json.dumps(request_of(messages)).encode()
    assert recorded(proxy.database) == {}


def test_a_session_that_is_deleted_while_the_model_replies_is_not_recorded_again(
    provider: CachingProvider, proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = session(3)
    proxy.send(request_of(messages[:5]))
    kept = proxy.engine._keep

    async def late(*given: Any) -> None:
        await asyncio.to_thread(delete, proxy.database)
        await kept(*given)

    monkeypatch.setattr(proxy.engine, "_keep", late)
    proxy.send(request_of(messages))
    assert recorded(proxy.database) == {}


@pytest.mark.parametrize("named", [True, False])
def test_a_session_that_is_deleted_while_no_proxy_runs_is_not_recorded_again(
    provider: CachingProvider, clock: Clock, tmp_path: Path, named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    messages = session(4)
    fields: dict[str, Any] = {} if named else {"metadata": {}}
    database = tmp_path / "stash.db"
    for count in (5, 7, 9):
        with running_proxy(provider.url, database, clock) as proxy:
            body = request_of(messages[:count], **fields)
            proxy.send(body)
            assert provider.asked[-1].body == json.dumps(body).encode()
        if count == 5:
            [found] = recorded(database)
            delete(database, found)
    assert recorded(database) == {}
    assert "what its client goes on with is not recorded" in caplog.text
    with running_proxy(provider.url, database, clock) as proxy:
        proxy.send(request_of([{"role": "user", "content": "Another task."}], metadata={}))
    assert len(recorded(database)) == 1


def test_what_stays_of_a_deleted_session_tells_nothing_and_ends(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    database = tmp_path / "stash.db"
    with running_proxy(provider.url, database, clock) as proxy:
        proxy.send(request_of(session(2)))
        mark = proxy.state(ID).mark
    delete(database)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [each for each in (ID, mark, "Fix the bug") if each.encode() in content]
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        assert db.execute("SELECT count(*) FROM notes WHERE kind = 'deleted'").fetchone() == (1,)
        db.execute("UPDATE notes SET begins = 1 WHERE kind = 'deleted'")
    with running_proxy(provider.url, database, clock) as proxy:
        proxy.send(request_of(session(2)))
    assert list(recorded(database)) == [ID]
    delete(database)
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("SELECT count(*) FROM notes WHERE kind = 'deleted' AND begins < 2").fetchone() == (0,)


def test_two_proxies_on_one_session_record_all_and_log_nothing_false(
    provider: CachingProvider, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    messages = session(10)
    caplog.set_level(logging.WARNING)
    database = tmp_path / "stash.db"
    with (
        running_proxy(provider.url, database, clock) as one,
        running_proxy(provider.url, database, clock) as two,
        ThreadPoolExecutor(2) as pool,
    ):
        for count in range(1, 22, 2):
            body = request_of(messages[:count])
            list(pool.map(RunningProxy.send, (one, two), (body, body)))
        assert one.engine.faults == two.engine.faults == 0
    assert recorded(database) == {ID: messages}
    assert "unedited" not in caplog.text


def test_a_conflict_with_another_process_is_tried_again_and_the_log_says_what_happened(
    provider: CachingProvider, proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    conflicts, recording = [2], ProxiedSessions.record

    async def contended(self: ProxiedSessions, *given: Any, **facts: Any) -> RecordedList:
        if conflicts[0] > 0:
            conflicts[0] -= 1
            raise EditConflictError("Other processes kept changing this session.")
        return await recording(self, *given, **facts)

    monkeypatch.setattr(ProxiedSessions, "record", contended)
    messages = session(2)
    proxy.send(request_of(messages[:3]))
    assert recorded(proxy.database) == {ID: messages[:3]}
    conflicts[0] = 100
    proxy.send(request_of(messages))
    assert "not recorded yet: EditConflictError" in caplog.text
    assert "unedited" not in caplog.text
    assert proxy.engine.faults == 0


def follow_up(previous: str | None, *items: dict[str, Any]) -> dict[str, Any]:
    """A request of the Responses API that holds only what is new."""
    tools = [{"type": "function", "name": READ["name"], "parameters": {"type": "object"}}]
    fields = {} if previous is None else {"previous_response_id": previous}
    return {"model": "gpt-5.4", "input": list(items), "tools": tools, "stream": True, **fields}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answered(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


class KeptByProvider:
    """A conversation that the provider keeps: each request holds only what is new."""

    def __init__(self, provider: CachingProvider) -> None:
        self.count = 0
        provider.responses_events = self.events

    def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        self.count += 1
        usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5}
        response = {"id": f"resp_{self.count}", "output": [answered(f"Reply {self.count}.")], "usage": usage}
        return [{"type": "response.created", "response": {}}, {"type": "response.completed", "response": response}]

    @staticmethod
    def send(proxy: RunningProxy, body: dict[str, Any], **headers: str) -> str:
        response = proxy.http.post(f"{proxy.url}/v1/responses", content=json.dumps(body).encode(), headers=headers)
        proxy.settle()
        return str(response.headers["x-contextstash-session"])


def test_what_follows_a_response_that_the_provider_keeps_is_appended_with_its_reply(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    kept = KeptByProvider(provider)
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as proxy:
        first = kept.send(proxy, follow_up(None, said("One.")))
        assert kept.send(proxy, follow_up("resp_1", said("Two."))) == first
        other = kept.send(proxy, follow_up(None, said("Else.")))
        assert other != first
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as proxy:
        assert kept.send(proxy, follow_up("resp_2", said("Three."))) == first
        assert kept.send(proxy, follow_up("resp_unknown", said("?"))) not in (first, other)
    whole = [said("One."), answered("Reply 1."), said("Two."), answered("Reply 2."), said("Three.")]
    assert recorded(tmp_path / "stash.db")[first] == [*whole, answered("Reply 4.")]


def texts(database: Path) -> dict[str, list[str]]:
    """What was said in each session, branches that were left included."""
    return {name: [each["content"][0]["text"] for each in found] for name, found in recorded(database).items()}


def test_users_who_begin_with_the_same_words_part_if_each_follows_their_own_response(
    provider: CachingProvider, proxy: RunningProxy
) -> None:
    kept = KeptByProvider(provider)
    shared = {kept.send(proxy, follow_up(None, said("Hello."))) for _ in ("ann", "bob")}
    ann = [kept.send(proxy, follow_up(f"resp_{previous}", said("I am Ann."))) for previous in (1, 3)]
    bob = [kept.send(proxy, follow_up(f"resp_{previous}", said("I am Bob."))) for previous in (2, 5)]
    assert len(shared) == len(set(ann)) == len(set(bob)) == 1
    assert set(ann).isdisjoint(bob)
    found = texts(proxy.database)
    assert found[ann[0]] == ["Hello.", "Reply 1.", "I am Ann.", "Reply 3.", "I am Ann.", "Reply 4."]
    assert found[bob[0]] == ["Hello.", "Reply 2.", "I am Bob.", "Reply 5.", "I am Bob.", "Reply 6."]


def test_a_conversation_that_began_before_the_proxy_is_recorded_from_then_on(
    provider: CachingProvider, proxy: RunningProxy, caplog: pytest.LogCaptureFixture
) -> None:
    kept = KeptByProvider(provider)
    sent = [("resp_before", "One."), ("resp_1", "Two."), ("resp_2", "Three.")]
    [name] = {kept.send(proxy, follow_up(previous, said(text))) for previous, text in sent}
    assert texts(proxy.database) == {name: ["One.", "Reply 1.", "Two.", "Reply 2.", "Three.", "Reply 3."]}
    assert "not recorded" not in caplog.text


@pytest.mark.parametrize("followed", [1, 2])
def test_what_follows_a_response_of_a_deleted_session_is_not_recorded(
    provider: CachingProvider, proxy: RunningProxy, followed: int
) -> None:
    """Neither the newest nor an earlier one, with which a session of its own would begin."""
    kept = KeptByProvider(provider)
    [name] = {kept.send(proxy, follow_up(None, said("Hello."))) for _ in range(2)}
    delete(proxy.database, name)
    for previous in (followed, 3):
        kept.send(proxy, follow_up(f"resp_{previous}", said("Go on.")))
        assert texts(proxy.database) == {}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("followed", [1, 2])
def test_what_follows_a_later_response_to_the_client_of_a_deleted_session_is_not_recorded_after_a_restart(
    provider: CachingProvider, clock: Clock, tmp_path: Path, named: bool, followed: int
) -> None:
    """Neither in the session's own line nor in one that went on from an earlier response."""
    kept, database = KeptByProvider(provider), tmp_path / "stash.db"
    headers = {"session_id": ID} if named else {}
    with running_proxy(provider.url, database, clock) as proxy:
        [name] = {kept.send(proxy, follow_up(None, said("Hello.")), **headers) for _ in range(2)}
        delete(database, name)
        kept.send(proxy, follow_up(f"resp_{followed}", said("Go on.")), **headers)
    for newest in (3, 4):
        with running_proxy(provider.url, database, clock) as proxy:
            kept.send(proxy, follow_up(f"resp_{newest}", said("Go on again.")))
            assert texts(database) == {}
    with running_proxy(provider.url, database, clock) as proxy:
        kept.send(proxy, follow_up("resp_other", said("Another conversation.")))
    assert len(texts(database)) == 1
    assert b"resp_3" not in b"".join(path.read_bytes() for path in tmp_path.glob("stash.db*"))


def test_what_follows_a_whole_request_that_goes_on_with_a_deleted_session_is_not_recorded(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    kept, database = KeptByProvider(provider), tmp_path / "stash.db"
    line = [said("Hello."), answered("Hi."), said("One.")]
    with running_proxy(provider.url, database, clock) as proxy:
        name = kept.send(proxy, follow_up(None, *line))
    delete(database, name)
    for previous, items in ((None, [*line, answered("Reply 1."), said("Two.")]), ("resp_2", [said("Three.")])):
        with running_proxy(provider.url, database, clock) as proxy:
            kept.send(proxy, follow_up(previous, *items))
            assert texts(database) == {}


def test_a_branch_that_was_left_gets_a_session_of_its_own_after_a_restart(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    """What it began with is not stored as such: only the newest response tells where a conversation is."""
    kept = KeptByProvider(provider)
    sent = [(None, "Hello."), ("resp_1", "Branch X."), ("resp_1", "Branch Y.")]
    named = {"session_id": ID}
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as proxy:
        [first] = {kept.send(proxy, follow_up(previous, said(text)), **named) for previous, text in sent}
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as proxy:
        other = kept.send(proxy, follow_up("resp_2", said("On with X.")), **named)
        assert kept.send(proxy, follow_up("resp_3", said("On with Y.")), **named) == first
    assert texts(tmp_path / "stash.db")[other] == ["On with X.", "Reply 4."]
