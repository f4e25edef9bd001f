"""The end of the proxy: after a signal it waits for nobody."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.support.proxies import caching_provider, request_of, session

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
