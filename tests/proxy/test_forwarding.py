"""What goes through the proxy is what was sent, in both directions."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import httpx2
import pytest

from contextstash.proxy.app import check_upstream
from contextstash_storage.errors import BadInputError
from tests.support.proxies import Clock, RunningProxy, caching_provider, request_of, running_proxy, session


def test_a_request_with_nothing_to_edit_arrives_byte_for_byte(proxy: RunningProxy) -> None:
    odd = '"max_tokens": 1e3, "unknown": [1.0,\t-0]'
    text = json.dumps(request_of(session(2)), indent=1).replace('"max_tokens": 1000', odd)
    response = proxy.send(text.encode(), {"x-api-key": "secret", "anthropic-beta": "a,b"})
    assert response.status_code == 200
    assert proxy.provider.asked[-1].body == text.encode()
    assert proxy.provider.asked[-1].target == "/v1/messages?beta=true"
    sent = {name.lower(): value for name, value in proxy.provider.asked[-1].headers}
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
    assert (asked.method, asked.target, asked.body) == (method, target, body or b"")


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
    assert "cookie" not in {name.lower() for name, _ in proxy.provider.asked[-1].headers}


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


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 1}', b'{"messages": []}', b"\xff\xfe"])
def test_a_body_that_is_no_request_is_passed_on(proxy: RunningProxy, body: bytes) -> None:
    proxy.http.post(f"{proxy.url}/v1/messages/../v1/chat/completions", content=body)
    assert proxy.provider.asked[-1].body == body


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
