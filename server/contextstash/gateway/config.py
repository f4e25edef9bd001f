"""The gateway's configuration: an ordinary file of MCP servers, as clients have them.

`mcpServers` (Claude, Cursor, Gemini and others) or `servers` (VS Code), each entry with `command`, `args`, `env` and
`cwd`, or with `url` and `headers`; and the key `contextstash` with our own rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextstash.gateway.rules import ServerRules, read_rules
from contextstash_storage.errors import BadInputError

TABLES = ("mcpServers", "servers")

STDIO_TYPES = ("stdio", "local")
HTTP_TYPES = ("http", "streamable-http", "streamableHttp", "streamable_http", "remote")

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${VAR}` and `${VAR:-default}` as Claude Code has them, `${env:VAR}` as Cursor and VS Code write it."""

OWN_VARIABLES = "CONTEXTSTASH_"
"""What the names of our own variables begin with: no server gets one, whatever its entry says."""

MAX_CONFIG_BYTES = 1024 * 1024
"""Bytes of the file: that of a hundred servers is smaller by far."""

_ASKED_FOR = re.compile(r"\$\{input:([^}]*)\}")


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server to be started; `env` comes on top of the few variables that the SDK holds to be safe."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server to be reached by streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server of the file."""

    name: str
    server: StdioServer | HttpServer
    rules: ServerRules = field(default_factory=ServerRules)
    references: tuple[str, ...] = ()
    """The names of the gateway's own variables that the entry refers to, by which its owner agrees to pass them on."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The servers that can be used, in the file's order. `problems` names the entries that cannot, and why; `remarks`
    what was left as it stands in others."""

    entries: tuple[ServerEntry, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def read_config(path: Path, environment: Mapping[str, str]) -> GatewayConfig:
    """The servers in a file. Raises BadInputError if it can't be read or has no servers; a wrong entry is
    listed in `problems`, and the others are still used."""
    table = _table(path)
    entries, problems, remarks = [], {}, []
    for name, value in table.items():
        if isinstance(value, dict) and value.get("disabled") is True:
            continue
        expanding = _Expanding(environment)
        try:
            entries.append(_entry(name, value, expanding))
        except BadInputError as error:
            problems[name] = str(error)
        else:
            remarks += [f"{name}: {remark}" for remark in expanding.remarks(value)]
    return GatewayConfig(tuple(entries), problems, tuple(remarks))


def _table(path: Path) -> Mapping[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise BadInputError(f"{path} is not a regular file.")
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            raise BadInputError(f"{path} has more than {MAX_CONFIG_BYTES:,} bytes, which is no file of servers.")
        data = json.loads(content)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON ({error}). Comments are not allowed in it.") from error
    for key in TABLES:
        found = data.get(key) if isinstance(data, dict) else None
        if isinstance(found, dict) and found:
            return found
    raise BadInputError(f"{path} names no servers: it needs an object 'mcpServers', or 'servers', with some in it.")


class _Expanding:
    """Puts variables in; remembers those that are not set, which stay as they are written."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._missing: dict[str, None] = {}
        self.found: dict[str, None] = {}

    def text(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            raise BadInputError(f"{place} must be a string.")
        asked_for = _ASKED_FOR.search(value)
        if asked_for:
            raise BadInputError(
                f"{place} asks the editor for '{asked_for[1]}', which the gateway cannot: use an environment variable."
            )
        for name, _ in _VARIABLE.findall(value):
            if name.upper().startswith(OWN_VARIABLES):
                raise BadInputError(f"{place} refers to {name}, one of our own variables, which no server gets.")
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
        found = [f"the environment variable {name} is not set, so ${{{name}}} stays as it is" for name in self._missing]
        return found + [
            f"{key} is not supported and was ignored" for key in ("envFile", "headersHelper") if entry.get(key)
        ]


def _entry(name: str, value: Any, expanding: _Expanding) -> ServerEntry:
    if not isinstance(value, dict):
        raise BadInputError("it must be an object with a command or a url.")
    rules = read_rules(value.get("contextstash", {}))
    kind = value.get("type", value.get("transport"))
    url = value.get("url", value.get("httpUrl"))
    if kind in HTTP_TYPES or (kind is None and "command" not in value and url is not None):
        return ServerEntry(name, _http(url, value, expanding), rules, tuple(expanding.found))
    if kind is None or kind in STDIO_TYPES:
        return ServerEntry(name, _stdio(value, expanding), rules, tuple(expanding.found))
    raise BadInputError(f"the type '{kind}' is not supported: only stdio and http (streamable HTTP) are.")


def _stdio(value: Mapping[str, Any], expanding: _Expanding) -> StdioServer:
    if "command" not in value:
        raise BadInputError("it has neither a command nor a url.")
    command = expanding.text(value["command"], "command")
    if not command.strip():
        raise BadInputError("its command is empty.")
    args = value.get("args") or []
    if not isinstance(args, list):
        raise BadInputError("args must be a list of strings.")
    cwd = value.get("cwd")
    return StdioServer(
        command=command,
        args=tuple(expanding.text(each, f"args[{place}]") for place, each in enumerate(args)),
        env=_texts(value.get("env"), "env", expanding),
        cwd=None if cwd is None else str(Path(expanding.text(cwd, "cwd")).expanduser()),
    )


def _http(url: Any, value: Mapping[str, Any], expanding: _Expanding) -> HttpServer:
    if url is None:
        raise BadInputError("it has no url.")
    expanded = expanding.text(url, "url")
    if not re.match(r"https?://[^\s/]", expanded):
        raise BadInputError("its url does not begin with http:// or https://.")
    return HttpServer(expanded, _texts(value.get("headers"), "headers", expanding))


def _texts(value: Any, place: str, expanding: _Expanding) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInputError(f"{place} must be an object of strings.")
    return {name: expanding.text(each, f"{place}.{name}") for name, each in value.items() if each is not None}
