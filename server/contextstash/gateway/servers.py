"""The servers that the gateway stands in front of: an MCP server file in the format that clients use.

`mcpServers` (Claude, Cursor, Gemini and others) or `servers` (VS Code), each entry with `command`, `args`, `env` and
`cwd`, or with `url` and `headers`. The key `contextstash` of an entry contains our own rules.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from contextstash.outputs.limits import OutputLimits
from contextstash_storage.errors import BadInputError

logger = logging.getLogger(__name__)

EXPANDED = ("command", "args", "env", "cwd", "url", "httpUrl", "headers")
"""The keys of an entry in which references to variables are replaced."""

OWN_PREFIX = "CONTEXTSTASH_"
"""The prefix of our own environment variables. No server gets one of them, even if its entry refers to it."""

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${VAR}` and `${VAR:-default}` as in Claude Code, `${env:VAR}` as in Cursor and VS Code."""


class _Strict(BaseModel):
    """A misspelt list of denied tools must not be ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolLists(_Strict):
    """Which tools are offered: names or shell patterns. `deny` takes precedence."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def offer(self, tool: str) -> bool:
        """Whether a tool is offered at all."""
        return any(fnmatchcase(tool, each) for each in self.allow) and not any(fnmatchcase(tool, e) for e in self.deny)


class ToolRules(_Strict):
    """The limits of the outputs of one tool, over those of its server."""

    limits: dict[str, Any] = {}


class ServerRules(ToolRules):
    """The rules for all tools of a server. `limits` are those of an output, over those of the settings."""

    tools: ToolLists = ToolLists()
    per_tool: dict[str, ToolRules] = {}


class ServerEntry(BaseModel):
    """One server: a program to start if there is a `command`, else one that is reached over streamable HTTP at `url`.
    No repr and no error contains what may hold a secret. `references` are the names of the gateway's environment
    variables that the entry refers to: the reference permits passing them on."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    name: str
    command: str | None = Field(default=None, min_length=1)
    args: list[str] = Field(default=[], repr=False)
    env: dict[str, str] = Field(default={}, repr=False)
    cwd: str | None = None
    url: str = Field(
        default="", pattern=r"^https?://[^\s/]", repr=False, validation_alias=AliasChoices("url", "httpUrl")
    )
    headers: dict[str, str] = Field(default={}, repr=False)
    rules: ServerRules = Field(default=ServerRules(), validation_alias="contextstash")
    references: tuple[str, ...] = ()


def read_servers(path: Path, environment: Mapping[str, str]) -> list[ServerEntry]:
    """The servers of a file that are not disabled, in its order. An entry that cannot be used is logged and left out.
    Raises BadInputError if the file cannot be read or no server is left."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON ({error}). Comments are not allowed in it.") from error
    table = data.get("mcpServers") or data.get("servers") if isinstance(data, dict) else None
    if not isinstance(table, dict):
        raise BadInputError(f"{path} names no servers: it needs an object 'mcpServers' or 'servers' with an entry.")
    found = []
    for name, value in table.items():
        try:
            if not isinstance(value, dict):
                raise BadInputError("it must be an object with a command or a url.")
            if value.get("disabled") is not True:
                found.append(_entry(name, value, environment))
        except BadInputError as error:
            logger.warning("server '%s' is skipped: %s", name, error)
    if not found:
        raise BadInputError(f"{path} has no server that can be used.")
    return found


def _entry(name: str, value: Mapping[str, Any], environment: Mapping[str, str]) -> ServerEntry:
    given = {key: each for key, each in value.items() if each is not None}
    if given.get("type", given.get("transport")) == "sse":
        raise BadInputError("the type 'sse' is not supported: only stdio and http (streamable HTTP) are.")
    if not {"command", "url", "httpUrl"} & given.keys():
        raise BadInputError("it has neither a command nor a url.")
    references: list[str] = []
    filled = {key: _filled(given[key], environment, references) for key in EXPANDED if key in given}
    try:
        entry = ServerEntry.model_validate({**given, **filled, "name": name, "references": references})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadInputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    for rules in (entry.rules, *entry.rules.per_tool.values()):
        OutputLimits().merged(rules.limits)
    return entry


def _filled(value: Any, environment: Mapping[str, str], references: list[str]) -> Any:
    """The value with its references to variables replaced; one to a variable that is not set is kept. The names of
    those that were read are added to `references`."""

    def variable(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name.upper().startswith(OWN_PREFIX):
            raise BadInputError(f"it refers to {name}, a variable of contextstash itself, which no server gets.")
        if found := environment.get(name):
            references.append(name)
        elif default is None:
            logger.warning("the environment variable %s is not set, so ${%s} was not replaced", name, name)
        return found or (match[0] if default is None else default)

    if isinstance(value, dict):
        return {key: _filled(each, environment, references) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, environment, references) for each in value]
    return _VARIABLE.sub(variable, value) if isinstance(value, str) else value
