"""The official conformance suite on our own server, both generations of the protocol.

Runs if the suite (npm `@modelcontextprotocol/conformance`, named by MCP_CONFORMANCE or on the PATH) is there, with a
Node of version 22 or newer. Nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

SUITE = os.environ.get("MCP_CONFORMANCE") or shutil.which("conformance")
ROOT = Path(__file__).parents[2]

NOT_OFFERED = "tasks-"
"""Begins the names of the scenarios of the Tasks extension, which contextstash does not have. The suite does not score
them."""

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(SUITE is None, reason="the conformance suite is not installed"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    server = subprocess.Popen([sys.executable, "-m", "tests.conformance.server", str(port)], cwd=ROOT)
    try:
        for _ in range(300):
            try:
                httpx2.get(url, timeout=2)
                break
            except httpx2.HTTPError:
                assert server.poll() is None
                time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_each_scenario_passes_or_is_named_with_its_reason(address: str, revision: str) -> None:
    assert SUITE is not None
    command = [SUITE, "server", "--url", address, "--requirements", revision]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    summary = done.stdout.partition("=== SUMMARY ===")[2].partition("Total:")[0]
    results = dict(re.findall(r"^. ([\w-]+): (\d+ passed, \d+ failed)", summary, re.MULTILINE))
    assert len(results) >= 33, done.stdout[-2_000:] + done.stderr[-2_000:]
    failed = {name for name, result in results.items() if not result.endswith(" 0 failed")}
    assert not {name for name in failed if not name.startswith(NOT_OFFERED)}
