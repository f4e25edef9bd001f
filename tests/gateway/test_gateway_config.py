"""The gateway's configuration: the files of clients are read without changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.gateway import ServerEntry, read_servers
from contextstash_storage.errors import BadInputError


def read(folder: Path, document: Any, **environment: str) -> list[ServerEntry]:
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
    git, web, gemini = read(tmp_path, {"mcpServers": servers}, TOKEN="secret")
    assert (git.command, git.args, git.env) == ("uvx", ["mcp-server-git"], {"A": "b"})
    assert (web.url, web.headers) == ("https://example.com/mcp", {"Authorization": "Bearer secret"})
    assert gemini.url == "https://example.com/mcp"


def test_the_key_of_vs_code_is_recognized(tmp_path: Path) -> None:
    [entry] = read(tmp_path, {"servers": {"git": {"command": "uvx"}}})
    assert entry.name == "git"


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
    [entry] = read(tmp_path, {"mcpServers": {"one": {"command": "x", "args": [written]}}}, **environment)
    assert entry.args == [read_as]
    assert ("NOT_SET is not set" in caplog.text) == (written == "${NOT_SET}")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ([], "it must be an object with a command or a url"),
        ({}, "it has neither a command nor a url"),
        ({"command": ""}, "command: String should have at least 1 character"),
        ({"command": "x", "args": "y"}, "args: Input should be a valid list"),
        ({"command": "x", "env": {"A": 1}}, "env.A: Input should be a valid string"),
        ({"type": "sse", "url": "https://example.com"}, "the type 'sse' is not supported"),
        ({"url": "ftp://example.com"}, "url: String should match pattern"),
    ],
)
def test_an_invalid_entry_is_reported_and_the_others_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: Any, problem: str
) -> None:
    [used] = read(tmp_path, {"mcpServers": {"wrong": entry, "right": {"command": "x"}}})
    assert used.name == "right"
    assert f"server 'wrong' is skipped: {problem}" in caplog.text


@pytest.mark.parametrize("document", ["{", "[]", '{"mcpServers": {}}', '{"mcpServers": 5}'])
def test_a_file_without_a_table_of_servers_is_refused(tmp_path: Path, document: str) -> None:
    with pytest.raises(BadInputError):
        read(tmp_path, document)


def test_no_repr_contains_a_secret(tmp_path: Path) -> None:
    entry = {"command": "x", "args": ["--key=secret"], "env": {"KEY": "secret"}}
    web = {"url": "https://example.com/secret", "headers": {"Authorization": "secret"}}
    assert "secret" not in repr(read(tmp_path, {"mcpServers": {"one": entry, "two": web}}))
