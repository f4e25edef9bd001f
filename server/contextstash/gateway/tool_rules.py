"""The configured rules for one server's tools: which are offered, and the limits of their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from contextstash.context.text.near_names import did_you_mean
from contextstash.context.tool_outputs.limits import OutputLimits
from contextstash_storage.errors import BadInputError

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Default maximum of one response, in bytes: two million tokens, ten windows of a large model, and up to 0.8 GB of
memory while it is parsed."""

ANSWER_BYTES_BOUNDS = (64 * 1024, 64 * 1024 * 1024)
"""The range of that limit, in bytes. A lower limit would reject lists of tools; with a higher one, copying from pipe to
pipe would block the event loop."""


@dataclass(frozen=True, slots=True)
class OutputRules:
    """The rules for one tool's outputs: `limits` replace those of the settings; with `unchanged`, a repeated output is
    replaced by a notice."""

    limits: Mapping[str, Any] = field(default_factory=dict)
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class ServerRules:
    """The rules for all tools of a server. `allow` and `deny` are names or shell patterns; `deny` takes precedence."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    outputs: OutputRules = OutputRules()
    per_tool: Mapping[str, OutputRules] = field(default_factory=dict)
    max_answer_bytes: int = MAX_ANSWER_BYTES

    def offers(self, tool: str) -> bool:
        """Whether a tool is offered at all."""
        allowed = self.allow is None or _any_matches(self.allow, tool)
        return allowed and not _any_matches(self.deny, tool)

    def of(self, tool: str) -> OutputRules:
        """The rules for one tool's outputs."""
        return self.per_tool.get(tool, self.outputs)


def read_rules(value: Any) -> ServerRules:
    """The rules in an entry's key `contextstash`. Raises BadInputError if a name is unknown or a value invalid: a
    misspelt list of denied tools must not be ignored."""
    given = _object(value, "contextstash", ("limits", "unchanged", "tools", "per_tool", "max_answer_bytes"))
    lists = _object(given.get("tools", {}), "contextstash.tools", ("allow", "deny"))
    outputs = _output_rules(given, "contextstash", OutputRules())
    per_tool = given.get("per_tool", {})
    if not isinstance(per_tool, dict):
        raise BadInputError("contextstash.per_tool must be an object with tool names as keys.")
    return ServerRules(
        allow=_names(lists["allow"], "allow") if "allow" in lists else None,
        deny=_names(lists.get("deny", []), "deny"),
        outputs=outputs,
        per_tool={
            tool: _output_rules(
                _object(rules, f"contextstash.per_tool.{tool}", ("limits", "unchanged")),
                f"contextstash.per_tool.{tool}",
                outputs,
            )
            for tool, rules in per_tool.items()
        },
        max_answer_bytes=_answer_bytes(given.get("max_answer_bytes", MAX_ANSWER_BYTES)),
    )


def _answer_bytes(value: Any) -> int:
    low, high = ANSWER_BYTES_BOUNDS
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadInputError(f"contextstash.max_answer_bytes must be a number of bytes from {low:,} to {high:,}.")
    return value


def _output_rules(given: Mapping[str, Any], place: str, general: OutputRules) -> OutputRules:
    limits = given.get("limits", {})
    if not isinstance(limits, dict):
        raise BadInputError(f"{place}.limits must be an object such as {{'tokens': 2000}}.")
    OutputLimits().merged(limits)
    unchanged = given.get("unchanged", general.unchanged)
    if not isinstance(unchanged, bool):
        raise BadInputError(f"{place}.unchanged must be true or false.")
    return OutputRules({**general.limits, **limits}, unchanged)


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
