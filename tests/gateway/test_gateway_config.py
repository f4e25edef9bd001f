"""The gateway's servers: the files of clients are read without changes, and each gets the environment of its entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from contextstash.gateway import read_servers
from contextstash_storage.errors import BadInputError
from tests.support.gateways import gateway, server, text_of


def read(folder: Path, document: Any, **environment: str) -> dict[str, Any]:
    path = folder / "servers.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_servers(path, environment)


def test_the_file_of_a_client_is_read_without_changes(tmp_path: Path) -> None:
    servers = {
        "git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {"A": "b"}},
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "gemini": {"httpUrl": "https://example.com/mcp"},
        "off": {"command": "x", "disabled": True},
    }
    git, web, gemini = read(tmp_path, {"mcpServers": servers}, TOKEN="secret").values()
    assert (git.command, git.args, git.env) == ("uvx", ["mcp-server-git"], {"A": "b"})
    assert (web.url, web.headers) == ("https://example.com/mcp", {"Authorization": "Bearer secret"})
    assert gemini.url == "https://example.com/mcp"


@pytest.mark.parametrize(
    ("written", "environment", "read_as"),
    [
        ("${HOME}/x", {"HOME": "/h"}, "/h/x"),
        ("${env:HOME}/x", {"HOME": "/h"}, "/h/x"),
        ("${HOME:-/default}", {}, "/default"),
        ("${HOME:-/default}", {"HOME": "/h"}, "/h"),
        ("${NOT_SET}", {}, "${NOT_SET}"),
    ],
)
def test_variables_are_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, written: str, environment: dict[str, str], read_as: str
) -> None:
    [entry] = read(tmp_path, {"mcpServers": {"one": {"command": "x", "args": [written]}}}, **environment).values()
    assert entry.args == [read_as]
    assert ("NOT_SET is not set" in caplog.text) == (written == "${NOT_SET}")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "it needs a command, or the url of a server"),
        ({"command": ""}, "it needs a command, or the url of a server"),
        ({"command": "x", "args": "y"}, "args: Input should be a valid list"),
        ({"command": "x", "env": {"A": 1}}, "env.A: Input should be a valid string"),
        ({"type": "sse", "url": "https://example.com"}, "it needs a command, or the url of a server"),
        ({"url": "ftp://example.com"}, "url: String should match pattern"),
    ],
)
def test_an_invalid_entry_is_reported_and_the_others_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: Any, problem: str
) -> None:
    assert list(read(tmp_path, {"mcpServers": {"wrong": entry, "right": {"command": "x"}}})) == ["right"]
    assert f"server 'wrong' is skipped: {problem}" in caplog.text


@pytest.mark.parametrize("document", ["{", "[]", '{"mcpServers": {}}', '{"mcpServers": 5}'])
def test_a_file_without_a_table_of_servers_is_refused(tmp_path: Path, document: str) -> None:
    with pytest.raises(BadInputError):
        read(tmp_path, document)


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


@pytest.mark.processes
async def test_a_server_gets_the_safe_variables_and_those_of_its_entry(tmp_path: Path) -> None:
    entry = {**server("naming"), "env": {"TOKEN": "${SERVICE_TOKEN}", "MODE": "quick"}}
    found = await environment(tmp_path, entry)
    assert found["TOKEN"] == "for one server"
    assert found["MODE"] == "quick"
    assert found["HOME"] == str(tmp_path)
    set_by_python = {"LC_CTYPE"}
    assert set(found) - set_by_python <= {*DEFAULT_INHERITED_ENV_VARS, "TOKEN", "MODE"}
