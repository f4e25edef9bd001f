"""The configured rules for one server's tools: which are offered, and the limits of their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from contextstash.base.near_names import did_you_mean
from contextstash.outputs.limits import OutputLimits
from contextstash_storage.errors import BadInputError


@dataclass(frozen=True, slots=True)
class ServerRules:
    """The rules for all tools of a server. `allow` and `deny` are names or shell patterns; `deny` takes precedence.
    `limits` are those of an output, over those of the settings; `per_tool` has those of one tool."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    per_tool: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def offers(self, tool: str) -> bool:
        """Whether a tool is offered at all."""
        allowed = self.allow is None or _any_matches(self.allow, tool)
        return allowed and not _any_matches(self.deny, tool)

    def limits_of(self, tool: str) -> Mapping[str, Any]:
        """The limits of one tool's outputs."""
        return {**self.limits, **self.per_tool.get(tool, {})}


def read_rules(value: Any) -> ServerRules:
    """The rules in an entry's key `contextstash`. Raises BadInputError if a name is unknown or a value invalid: a
    misspelt list of denied tools must not be ignored."""
    given = _object(value, "contextstash", ("limits", "tools", "per_tool"))
    lists = _object(given.get("tools", {}), "contextstash.tools", ("allow", "deny"))
    per_tool = given.get("per_tool", {})
    if not isinstance(per_tool, dict):
        raise BadInputError("contextstash.per_tool must be an object with tool names as keys.")
    return ServerRules(
        allow=_names(lists["allow"], "allow") if "allow" in lists else None,
        deny=_names(lists.get("deny", []), "deny"),
        limits=_limits(given, "contextstash"),
        per_tool={
            tool: _limits(_object(rules, f"contextstash.per_tool.{tool}", ("limits",)), f"contextstash.per_tool.{tool}")
            for tool, rules in per_tool.items()
        },
    )


def _limits(given: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    limits = given.get("limits", {})
    if not isinstance(limits, dict):
        raise BadInputError(f"{place}.limits must be an object such as {{'tokens': 2000}}.")
    OutputLimits().merged(limits)
    return limits


def _object(value: Any, place: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInputError(f"{place} must be an object.")
    for name in value:
        if name not in known:
            raise BadInputError(f"There is no {place}.{name}. {did_you_mean(name, known)}")
    return value


def _names(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadInputError(f"contextstash.tools.{name} must be a list of tool names.")
    return tuple(value)


def _any_matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
