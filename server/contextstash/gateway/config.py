"""The gateway's configuration: an MCP server file in the format that clients use.

`mcpServers` (Claude, Cursor, Gemini and others) or `servers` (VS Code), each entry with `command`, `args`, `env` and
`cwd`, or with `url` and `headers`. The key `contextstash` of an entry contains our own rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextstash.gateway.tool_rules import ServerRules, read_rules
from contextstash_storage.errors import BadInputError

SERVER_KEYS = ("mcpServers", "servers")

STDIO_TYPES = ("stdio", "local")
HTTP_TYPES = ("http", "streamable-http", "streamableHttp", "streamable_http", "remote")

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${VAR}` and `${VAR:-default}` as in Claude Code, `${env:VAR}` as in Cursor and VS Code."""

OWN_PREFIX = "CONTEXTSTASH_"
"""The prefix of our own environment variables. No server gets one of them, even if its entry refers to it."""

MAX_CONFIG_BYTES = 1024 * 1024
"""Bytes of the file; a larger one is refused. That of a hundred servers is much smaller."""

_INPUT_VARIABLE = re.compile(r"\$\{input:([^}]*)\}")


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that the gateway starts. `env` is added to the few variables that the SDK considers safe."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that is reached over streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server of the file."""

    name: str
    server: StdioServer | HttpServer
    rules: ServerRules = field(default_factory=ServerRules)
    references: tuple[str, ...] = ()
    """The names of the gateway's environment variables that the entry refers to: the reference permits passing them
    on."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The usable servers, in the file's order. `problems` maps each unusable entry to the reason; `remarks` lists what
    was ignored or not expanded in usable ones."""

    entries: tuple[ServerEntry, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def read_config(path: Path, environment: Mapping[str, str]) -> GatewayConfig:
    """The servers in a file. Raises BadInputError if the file cannot be read or has no servers. An invalid entry is
    listed in `problems`, and the other entries are still used."""
    table = _table(path)
    entries, problems, remarks = [], {}, []
    for name, value in table.items():
        if isinstance(value, dict) and value.get("disabled") is True:
            continue
        expansion = _Expansion(environment)
        try:
            entries.append(_entry(name, value, expansion))
        except BadInputError as error:
            problems[name] = str(error)
        else:
            remarks += [f"{name}: {remark}" for remark in expansion.remarks(value)]
    return GatewayConfig(tuple(entries), problems, tuple(remarks))


def _table(path: Path) -> Mapping[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise BadInputError(f"{path} is not a regular file.")
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            raise BadInputError(f"{path} has more than {MAX_CONFIG_BYTES:,} bytes, the maximum for a configuration.")
        data = json.loads(content)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON ({error}). Comments are not allowed in it.") from error
    for key in SERVER_KEYS:
        found = data.get(key) if isinstance(data, dict) else None
        if isinstance(found, dict) and found:
            return found
    raise BadInputError(
        f"{path} names no servers: it needs an object 'mcpServers' or 'servers' with at least one entry."
    )


class _Expansion:
    """Replaces references to variables. A reference to a variable that is not set is kept and listed in the remarks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._missing: dict[str, None] = {}
        self.found: dict[str, None] = {}

    def text(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            raise BadInputError(f"{place} must be a string.")
        prompted = _INPUT_VARIABLE.search(value)
        if prompted:
            raise BadInputError(
                f"{place} refers to the editor's input '{prompted[1]}', which the gateway cannot read: use an"
                " environment variable instead."
            )
        for name, _ in _VARIABLE.findall(value):
            if name.upper().startswith(OWN_PREFIX):
                raise BadInputError(
                    f"{place} refers to {name}, a variable of contextstash itself, which is never passed to a server."
                )
        return _VARIABLE.sub(self._value, value)

    def _value(self, match: re.Match[str]) -> str:
        name, default = match.groups()
        value = self._environment.get(name)
        if value is not None and (value or default is None):
            self.found[name] = None
            return value
        if default is None:
            self._missing[name] = None
            return match.group()
        return default

    def remarks(self, entry: Mapping[str, Any]) -> list[str]:
        found = [
            f"the environment variable {name} is not set, so ${{{name}}} was not replaced" for name in self._missing
        ]
        return found + [
            f"{key} is not supported and was ignored" for key in ("envFile", "headersHelper") if entry.get(key)
        ]


def _entry(name: str, value: Any, expansion: _Expansion) -> ServerEntry:
    if not isinstance(value, dict):
        raise BadInputError("it must be an object with a command or a url.")
    rules = read_rules(value.get("contextstash", {}))
    kind = value.get("type", value.get("transport"))
    url = value.get("url", value.get("httpUrl"))
    if kind in HTTP_TYPES or (kind is None and "command" not in value and url is not None):
        return ServerEntry(name, _http(url, value, expansion), rules, tuple(expansion.found))
    if kind is None or kind in STDIO_TYPES:
        return ServerEntry(name, _stdio(value, expansion), rules, tuple(expansion.found))
    raise BadInputError(f"the type '{kind}' is not supported: only stdio and http (streamable HTTP) are.")


def _stdio(value: Mapping[str, Any], expansion: _Expansion) -> StdioServer:
    if "command" not in value:
        raise BadInputError("it has neither a command nor a url.")
    command = expansion.text(value["command"], "command")
    if not command.strip():
        raise BadInputError("its command is empty.")
    args = value.get("args") or []
    if not isinstance(args, list):
        raise BadInputError("args must be a list of strings.")
    cwd = value.get("cwd")
    return StdioServer(
        command=command,
        args=tuple(expansion.text(each, f"args[{place}]") for place, each in enumerate(args)),
        env=_texts(value.get("env"), "env", expansion),
        cwd=None if cwd is None else str(Path(expansion.text(cwd, "cwd")).expanduser()),
    )


def _http(url: Any, value: Mapping[str, Any], expansion: _Expansion) -> HttpServer:
    if url is None:
        raise BadInputError("it has no url.")
    expanded = expansion.text(url, "url")
    if not re.match(r"https?://[^\s/]", expanded):
        raise BadInputError("its url does not begin with http:// or https://.")
    return HttpServer(expanded, _texts(value.get("headers"), "headers", expansion))


def _texts(value: Any, place: str, expansion: _Expansion) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInputError(f"{place} must be an object of strings.")
    return {name: expansion.text(each, f"{place}.{name}") for name, each in value.items() if each is not None}
