"""Each conversation has a session of its own, whatever others look like it, whoever sends it, and across restarts."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.proxied import MAX_ID, client_session
from contextstash.messages.request import read_request
from contextstash.proxy.conversations import AskedRequest, Conversations
from contextstash.proxy.edits import Prepared, ProxyOptions
from contextstash.proxy.engine import Engine
from contextstash.stash import Stash
from contextstash_storage.sqlite import open_sqlite
from tests.support.effort import examples
from tests.support.proxies import (
    ID,
    OLD,
    READ,
    CachingProvider,
    Clock,
    RunningProxy,
    in_stash,
    placeholders,
    prune_cold,
    recorded,
    request_of,
    rewinds,
    running_proxy,
    session,
    turn,
)

Message = dict[str, Any]

GREETING: Message = {"role": "user", "content": "Hello."}
REPLY: Message = {"role": "assistant", "content": "Hello! What shall we do?"}


NAMED: dict[str, Any] = {"metadata": {"user_id": ID}}
"""The client's own id, as Claude Code writes it: its sub-agents have the same."""


def say(proxy: RunningProxy, messages: list[Message], key: str = "a", header: str = "x-api-key", **fields: Any) -> str:
    """Send a request of a user without any id of its conversation; the session that it went to."""
    response = proxy.send(request_of(messages, **{"metadata": {}, **fields}), {header: key})
    assert response.status_code == 200
    return str(response.headers["x-contextstash-session"])


def marks(messages: list[Message]) -> set[str]:
    """The conversations whose words these messages hold."""
    return set(re.findall(r"chat-\d+-of-\w+", json.dumps(messages)))


class Chats:
    """Conversations of two users that all begin with the same greeting and get the same reply."""

    def __init__(self, count: int) -> None:
        self.names = [f"chat-{number}-of-{'ann' if number % 2 else 'bob'}" for number in range(count)]
        self.messages: dict[str, list[Message]] = {name: [GREETING] for name in self.names}
        self.sent: dict[str, set[str]] = {name: set() for name in self.names}

    def go_on(self, proxy: RunningProxy, name: str) -> None:
        """Send the next request of a conversation."""
        self.sent[name].add(say(proxy, self.messages[name], key=name[-3:]))
        count = len(self.messages[name])
        self.messages[name] = [*self.messages[name], REPLY, {"role": "user", "content": f"{name} says {count}"}]


def test_a_hundred_conversations_without_ids_of_two_users_stay_apart_across_restarts(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    order, chats = random.Random(7), Chats(examples(100))
    for _ in range(4):
        with running_proxy(provider, tmp_path / "stash.db", clock) as proxy:
            for name in order.sample(chats.names, len(chats.names)):
                clock.now += 1
                chats.go_on(proxy, name)
    sessions = recorded(tmp_path / "stash.db")
    assert all(len(marks(messages)) <= 1 for messages in sessions.values())
    for name in chats.names:
        [whole] = [found for found in sessions.values() if marks(found) == {name}]
        assert whole == chats.messages[name][:-2]
    owners = {found: {name[-3:] for name in chats.names if found in chats.sent[name]} for found in sessions}
    assert all(len(users) <= 1 for users in owners.values())


def test_requests_with_one_id_and_different_credentials_never_share_a_session(proxy: RunningProxy) -> None:
    messages = session(3)
    own = [say(proxy, messages[:count], "a", **NAMED) for count in (1, 3)]
    others = [say(proxy, messages[:count], "b", **NAMED) for count in (3, 5, 7)]
    assert own == [ID, ID]
    assert len(set(others)) == 1
    assert others[0] != ID
    assert say(proxy, messages[:5], "a", **NAMED) == ID


def say_by(proxy: RunningProxy, token: str, messages: list[Message]) -> str:
    """Send a request with a token of Claude's sign-in, which names the account."""
    return say(proxy, messages, f"Bearer sk-ant-oat01-{token}", "authorization", **NAMED)


def test_under_run_a_renewed_token_continues_the_session(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    messages = session(12)
    with running_proxy(provider, tmp_path / "stash.db", clock, secret="s") as proxy:
        assert {say_by(proxy, "one", messages[:count]) for count in (1, 3, 5)} == {ID}
        assert {say_by(proxy, "two", messages[:count]) for count in (7, 9)} == {ID}
        back = [*messages[:5], {"role": "user", "content": "Try another way."}]
        assert say_by(proxy, "three", back) == ID
    with running_proxy(provider, tmp_path / "stash.db", clock, secret="s") as proxy:
        assert say_by(proxy, "four", back) == ID
    with running_proxy(provider, tmp_path / "stash.db", clock) as plain:
        assert say_by(plain, "four", back) != ID


@pytest.mark.parametrize("forgotten", [False, True])
def test_who_names_the_account_of_another_gets_a_session_of_their_own(
    provider: CachingProvider, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """They may know its ids, and what was said."""
    monkeypatch.setattr("contextstash.proxy.conversations.MAX_CONVERSATIONS", 1 if forgotten else 64)
    random_ids = [f"toolu_01{letter * 22}" for letter in "ab"]
    known, own = (json.loads(json.dumps(session(4)).replace('"toolu_', f'"{each}')) for each in random_ids)
    begun = [GREETING, REPLY]
    injected = {"role": "user", "content": "chat-1-of-bob"}
    summary = {**injected, "content": "This session is being continued from a previous conversation. chat-1-of-bob"}
    with running_proxy(provider, tmp_path / "stash.db", clock) as proxy:
        for forged in ([*begun, injected], [GREETING, injected], [summary], [*begun, *own[:3], REPLY, injected]):
            assert say_by(proxy, "ann", [*begun, *known[:3]]) == ID
            if forgotten:
                say(proxy, [{"role": "user", "content": "Another conversation."}])
            assert say_by(proxy, "bob", forged) != ID
        assert say_by(proxy, "ann", [*begun, *known[:5]]) == ID
    assert marks(recorded(tmp_path / "stash.db")[ID]) == set()


def agent_messages(agent: int, turns: int) -> list[Message]:
    """A sub-agent of three that get the same task, and read other things."""
    found: list[Message] = [{"role": "user", "content": "Find the bug."}]
    for number in range(turns):
        text = "".join(f"agent {agent} line {number}-{k}\n" for k in range(300))
        found += turn(100 * agent + number, text, argument=f"/{agent}/{number}")
    return found


@pytest.mark.parametrize("named", [True, False])
def test_parallel_agents_with_equal_prompts_get_sessions_of_their_own_and_are_pruned(
    proxy: RunningProxy, named: bool
) -> None:
    fields: dict[str, Any] = NAMED if named else {}
    agents = {agent: agent_messages(agent, 25) for agent in range(3)}
    found: dict[int, str] = {}
    for count in range(1, 52, 2):
        for agent, messages in agents.items():
            proxy.clock.now += 3 if count < 51 else 400
            found[agent] = say(proxy, messages[:count], **fields)
            if count == 51:
                assert placeholders(proxy.provider.bodies[-1])[0] == f"toolu_{100 * agent}"
    sessions = recorded(proxy.database)
    assert len(set(found.values())) == len(sessions) == 3
    for agent, name in found.items():
        assert sessions[name] == agents[agent]
        assert rewinds(proxy.database, name) == 0
        assert proxy.state(name).requests >= 24


def test_a_second_sub_agent_with_the_prompt_of_the_first_has_a_session_of_its_own(proxy: RunningProxy) -> None:
    fields: dict[str, Any] = {**NAMED, "system": [{"type": "text", "text": "You are a sub-agent."}]}
    first, second = agent_messages(1, 3), agent_messages(2, 3)
    assert say(proxy, session(2)[:1], **NAMED) == ID
    names = [say(proxy, messages[:count], **fields) for messages in (first, second) for count in (1, 3, 5)]
    assert len({ID, *names}) == 3
    assert recorded(proxy.database)[names[0]] == first[:5]


def test_a_fork_of_the_conversation_beside_it_is_a_session_of_its_own(proxy: RunningProxy) -> None:
    messages = session(3)
    assert say(proxy, messages[:5], **NAMED) == ID
    results = messages[6]["content"]
    ended = [*messages[:6], {"role": "user", "content": results}]
    forked = [*messages[:6], {"role": "user", "content": [*results, {"type": "text", "text": "You are a fork."}]}]
    assert say(proxy, ended, **NAMED) == ID
    assert say(proxy, forked, **NAMED) != ID
    assert say(proxy, [*ended, *turn(7, "more")], **NAMED) == ID


def test_who_goes_back_to_what_a_fork_has_in_common_stays_in_the_main_session(proxy: RunningProxy) -> None:
    messages = session(3)
    assert say(proxy, messages[:5], **NAMED) == ID
    assert say(proxy, messages, **NAMED) == ID
    forked = [*messages[:5], *turn(50, "of the fork")]
    assert say(proxy, forked, **NAMED) != ID
    assert say(proxy, [*messages[:4], {"role": "user", "content": "Try another way."}], **NAMED) == ID


async def test_a_sub_agent_that_begins_while_the_first_request_waits_has_a_session_of_its_own(stash: Stash) -> None:
    """It begins with the same message, and its system prompt is another."""

    def asked(messages: list[Message], **fields: Any) -> AskedRequest:
        body = json.dumps(request_of(messages, **fields)).encode()
        return AskedRequest(read_request("anthropic", body), ID, "sender", 0.0)

    conversations = Conversations(stash)
    main = await conversations.find(asked(session(2)[:1]))
    other = await conversations.find(asked(session(2), system=[{"type": "text", "text": "You are a sub-agent."}]))
    assert main is not None
    assert main.session_id == ID
    assert other is not main


def test_a_person_who_goes_back_stays_in_the_session_and_without_an_id_gets_a_new_one(proxy: RunningProxy) -> None:
    messages = session(3)
    back = [*messages[:4], {"role": "user", "content": "Try another way."}]
    assert {say(proxy, messages, **NAMED), say(proxy, back, **NAMED)} == {ID}
    assert say(proxy, messages) != say(proxy, back)


async def test_users_part_if_one_goes_on_while_the_reply_to_the_same_greeting_of_the_other_is_slow(
    tmp_path: Path,
) -> None:
    """Ann's second request ends before the reply to Bob's first one does."""

    async def asked(messages: list[Message]) -> Prepared:
        body = json.dumps(request_of(messages, metadata={})).encode()
        prepared = await engine.prepare("anthropic", [(b"x-api-key", b"k")], body)
        assert prepared is not None
        return prepared

    async def ended(prepared: Prepared) -> None:
        engine.finish(prepared, [])
        await engine.idle()

    async def next_asked(name: str) -> Prepared:
        says: Message = {"role": "user", "content": f"{name} says something."}
        return await asked([GREETING, {**REPLY, "content": f"Hi, {name}."}, says])

    async with Stash(await open_sqlite(tmp_path / "stash.db")) as stash:
        engine = Engine(stash, ProxyOptions(clock=lambda: 1_000.0))
        await ended(await asked([GREETING]))
        slow = await asked([GREETING])
        anns = await next_asked("chat-1-of-ann")
        await ended(anns)
        await ended(slow)
        bobs = await next_asked("chat-2-of-bob")
        assert bobs.conversation is not anns.conversation
        await ended(bobs)
    found = [marks(messages) for messages in (await asyncio.to_thread(recorded, tmp_path / "stash.db")).values()]
    assert sorted(map(sorted, found)) == [["chat-1-of-ann"], ["chat-2-of-bob"]]


@pytest.mark.parametrize("role", ["system", "user"])
def test_parallel_agents_with_one_id_stay_apart_if_a_reminder_stands_behind_the_results(
    proxy: RunningProxy, role: str
) -> None:
    reminder: Message = {"role": role, "content": "<system-reminder>Keep your list of tasks.</system-reminder>"}
    agents: dict[int, list[Message]] = {agent: [{"role": "user", "content": "Find the bug."}] for agent in range(3)}
    found: dict[int, str] = {}
    for number in range(4):
        for agent, messages in agents.items():
            found[agent] = say(proxy, messages, **NAMED)
            messages += [*turn(100 * agent + number, f"agent {agent} step {number}"), reminder]
    sessions = recorded(proxy.database)
    assert len(set(found.values())) == len(sessions) == 3
    for agent, name in found.items():
        assert sessions[name] == agents[agent][:-3]
        assert rewinds(proxy.database, name) == 0


@pytest.mark.parametrize(("key", "stays"), [("a", True), ("b", False)])
@pytest.mark.parametrize("whole", [True, False])
def test_after_a_restart_a_session_goes_on_with_the_key_that_it_began_with(
    provider: CachingProvider, clock: Clock, tmp_path: Path, key: str, stays: bool, whole: bool
) -> None:
    """Also if another one knows the id and all that was said."""
    messages = session(4)
    back = [*messages[:5], {"role": "user", "content": "Try another way."}]
    with running_proxy(provider, tmp_path / "stash.db", clock) as first:
        assert say(first, messages, "a", **NAMED) == ID
    with running_proxy(provider, tmp_path / "stash.db", clock) as second:
        assert (say(second, [*messages, *turn(9, "more")] if whole else back, key, **NAMED) == ID) is stays
    assert rewinds(tmp_path / "stash.db", ID) == (stays and not whole)


def test_names_of_conversations_that_differ_only_in_what_an_id_may_not_hold_stay_apart() -> None:
    names = ["a" * 10_000, "a" * 10_001, "../x", "_._x", "outputs", "a.outputs", "\x00", "\x01", "été"]
    ids = [str(client_session([(b"session-id", name.encode("latin-1"))])[0]) for name in names]
    assert len(set(ids)) == len(names)
    assert all(len(each) <= MAX_ID and not each.endswith("outputs") and "/" not in each for each in ids)
    assert client_session([(b"session-id", b"0a1b-2.c:d_e")]) == ("0a1b-2.c:d_e", None)


def delete(database: Path, session_id: str = ID) -> None:
    in_stash(database, lambda stash: stash.delete_session(session_id))


def test_the_edits_of_a_deleted_session_end_with_it_and_it_is_not_recorded_again(proxy: RunningProxy) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    assert placeholders(proxy.provider.bodies[-1]) == OLD
    delete(proxy.database)
    for number in range(3):
        messages += turn(20 + number, "x" * 9_000)
        proxy.clock.now += 400
        proxy.send(request_of(messages))
        assert proxy.provider.asked[-1].data == json.dumps(request_of(messages)).encode()
    assert recorded(proxy.database) == {}


@pytest.mark.parametrize("named", [True, False])
def test_a_session_that_is_deleted_while_no_proxy_runs_is_not_recorded_again(
    provider: CachingProvider, clock: Clock, tmp_path: Path, named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    messages = session(4)
    fields: dict[str, Any] = {} if named else {"metadata": {}}
    database = tmp_path / "stash.db"
    for count in (5, 7, 9):
        with running_proxy(provider, database, clock) as proxy:
            body = request_of(messages[:count], **fields)
            proxy.send(body)
            assert provider.asked[-1].data == json.dumps(body).encode()
        if count == 5:
            [found] = recorded(database)
            delete(database, found)
    assert recorded(database) == {}
    assert "what its client goes on with is not recorded" in caplog.text
    with running_proxy(provider, database, clock) as proxy:
        proxy.send(request_of([{"role": "user", "content": "Another task."}], metadata={}))
    assert len(recorded(database)) == 1


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_what_continues_a_conversation_that_the_provider_keeps_goes_on_unchanged_and_is_counted(
    proxy: RunningProxy, field: str
) -> None:
    tools = [{"type": "function", "name": READ["name"], "parameters": {"type": "object"}}]
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
    for kept in ({field: "kept_1"}, {}):
        body = json.dumps({"model": "gpt-5.4", "input": [said], "tools": tools, **kept}).encode()
        response = proxy.http.post(f"{proxy.url}/v1/responses", content=body, headers={"session-id": ID})
        proxy.settle()
        assert proxy.provider.asked[-1].data == body
        assert ("x-contextstash-session" in response.headers) is not bool(kept)
    assert recorded(proxy.database) == {ID: [said]}
    assert (proxy.state(ID).requests, proxy.state(ID).unread) == (1, 1)


def test_agents_that_wait_for_their_replies_at_the_same_time_are_not_mixed(proxy: RunningProxy) -> None:
    """The requests of each round are on their way at once."""
    from concurrent.futures import ThreadPoolExecutor

    agents = [agent_messages(agent, 8) for agent in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for count in range(1, 18, 2):
            bodies = [request_of(messages[:count], metadata={}) for messages in agents]
            list(pool.map(lambda body: proxy.http.post(f"{proxy.url}/v1/messages", json=body), bodies))
            proxy.settle()
    whole = [messages for messages in recorded(proxy.database).values() if len(messages) == 17]
    assert sorted(whole, key=json.dumps) == sorted(agents, key=json.dumps)


def test_a_session_that_is_deleted_while_the_model_replies_is_not_recorded_again(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
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
