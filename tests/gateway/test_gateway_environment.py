"""The environment of a server behind the gateway: the safe variables and those of its entry, never one of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from contextstash.gateway import read_servers
from contextstash_storage.errors import BadInputError
from tests.support.gateways import gateway, raw_server, text_of, written

pytestmark = pytest.mark.processes

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-happens-to-be-there",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "CONTEXTSTASH_ANTHROPIC_API_KEY": "sk-ours",
    "SERVICE_TOKEN": "for one server",
}


async def environment(tmp_path: Path, entry: dict[str, Any]) -> dict[str, str]:
    async with gateway(tmp_path, {"raw": entry}, environment=SECRETS) as client:
        found: dict[str, str] = json.loads(text_of(await client.call_tool("raw__environment")))
        return found


async def test_a_server_gets_the_safe_variables_and_those_of_its_entry(tmp_path: Path) -> None:
    entry = {**raw_server(), "env": {"TOKEN": "${SERVICE_TOKEN}", "MODE": "quick"}}
    found = await environment(tmp_path, entry)
    assert found["TOKEN"] == "for one server"
    assert found["MODE"] == "quick"
    assert found["HOME"] == str(tmp_path)
    set_by_python = {"LC_CTYPE"}
    assert set(found) - set_by_python <= {*DEFAULT_INHERITED_ENV_VARS, "TOKEN", "MODE"}


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
