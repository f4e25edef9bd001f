"""A fault of ours leaves the request as the client wrote it; the client fails no more often than without the proxy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash.request.proxied import report_of
from contextstash.results import unread_line
from tests.support.proxies import (
    ID,
    OLD,
    CachingProvider,
    Clock,
    Refusal,
    RunningProxy,
    placeholders,
    play,
    request_of,
    running_proxy,
    session,
    turn,
)


def test_a_locked_database_lets_requests_through_unedited(proxy: RunningProxy, tmp_path: Path) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    holder = sqlite3.connect(tmp_path / "stash.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    proxy.clock.now += 400
    assert proxy.send(request_of(messages)).status_code == 200
    assert proxy.provider.asked[-1].body == json.dumps(request_of(messages)).encode()
    holder.execute("ROLLBACK")
    holder.close()
    proxy.clock.now += 400
    proxy.send(request_of(messages))
    assert placeholders(proxy.provider.bodies[-1]) == OLD


@pytest.mark.parametrize("content", [b"no database at all, but some bytes" * 100, None])
def test_a_database_that_cannot_be_opened_stops_no_request(
    provider: CachingProvider, clock: Clock, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "stash.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with running_proxy(provider, path, clock) as proxy:
        assert proxy.send(request_of(session(2))).status_code == 200
    assert provider.asked[-1].body == json.dumps(request_of(session(2))).encode()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 529])
def test_an_error_that_is_not_about_the_request_reaches_the_client_once_and_changes_nothing(
    proxy: RunningProxy, status: int
) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    proxy.clock.now += 400
    proxy.provider.refusals.append(Refusal(status, "not now", lambda body: bool(placeholders(body))))
    sent = len(proxy.provider.asked)
    assert proxy.send(request_of(messages)).status_code == status
    assert len(proxy.provider.asked) == sent + 1
    assert proxy.send(request_of(messages)).status_code == 200
    assert placeholders(proxy.provider.bodies[-1]) == OLD
    assert proxy.state(ID).left_alone is None


@pytest.mark.parametrize(
    "answer",
    [
        (200, "application/json", b'{"half": '),
        (200, "text/event-stream", b"data: {nothing\n\ndata: [1, 2]\n\nevent: x"),
        (200, "text/html", b"<html>Sign in</html>"),
        (400, "application/json", b"\xff\xfe"),
        (413, "application/json", b"[]"),
        (204, "application/json", b""),
    ],
)
def test_a_malformed_answer_reaches_the_client_byte_for_byte(
    proxy: RunningProxy, answer: tuple[int, str, bytes]
) -> None:
    proxy.provider.raw_answer = answer
    response = proxy.send(request_of(session(2)))
    assert (response.status_code, response.headers["content-type"], response.content) == answer
    proxy.provider.raw_answer = None
    assert proxy.send(request_of(session(2))).status_code == 200


def test_a_slow_stream_is_passed_on_as_it_comes(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    provider.pause_at = 1
    content = json.dumps(request_of(session(1))).encode()
    with (
        running_proxy(provider, tmp_path / "stash.db", clock) as proxy,
        proxy.http.stream("POST", f"{proxy.url}/v1/messages", content=content) as response,
    ):
        chunks = response.iter_raw()
        first = next(chunks)
        provider.resumed.set()
        rest = b"".join(chunks)
    assert b"message_start" in first
    assert b"message_stop" not in first
    assert b"message_stop" in rest


def test_a_full_disk_lets_requests_through_with_what_was_pruned_before(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    proxy.clock.now += 400
    proxy.send(request_of(messages))
    in_database(proxy, "PRAGMA max_page_count = 1")
    for number in range(20, 24):
        messages += turn(number, "".join(f"row {number} {k}\n" for k in range(2_000)))
        proxy.clock.now += 400
        assert proxy.send(request_of(messages)).status_code == 200
        assert placeholders(proxy.provider.bodies[-1])[: len(OLD)] == OLD
    in_database(proxy, "PRAGMA max_page_count = 1000000")
    proxy.clock.now += 400
    proxy.send(request_of(messages))
    proxy.clock.now += 400
    proxy.send(request_of(messages))
    assert len(placeholders(proxy.provider.bodies[-1])) > len(OLD)


def in_database(proxy: RunningProxy, statement: str) -> None:
    """Run a statement on the connection through which the proxy writes."""
    store: Any = proxy.engine._access.store
    work = store.database.writer.run(lambda db: db.execute(statement).fetchall())
    asyncio.run_coroutine_threadsafe(work, proxy.loop).result(30)


def test_chat_completions_are_pruned_when_their_cache_is_cold(proxy: RunningProxy) -> None:
    """The provider replies to this route with something else; only what reaches it counts here."""
    for turns in (7, 8):
        content = json.dumps(chat_request(turns)).encode()
        proxy.http.post(f"{proxy.url}/v1/chat/completions", content=content, headers={"session-id": "s"})
        proxy.settle()
        proxy.clock.now += 4_000
    sent = proxy.provider.asked[-1].json["messages"]
    assert "get_archived_output" in sent[2]["content"]
    assert "get_archived_output" not in json.dumps(sent[-1])


def chat_request(turns: int) -> dict[str, Any]:
    """A request with so many tool calls and their outputs."""
    tool = {"name": "contextstash__get_archived_output", "parameters": {"type": "object"}}
    listed: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for number in range(turns):
        text = "".join(f"line {number}-{k}\n" for k in range(900))
        call = {"name": "read", "arguments": json.dumps({"path": f"/a/{number}"})}
        calls = [{"id": f"c{number}", "type": "function", "function": call}]
        listed.append({"role": "assistant", "content": None, "tool_calls": calls})
        listed.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return {"model": "gpt-5", "messages": listed, "tools": [{"type": "function", "function": tool}]}


def test_a_request_that_cannot_be_read_is_counted_where_a_user_looks_and_the_next_one_is_recorded(
    proxy: RunningProxy,
) -> None:
    messages = session(4)
    play(proxy, messages[:3])
    twice = b'{"messages": [{"role": "user", "content": "x"}], "messages": []}'
    named = {"x-claude-code-session-id": ID}
    assert proxy.send(twice, named).status_code == 200
    play(proxy, messages, first=5)
    state = proxy.state(ID)
    assert (state.unread, state.requests) == (1, 5)
    assert unread_line(1) in report_of(state).lines()
