"""The names under which the servers' tools, prompts and resources are offered: the original ones, with the server's
name before those that several servers have, or that are ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from mcp import InvalidUriTemplate, UriTemplate

from contextstash.gateway.upstream import Upstream
from contextstash.outputs.own_tools import OWN_TOOLS, is_own_retrieval

HOST_TOOLS = (
    "ask_followup_question",
    "ask_question",
    "ask_questions",
    "ask_user",
    "ask_user_question",
    "ask_user_questions",
    "exit_plan_mode",
    "question",
    "questions",
    "request_user_input",
)
"""Tools with which hosts ask their user: what these return is read as the user's own answer."""

OWN_PROMPTS = ("compact", "context_status", "handoff")

OWN_SCHEME = "context:"

MAX_TOOL_NAME = 64
"""Characters of a tool's name that every provider takes, of letters, digits, `_` and `-`: with one other name in
the list the whole request is refused."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Offered:
    """An offered item: its server, its name there, and its definition under the offered name."""

    upstream: Upstream
    name: str
    item: Any


@dataclass(frozen=True, slots=True)
class Lists:
    """What all servers offer together, by offered name or URI."""

    tools: Mapping[str, Offered]
    prompts: Mapping[str, Offered]
    resources: Mapping[str, Offered]
    templates: Mapping[str, Offered]

    @classmethod
    def of(cls, upstreams: Mapping[str, Upstream]) -> Lists:
        """The lists of these servers, in their order."""
        tools = [
            (each, tool)
            for each in upstreams.values()
            for tool in each.offer.tools
            if each.own is not None or each.rules.offers(tool.name)
        ]

        def items(kind: str) -> list[tuple[Upstream, Any]]:
            return [(each, item) for each in upstreams.values() for item in getattr(each.offer, kind)]

        return cls(
            tools=_offered(tools, "name", "__", is_reserved_tool, tool_name),
            prompts=_offered(items("prompts"), "name", "__", is_own_prompt),
            resources=_offered(items("resources"), "uri", "+", is_own_uri),
            templates=_offered(items("templates"), "uri_template", "+", is_own_uri),
        )

    def resource(self, uri: str) -> Offered | None:
        """The server of a resource and its URI there; None if no list has the URI and no template matches it."""
        if uri in self.resources:
            return self.resources[uri]
        for offered, each in self.templates.items():
            if _matches(offered, uri):
                return Offered(each.upstream, uri.removeprefix(offered.removesuffix(each.name)), each.item)
        return None


def _offered(
    items: list[tuple[Upstream, Any]],
    key: str,
    joint: str,
    reserved: Callable[[str], bool],
    fit: Callable[[str], str] = str,
) -> dict[str, Offered]:
    """The items by their offered names, which depend on the names alone, not on which server started first."""
    times = Counter(fit(getattr(item, key)) for _, item in items)
    kept = {getattr(item, key) for upstream, item in items if upstream.own is not None}
    found: dict[str, Offered] = {}
    for upstream, item in items:
        name = getattr(item, key)
        offered = name
        if upstream.own is None:
            offered = fit(name)
            if times[offered] > 1 or reserved(offered):
                ahead = _NOT_IN_NAMES.sub("_", upstream.name).strip("_") or "server"
                offered = fit(f"{ahead}{joint}{name}")
            plain, number = offered, 1
            while offered in found or offered in kept or reserved(offered):
                number += 1
                offered = f"{plain[: MAX_TOOL_NAME - 4] if fit is tool_name else plain}_{number}"
        found[offered] = Offered(upstream, name, item.model_copy(update={key: offered}))
    return found


def tool_name(name: str) -> str:
    """The name as every provider takes it; itself if it is such a one. A cut one ends with a digest of the whole."""
    fit = _NOT_IN_NAMES.sub("_", name) or "tool"
    digest = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return fit if len(fit) <= MAX_TOOL_NAME else f"{fit[: MAX_TOOL_NAME - 9]}_{digest}"


def is_reserved_tool(name: str) -> bool:
    """Whether a client, a model or our transcript readers could take this for one of our tools, or for one with which a
    host asks its user."""
    return _plain(name) in _RESERVED or is_own_retrieval(f"contextstash__{name}")


def is_own_prompt(name: str) -> bool:
    """Whether this is the name of one of our prompts."""
    return _plain(name) in {_plain(own) for own in OWN_PROMPTS}


def is_own_uri(uri: str) -> bool:
    """Whether a URI has our own scheme, or a URI template can produce one that has."""
    literal = uri.strip().casefold().partition("{")[0]
    return literal.startswith(OWN_SCHEME) or ("{" in uri and OWN_SCHEME.startswith(literal))


def _plain(name: str) -> str:
    """The name without what does not tell two names apart: case and separators."""
    return "".join(each for each in name.casefold() if each.isalnum())


_RESERVED = {_plain(name) for name in (*OWN_TOOLS, *HOST_TOOLS)}


def _matches(template: str, uri: str) -> bool:
    try:
        return UriTemplate.parse(template).match(uri) is not None
    except InvalidUriTemplate:
        return False
