"""What goes through the proxy is what was sent, in both directions."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash.proxy.app import check_upstream, zstandard
from contextstash.request.proxied import report_of
from contextstash.results import unread_line
from contextstash_storage.errors import BadInputError
from tests.support.proxies import (
    ID,
    OLD,
    CachingProvider,
    Clock,
    Refusal,
    RunningProxy,
    caching_provider,
    header_of,
    placeholders,
    play,
    request_of,
    running_proxy,
    session,
    turn,
)
from tests.support.stashes import called


def test_a_request_with_nothing_to_edit_arrives_byte_for_byte(proxy: RunningProxy) -> None:
    odd = '"max_tokens": 1e3, "unknown": [1.0,\t-0]'
    text = json.dumps(request_of(session(2)), indent=1).replace('"max_tokens": 1000', odd)
    response = proxy.send(text.encode(), {"x-api-key": "secret", "anthropic-beta": "a,b"})
    assert response.status_code == 200
    assert proxy.provider.asked[-1].data == text.encode()
    assert proxy.provider.asked[-1].target == "/v1/messages?beta=true"
    sent = proxy.provider.asked[-1].headers
    assert (sent["x-api-key"], sent["anthropic-beta"]) == ("secret", "a,b")


def test_a_streamed_reply_passes_and_names_the_session(proxy: RunningProxy) -> None:
    body = request_of(session(1))
    direct = httpx2.post(f"{proxy.provider.url}/v1/messages?beta=true", json=body)
    response = proxy.send(body)
    assert response.content.count(b"\n\n") == direct.content.count(b"\n\n")
    assert response.headers["x-contextstash-session"] == "0a1b2c3d-0000-4000-8000-000000000001"
    ours = set(response.headers) - set(direct.headers)
    assert ours == {"x-contextstash-session"}


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1/messages/count_tokens?beta=true"),
        ("GET", "/v1/models?limit=1000&after=%2Fa%20b"),
        ("HEAD", "/"),
        ("DELETE", "/api/oauth/%E2%82%AC/token"),
        ("POST", "/v1/messages/batches"),
    ],
)
def test_every_other_path_is_passed_on_as_it_is(proxy: RunningProxy, method: str, target: str) -> None:
    body = b'{"any": "thing"}' if method == "POST" else None
    proxy.http.request(method, proxy.url + target, content=body)
    asked = proxy.provider.asked[-1]
    assert (asked.method, asked.target, asked.data) == (method, target, body or b"")


def test_a_web_socket_is_refused_so_that_the_client_goes_on_over_http(proxy: RunningProxy) -> None:
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    response = httpx2.get(f"{proxy.url}/v1/responses", headers=headers)
    assert (response.status_code, proxy.provider.asked) == (426, [])


def test_cookies_of_the_provider_go_to_the_client_and_are_not_kept(proxy: RunningProxy) -> None:
    with httpx2.Client() as client:
        first = client.get(f"{proxy.url}/v1/models")
    assert first.headers["set-cookie"] == "secret=cookie"
    with httpx2.Client() as other:
        other.get(f"{proxy.url}/v1/models")
    assert "cookie" not in proxy.provider.asked[-1].headers


def test_credentials_are_not_in_the_database_or_its_log(proxy: RunningProxy) -> None:
    proxy.send(request_of(session(2)), {"authorization": "Bearer sk-very-secret", "cookie": "c=oven-secret"})
    stored = b"".join(path.read_bytes() for path in proxy.database.parent.iterdir())
    assert b"very-secret" not in stored
    assert b"oven-secret" not in stored
    assert b"Fix the bug" in stored or len(stored) > 4096


def test_a_stream_that_breaks_off_breaks_off_for_the_client_too(proxy: RunningProxy) -> None:
    proxy.provider.broken_stream = True
    with pytest.raises(httpx2.RemoteProtocolError):
        proxy.send(request_of(session(1)))


def test_an_upstream_that_is_down_is_an_error_that_clients_try_again(tmp_path: Path) -> None:
    with running_proxy("http://127.0.0.1:9", tmp_path / "stash.db", Clock()) as proxy:
        response = proxy.send(request_of(session(1)))
    assert response.status_code == 502
    assert response.json()["error"]["type"] == "api_error"


@pytest.mark.parametrize("url", ["http://api.anthropic.com", "ftp://x", "https://user:pw@host", "api.anthropic.com"])
def test_an_upstream_to_which_credentials_must_not_go_is_refused(url: str) -> None:
    with pytest.raises(BadInputError):
        check_upstream(url)


def test_a_page_of_another_site_is_refused(proxy: RunningProxy) -> None:
    assert proxy.send(request_of(session(1)), {"origin": "https://evil.example"}).status_code == 403
    assert proxy.send(request_of(session(1)), {"host": "rebound.example"}).status_code == 421
    assert proxy.provider.asked == []


def test_only_the_client_that_knows_the_path_is_served_and_the_provider_does_not_see_it(tmp_path: Path) -> None:
    body = json.dumps(request_of(session(1))).encode()
    database = tmp_path / "stash.db"
    with caching_provider() as provider, running_proxy(provider, database, Clock(), secret="s3cret_-x") as proxy:
        for path in ("", "/wrong", "/s3cret_-x1", "/s3cret_-"):
            other = f"{proxy.url.removesuffix('/s3cret_-x')}{path}/v1/messages"
            assert proxy.http.post(other, content=body).status_code == 403
        assert provider.asked == []
        response = proxy.http.post(f"{proxy.url}/v1/messages?beta=true", content=body)
        assert (response.status_code, "x-contextstash-session" in response.headers) == (200, True)
        assert proxy.http.get(proxy.url).status_code == 200
        assert [asked.target for asked in provider.asked] == ["/v1/messages?beta=true", "/"]


@pytest.mark.parametrize("target", ["/v1/messages", "/v1/other"])
def test_a_request_that_its_client_gives_up_ends_at_the_provider_too(target: str, tmp_path: Path) -> None:
    asked, ended = threading.Event(), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while connection.recv(1 << 16):
                asked.set()
        ended.set()

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with running_proxy(url, tmp_path / "stash.db", Clock()) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        body = json.dumps(request_of(session(1))).encode()
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            fields = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
            connection.sendall(fields % (target.encode(), len(body)) + body)
            assert asked.wait(30)
        assert ended.wait(30)
    listener.close()


def post(proxy: RunningProxy, body: dict[str, Any]) -> httpx2.Response:
    """Send a compressed request, and wait until it is recorded."""
    content = zstandard().compress(json.dumps(body).encode())
    headers = {"content-encoding": "zstd", "accept-encoding": "br", **header_of(body)}
    response = proxy.http.post(f"{proxy.url}/v1/messages?beta=true", content=content, headers=headers)
    proxy.settle()
    return response


def test_usage_is_read_of_replies_to_clients_that_accept_compressed_ones(proxy: RunningProxy) -> None:
    proxy.send(request_of(session(2), stream=False), {"accept-encoding": "br, zstd, gzip"})
    assert proxy.provider.asked[-1].headers["accept-encoding"] == "identity"
    assert proxy.state(ID).sent > 1_000


def test_a_compressed_request_is_read_and_pruned(proxy: RunningProxy) -> None:
    proxy.provider.raw_answer = 200, "text/event-stream", b""
    messages = session(8)
    for count in range(1, len(messages) + 1, 2):
        proxy.clock.now += 400 if count == len(messages) else 10
        assert post(proxy, request_of(messages[:count])).status_code == 200
    first, last = proxy.provider.asked[0], proxy.provider.asked[-1]
    assert last.headers["content-encoding"] == "zstd"
    assert first.data == zstandard().compress(json.dumps(request_of(messages[:1])).encode())
    assert placeholders(json.loads(zstandard().decompress(last.data))) == OLD


@pytest.mark.parametrize("encoding", ["zstd", "gzip", "gzip, zstd", None])
@pytest.mark.parametrize("damaged", [b"", b"\x28\xb5\x2f\xfd", b"{", b'{"messages": 1}', b'{"messages": []}', b"\xff"])
def test_a_request_that_cannot_be_read_is_passed_on_as_it_is(
    proxy: RunningProxy, damaged: bytes, encoding: str | None
) -> None:
    proxy.provider.raw_answer = 400, "application/json", b"{}"
    headers = {} if encoding is None else {"content-encoding": encoding}
    assert proxy.http.post(f"{proxy.url}/v1/messages", content=damaged, headers=headers).status_code == 400
    asked = proxy.provider.asked[-1]
    assert (asked.data, asked.headers.get("content-encoding")) == (damaged, encoding)
    assert proxy.engine._options.unread == {None: 1}


def test_a_locked_database_lets_requests_through_unedited(proxy: RunningProxy, tmp_path: Path) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    holder = sqlite3.connect(tmp_path / "stash.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    proxy.clock.now += 400
    assert proxy.send(request_of(messages)).status_code == 200
    assert proxy.provider.asked[-1].data == json.dumps(request_of(messages)).encode()
    holder.execute("ROLLBACK")
    holder.close()
    proxy.clock.now += 400
    proxy.send(request_of(messages))
    assert placeholders(proxy.provider.bodies[-1]) == OLD


def test_a_database_that_cannot_be_opened_stops_no_request(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / "stash.db").write_bytes(b"no database at all, but some bytes" * 100)
    with running_proxy(provider, tmp_path / "stash.db", clock) as proxy:
        assert proxy.send(request_of(session(2))).status_code == 200
    assert provider.asked[-1].data == json.dumps(request_of(session(2))).encode()


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


def test_chat_completions_are_pruned_when_their_cache_is_cold(proxy: RunningProxy) -> None:
    """The provider replies to this route with something else; only what reaches it counts here."""
    for turns in (7, 8):
        content = json.dumps(chat_request(turns)).encode()
        proxy.http.post(f"{proxy.url}/v1/chat/completions", content=content, headers={"session-id": "s"})
        proxy.settle()
        proxy.clock.now += 4_000
    sent = proxy.provider.asked[-1].body["messages"]
    assert "get_archived_output" in sent[2]["content"]
    assert "get_archived_output" not in json.dumps(sent[-1])


def chat_request(turns: int) -> dict[str, Any]:
    """A request with so many tool calls and their outputs."""
    tool = {"name": "contextstash__get_archived_output", "parameters": {"type": "object"}}
    listed: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for number in range(turns):
        text = "".join(f"line {number}-{k}\n" for k in range(900))
        listed += called(number, "read", {"path": f"/a/{number}"}, text)
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


MAX_SECONDS = 10.0
"""The proxy ends two seconds after the signal; the rest is for a machine on which other tests run. The reply stays
paused for longer."""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_signal_ends_it_with_a_reply_and_a_body_in_midstream(tmp_path: Path) -> None:
    body = json.dumps(request_of(session(3))).encode()
    with ExitStack() as open_now, caching_provider() as provider:
        provider.pause_at = 2
        command = [sys.executable, "-m", "contextstash", "proxy", "--listen", "127.0.0.1:0"]
        command += ["--upstream", provider.url, "--db", str(tmp_path / "stash.db")]
        process = open_now.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        assert process.stderr is not None
        url = process.stderr.readline().split()[2]
        client = open_now.enter_context(httpx2.Client(timeout=60))
        assert client.post(f"{url}/v1/messages", content=body).status_code == 200
        response = open_now.enter_context(client.stream("POST", f"{url}/v1/messages", content=body))
        next(response.iter_raw())
        host, port = url.removeprefix("http://").split(":")
        unfinished = open_now.enter_context(socket.create_connection((host, int(port))))
        unfinished.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
        process.send_signal(signal.SIGTERM)
        process.wait(MAX_SECONDS)
        provider.resumed.set()
    assert process.returncode == 0


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
    store: Any = proxy.engine._stash.store
    work = store.database.writer.run(lambda db: db.execute(statement).fetchall())
    asyncio.run_coroutine_threadsafe(work, proxy.loop).result(30)
