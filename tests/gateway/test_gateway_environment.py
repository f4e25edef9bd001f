"""The environment of a server behind the gateway: the safe variables and those of its entry, never one of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from contextstash.gateway import read_servers
from contextstash_storage.errors import BadInputError
from tests.support.gateways import RAW, gateway, raw_server, text_of, written

pytestmark = pytest.mark.processes

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-happens-to-be-there",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "CONTEXTSTASH_ANTHROPIC_API_KEY": "sk-ours",
    "SERVICE_TOKEN": "for one server",
}


async def environment(tmp_path: Path, entry: dict[str, Any]) -> dict[str, str]:
    async with gateway(tmp_path, {"raw": entry}, environment=SECRETS) as client:
        found: dict[str, str] = json.loads(text_of(await client.call_tool("environment")))
        return found


async def test_a_server_gets_the_safe_variables_and_those_of_its_entry(tmp_path: Path) -> None:
    entry = {**raw_server(), "env": {"TOKEN": "${SERVICE_TOKEN}", "MODE": "quick"}}
    found = await environment(tmp_path, entry)
    assert found["TOKEN"] == "for one server"
    assert found["MODE"] == "quick"
    assert found["HOME"] == str(tmp_path)
    set_by_python = {"LC_CTYPE"}
    assert set(found) - set_by_python <= {*DEFAULT_INHERITED_ENV_VARS, "TOKEN", "MODE"}


async def test_a_shell_as_server_finds_no_api_key_either(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    raw = raw_server()
    script = f'env > "{seen}"; exec "{raw["command"]}" "{RAW}"'
    async with gateway(tmp_path, {"raw": {"command": "sh", "args": ["-c", script]}}, environment=SECRETS) as client:
        await client.call_tool("environment")
    assert "PATH=" in seen.read_text()
    assert not [name for name in SECRETS if name in seen.read_text()]
    assert not [value for value in SECRETS.values() if value in seen.read_text()]


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"KEY": "${CONTEXTSTASH_ANTHROPIC_API_KEY}"}},
        {"command": "x", "args": ["--key=${env:CONTEXTSTASH_ANTHROPIC_API_KEY:-none}"]},
        {"url": "https://example.com/${contextstash_db}"},
        {"url": "https://example.com", "headers": {"X": "${CONTEXTSTASH_DB}"}},
    ],
)
def test_an_entry_that_refers_to_one_of_our_own_variables_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: dict[str, Any]
) -> None:
    with pytest.raises(BadInputError, match="no server that can be used"):
        read_servers(written(tmp_path, {"raw": entry}), SECRETS)
    assert "a variable of contextstash itself, which no server gets" in caplog.text


def test_check_lists_the_names_of_each_servers_variables_and_no_values(tmp_path: Path) -> None:
    entry = {**raw_server(), "env": {"TOKEN": "${SERVICE_TOKEN}"}}
    path = written(tmp_path, {"raw": entry, "away": {"url": "http://127.0.0.1:9/${SERVICE_TOKEN}"}})
    done = subprocess.run(
        [sys.executable, "-m", "contextstash", "gateway", "--config", str(path), "--check", "--db", tmp_path / "s.db"],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        env={"HOME": str(tmp_path), "PATH": "/bin", **SECRETS},
    )  # fmt: skip
    assert "raw gets these variables: HOME, PATH, SERVICE_TOKEN, TOKEN" in done.stdout
    assert "away gets these variables: SERVICE_TOKEN" in done.stdout
    assert not [value for value in SECRETS.values() if value in done.stdout + done.stderr]
