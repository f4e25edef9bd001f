"""Compressed bodies, in both directions."""

from __future__ import annotations

import json
import zlib
from typing import Any

import httpx2
import pytest

from contextstash.proxy.app import zstandard
from tests.support.proxies import (
    ID,
    OLD,
    Refusal,
    RunningProxy,
    header_of,
    placeholders,
    play,
    request_of,
    session,
    turn,
)


def post(proxy: RunningProxy, body: dict[str, Any]) -> httpx2.Response:
    """Send a compressed request, and wait until it is recorded."""
    content = zstandard().compress(json.dumps(body).encode())
    headers = {"content-encoding": "zstd", "accept-encoding": "br", **header_of(body)}
    response = proxy.http.post(f"{proxy.url}/v1/messages?beta=true", content=content, headers=headers)
    proxy.settle()
    return response


def test_usage_is_read_of_replies_to_clients_that_accept_compressed_ones(proxy: RunningProxy) -> None:
    proxy.send(request_of(session(2), stream=False), {"accept-encoding": "br, zstd, gzip"})
    assert dict(proxy.provider.asked[-1].headers)["accept-encoding"] == "identity"
    assert proxy.state(ID).sent > 1_000


def test_a_refusal_that_cannot_be_read_is_no_verdict(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    proxy.clock.now += 400
    proxy.provider.refusals.append(Refusal(400, "unreadable", lambda body: bool(placeholders(body))))
    proxy.provider.encoder = lambda _: ("br", lambda data: b"\x0b" + data)
    assert proxy.send(request_of(messages)).status_code == 200
    assert placeholders(proxy.provider.bodies[-1]) == []
    proxy.provider.encoder = None
    proxy.clock.now += 400
    proxy.send(request_of(messages + turn(9, "x")))
    assert placeholders(proxy.provider.bodies[-1])
    assert proxy.state(ID).left_alone is None


def test_a_compressed_request_is_read_and_pruned(proxy: RunningProxy) -> None:
    proxy.provider.raw_answer = 200, "text/event-stream", b""
    messages = session(8)
    for count in range(1, len(messages) + 1, 2):
        proxy.clock.now += 400 if count == len(messages) else 10
        assert post(proxy, request_of(messages[:count])).status_code == 200
    first, last = proxy.provider.asked[0], proxy.provider.asked[-1]
    assert dict(last.headers)["content-encoding"] == "zstd"
    assert first.body == zstandard().compress(json.dumps(request_of(messages[:1])).encode())
    assert placeholders(json.loads(zstandard().decompress(last.body))) == OLD


@pytest.mark.parametrize("damaged", [b"", b"\x28\xb5\x2f\xfd", b"{}", zlib.compress(b"x" * (50 << 20))])
@pytest.mark.parametrize("encoding", ["zstd", "gzip", "deflate", "br", "gzip, zstd"])
def test_a_request_that_cannot_be_decoded_is_passed_on_as_it_is(
    proxy: RunningProxy, damaged: bytes, encoding: str
) -> None:
    proxy.provider.raw_answer = 400, "application/json", b"{}"
    headers = {"content-encoding": encoding}
    assert proxy.http.post(f"{proxy.url}/v1/messages", content=damaged, headers=headers).status_code == 400
    assert (proxy.provider.asked[-1].body, dict(proxy.provider.asked[-1].headers)["content-encoding"]) == (
        damaged,
        encoding,
    )
    assert proxy.engine.faults == 1
