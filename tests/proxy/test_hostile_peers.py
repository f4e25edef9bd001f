"""Neither a web page nor a broken model API can misuse the proxy, fill its memory, or hold up its other requests."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from contextstash.clients.request_identity import MAX_ID, ClientSession, announces, client_session, is_compaction
from contextstash.messages.request import MAX_MESSAGES
from contextstash.proxy.app import passed_on
from contextstash.proxy.replies import ReplyBody
from tests.support.caching_provider import caching_provider
from tests.support.proxies import Clock, RunningProxy, request_of, running_proxy, session

MEBIBYTE = 1 << 20
BOMB = gzip.compress(b"a" * (64 * MEBIBYTE), 9)


@contextmanager
def raw_provider(*pieces: bytes) -> Iterator[str]:
    """A model API that sends these bytes to whoever connects, and closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(1 << 16)
                    for piece in pieces:
                        connection.sendall(piece)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def head(status: int, *fields: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", "connection: close", *fields, "", ""]).encode()


FOREIGN: list[list[tuple[str, str]]] = [
    *([("origin", origin)] for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example", "http://[")),
    *([("host", host)] for host in ("rebound.example", "127.0.0.1.evil.example")),
    *([("sec-fetch-site", site)] for site in ("cross-site", "same-site")),
    [("origin", "http://localhost"), ("origin", "https://evil.example")],
]


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE", "OPTIONS"])
def test_another_host_or_page_is_refused_with_every_method(method: str, tmp_path: Path) -> None:
    with caching_provider() as provider, running_proxy(provider, tmp_path / "stash.db", Clock()) as proxy:
        for headers in FOREIGN:
            response = proxy.http.request(method, f"{proxy.url}/v1/messages", headers=headers)
            assert response.status_code == 403
            assert method == "HEAD" or "web pages of other hosts" in response.json()["error"]["message"]
        assert provider.asked == []


def test_programs_and_pages_of_this_machine_may_name_their_origin(tmp_path: Path) -> None:
    own = [("origin", origin) for origin in ("http://localhost:3000", "http://127.0.0.1", "vscode-file://vscode-app")]
    with caching_provider() as provider, running_proxy(provider, tmp_path / "stash.db", Clock()) as proxy:
        for header in (*own, ("sec-fetch-site", "none"), ("sec-fetch-mode", "cors")):
            assert proxy.send(request_of(session(1)), dict([header])).status_code == 200


def test_the_proxy_is_not_one_for_any_address(tmp_path: Path) -> None:
    with caching_provider() as provider, running_proxy(provider, tmp_path / "stash.db", Clock()) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
        assert provider.asked == []


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


def test_a_refusal_without_a_length_and_without_an_end_is_passed_on_as_it_comes(tmp_path: Path) -> None:
    chunk = b"x" * MEBIBYTE
    refusal = head(400, "content-type: application/json")
    with raw_provider(refusal, *[chunk] * 5) as url, running_proxy(url, tmp_path / "stash.db", Clock()) as proxy:
        content = json.dumps(request_of(session(1))).encode()
        with proxy.http.stream("POST", f"{proxy.url}/v1/messages", content=content) as response:
            assert response.status_code == 400
            assert sum(len(part) for part in response.iter_raw()) == 5 * MEBIBYTE


def test_a_compressed_refusal_of_gigabytes_is_passed_on_and_not_decoded(tmp_path: Path) -> None:
    refusal = head(400, "content-type: application/json", "content-encoding: gzip", f"content-length: {len(BOMB)}")
    with raw_provider(refusal, BOMB) as url, running_proxy(url, tmp_path / "stash.db", Clock()) as proxy:
        content = json.dumps(request_of(session(1))).encode()
        with proxy.http.stream("POST", f"{proxy.url}/v1/messages", content=content) as response:
            assert response.status_code == 400
            assert b"".join(response.iter_raw()) == BOMB


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_refusal_in_a_stream_is_found_in_chunks_of_any_size(size: int) -> None:
    refusal = json.dumps({"type": "error", "error": {"code": "context_length_exceeded"}}).encode()
    body = b'event: a\n\ndata: {"type": "response.created"}\n\ndata: ' + refusal + b"\n\ndata: later\n\n"

    async def stream() -> AsyncIterator[bytes]:
        for place in range(0, len(body), size):
            yield body[place : place + size]

    reply = ReplyBody("text/event-stream")
    held = asyncio.run(reply.start(stream()))
    assert reply.refusal == refusal
    assert body.startswith(b"".join(held))


def test_a_reply_of_very_many_levels_is_read_without_an_error() -> None:
    deep = b'{"usage": {"input_tokens": 5}, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert ReplyBody("application/json", data=bytearray(deep)).usage is None


def test_the_prompt_of_a_compaction_is_found_in_any_case_and_place() -> None:
    long = "word " * 10_000
    assert is_compaction(
        {"role": "user", "content": f"{long}YOUR TASK is to create a detailed summary of the conversation"}
    )
    assert is_compaction({"role": "user", "content": [{"type": "text", "text": f"Create a Handoff Summary {long}"}]})
    assert not is_compaction({"role": "user", "content": [{"type": "text", "text": long}, {"type": "image"}, None]})
    assert not is_compaction({"role": "user", "content": None})
    connecting = {"role": "user", "content": "MCP servers are still connecting: github, contextstash"}
    assert announces(connecting, "get_archived_output")
    assert not announces({"role": "user", "content": "MCP servers are still connecting: github"}, "get_archived_output")


def test_names_of_conversations_that_differ_only_in_what_an_id_may_not_hold_stay_apart() -> None:
    names = ["a" * 10_000, "a" * 10_001, "../x", "_._x", "outputs", "a.outputs", "\x00", "\x01", "été"]
    ids = [
        found.session_id
        for name in names
        if (found := client_session([(b"session-id", name.encode("latin-1"))])) is not None
    ]
    assert len(set(ids)) == len(names)
    assert all(len(each) <= MAX_ID and not each.endswith("outputs") and "/" not in each for each in ids)
    assert client_session([(b"session-id", b"0a1b-2.c:d_e")]) == ClientSession("0a1b-2.c:d_e")


def test_a_length_that_a_transfer_encoding_overrides_is_not_passed_on(tmp_path: Path) -> None:
    chunked = [b"2\r\n{}\r\n", b"0\r\n\r\n"]
    reply = head(200, "content-type: application/json", "content-length: 1", "transfer-encoding: chunked")
    with (
        raw_provider(reply, *chunked) as upstream,
        running_proxy(upstream, tmp_path / "stash.db", Clock()) as proxy,
    ):
        assert proxy.http.get(f"{proxy.url}/v1/models").content == b"{}"


def test_headers_about_the_connection_are_not_passed_on() -> None:
    named = [(b"Content-Length", b"3"), (b"Transfer-Encoding", b"chunked"), (b"x-kept", b"1")]
    assert passed_on(named) == [(b"x-kept", b"1")]


def test_a_request_that_offers_another_protocol_keeps_its_body(tmp_path: Path) -> None:
    """As Java's HttpClient does with each first request."""
    body = json.dumps(request_of(session(1))).encode()
    fields = b"upgrade: h2c\r\nconnection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAMAAABk\r\n"
    fields += b"content-length: %d\r\n" % len(body)
    with caching_provider() as provider, running_proxy(provider, tmp_path / "stash.db", Clock()) as proxy:
        assert b" 200 " in _exchanged(proxy, b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n" + fields, body)
        [asked] = provider.asked
    assert asked.body == body


def _exchanged(proxy: RunningProxy, fields: bytes, body: bytes) -> bytes:
    """The status line of the response to a request as it is written here."""
    host, port = proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(fields + b"\r\n" + body)
        return connection.makefile("rb").readline()


def test_a_request_of_very_many_messages_is_passed_on_unread(tmp_path: Path) -> None:
    many = b",".join(b'{"role":"user","content":"x"}' for _ in range(MAX_MESSAGES + 1))
    with caching_provider() as provider, running_proxy(provider, tmp_path / "stash.db", Clock()) as proxy:
        body = b'{"model":"m","messages":[%s],"tools":[{"name":"Read"}]}' % many
        response = proxy.http.post(f"{proxy.url}/v1/messages", content=body)
        assert (response.status_code, provider.asked[-1].body) == (200, body)
        assert "x-contextstash-session" not in response.headers


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
