"""HTTP/2 to the model API: bodies arrive whole, replies pass as they come."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

pytest.importorskip("h2")
pytest.importorskip("cryptography")

from tests.support.http2_provider import EVENTS, http2_provider
from tests.support.proxies import Clock, request_of, running_proxy, session


def test_a_reply_over_http2_is_not_buffered_and_a_large_body_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps(request_of(session(20, 30_000))).encode()
    with http2_provider(tmp_path) as provider:
        monkeypatch.setenv("SSL_CERT_FILE", str(provider.certificate))
        with (
            running_proxy(provider.url, tmp_path / "stash.db", Clock(), http2=True) as proxy,
            httpx2.Client(timeout=30) as client,
            client.stream("POST", f"{proxy.url}/v1/messages?beta=true", content=body) as response,
        ):
            chunks = response.iter_raw()
            first = next(chunks)
            assert not provider.resumed.is_set()
            provider.resumed.set()
            assert (response.status_code, first + b"".join(chunks)) == (200, b"".join(EVENTS))
            assert first == EVENTS[0]
    assert list(provider.bodies.values()) == [body]
