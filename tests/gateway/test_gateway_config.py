"""The gateway's configuration: the files of clients are read without changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.gateway.config import GatewayConfig, HttpServer, StdioServer, read_config
from contextstash_storage.errors import BadInputError


def read(folder: Path, document: Any, **environment: str) -> GatewayConfig:
    path = folder / "servers.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_config(path, environment)


def test_the_file_of_a_client_is_read_without_changes(tmp_path: Path) -> None:
    servers = {
        "git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {"A": "b"}},
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "gemini": {"httpUrl": "https://example.com/mcp"},
        "off": {"command": "x", "disabled": True},
    }
    found = read(tmp_path, {"mcpServers": servers}, TOKEN="secret")
    git, web, gemini = found.entries
    assert git.server == StdioServer("uvx", ("mcp-server-git",), {"A": "b"})
    assert web.server == HttpServer("https://example.com/mcp", {"Authorization": "Bearer secret"})
    assert gemini.server == HttpServer("https://example.com/mcp")
    assert found.problems == {}


def test_the_key_of_vs_code_is_recognized(tmp_path: Path) -> None:
    found = read(tmp_path, {"servers": {"git": {"command": "uvx"}}})
    assert [entry.name for entry in found.entries] == ["git"]


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
def test_variables_are_replaced(tmp_path: Path, written: str, environment: dict[str, str], read_as: str) -> None:
    found = read(tmp_path, {"mcpServers": {"one": {"command": "x", "args": [written]}}}, **environment)
    [entry] = found.entries
    assert isinstance(entry.server, StdioServer)
    assert entry.server.args == (read_as,)
    assert bool(found.remarks) == (written == "${NOT_SET}")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ([], "it must be an object with a command or a url"),
        ({}, "it has neither a command nor a url"),
        ({"command": " "}, "its command is empty"),
        ({"command": "x", "args": "y"}, "args must be a list of strings"),
        ({"command": "x", "env": {"A": 1}}, "env.A must be a string"),
        ({"type": "sse", "url": "https://example.com"}, "the type 'sse' is not supported"),
        ({"url": "ftp://example.com"}, "its url does not begin with http:// or https://"),
        ({"command": "x", "args": ["${input:key}"]}, "args[0] refers to the editor's input 'key'"),
        ({"command": "x", "contextstash": {"limit": {}}}, "There is no contextstash.limit. Did you mean 'limits'?"),
        (
            {"command": "x", "contextstash": {"limits": {"token": 5}}},
            "There is no limit 'token'. Did you mean 'tokens'?",
        ),
        ({"command": "x", "contextstash": {"tools": {"deni": []}}}, "There is no contextstash.tools.deni."),
    ],
)
def test_an_invalid_entry_is_reported_and_the_others_are_used(tmp_path: Path, entry: Any, problem: str) -> None:
    found = read(tmp_path, {"mcpServers": {"wrong": entry, "right": {"command": "x"}}})
    assert [each.name for each in found.entries] == ["right"]
    assert problem in found.problems["wrong"]


@pytest.mark.parametrize("document", ["{", "[]", '{"mcpServers": {}}', '{"mcpServers": 5}'])
def test_a_file_without_a_table_of_servers_is_refused(tmp_path: Path, document: str) -> None:
    with pytest.raises(BadInputError):
        read(tmp_path, document)


def test_no_repr_contains_a_secret(tmp_path: Path) -> None:
    entry = {"command": "x", "args": ["--key=secret"], "env": {"KEY": "secret"}}
    web = {"url": "https://example.com/secret", "headers": {"Authorization": "secret"}}
    assert "secret" not in repr(read(tmp_path, {"mcpServers": {"one": entry, "two": web}}))
