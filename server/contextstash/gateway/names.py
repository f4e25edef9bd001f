"""Names of the tools, prompts and resources of several servers: the original name, with a server prefix on a clash."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")

TOOL_JOINT = "__"

MAX_TOOL_NAME = 64
"""Characters of a tool's name that every provider takes, of letters, digits, `_` and `-`: with one other name in
the list the whole request is refused."""

_ROOM_FOR_NUMBER = 4
URI_JOINT = "+"


class Origin(NamedTuple):
    """The server of an offered item, and the item's name on that server."""

    server: str
    name: str


def prefixes(servers: Iterable[str]) -> dict[str, str]:
    """The unique prefix of each server's names on a clash: the server's name, reduced to the characters of tool
    names."""
    found: dict[str, str] = {}
    for server in servers:
        stem = _NOT_IN_NAMES.sub("_", server).strip("_") or "server"
        found[server] = _free(stem, found.values(), "_")
    return found


def tool_name(name: str, most: int = MAX_TOOL_NAME) -> str:
    """The name as every provider takes it; itself if it is such a one. A cut one ends with a digest of the whole."""
    fit = _NOT_IN_NAMES.sub("_", name) or "tool"
    return fit if len(fit) <= most else f"{fit[: most - 9]}_{sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _prefixed_tool_name(name: str) -> str:
    return tool_name(name, MAX_TOOL_NAME - _ROOM_FOR_NUMBER)


def offered_names(
    names: Mapping[str, Sequence[str]],
    before: Mapping[str, str],
    joint: str,
    unchanging: str | None = None,
    reserved: Callable[[str], bool] = lambda _: False,
    *,
    of_tools: bool = False,
) -> dict[str, Origin]:
    """The offered names of all servers, in order. They depend on the names alone, not on which server started first.

    A name that several servers have, that is `reserved`, or that has the prefix of another server, gets the server's
    prefix. The server `unchanging` keeps its names. No other server gets an offered name that is reserved. Names
    `of_tools` are offered in a form that every provider accepts.
    """
    fit, fit_prefixed = (tool_name, _prefixed_tool_name) if of_tools else (str, str)
    times = Counter(fit(name) for each in names.values() for name in dict.fromkeys(each))
    kept = set(names.get(unchanging, ())) if unchanging is not None else set()
    alone = {name for name, number in times.items() if number == 1 and (name in kept or not reserved(name))}
    starts = {server: f"{prefix}{joint}".casefold() for server, prefix in before.items()}
    bare = {
        (server, name)
        for server, own in names.items()
        for others in [tuple(start for each, start in starts.items() if each != server)]
        for name in own
        if server == unchanging or (fit(name) in alone and not fit(name).casefold().startswith(others))
    }
    taken = kept | {fit(name) for _, name in bare}
    numbers: dict[str, int] = {}
    found: dict[str, Origin] = {}
    for server, own in names.items():
        for name in dict.fromkeys(own):
            longer = fit_prefixed(f"{before[server]}{joint}{name}")
            offered = fit(name) if (server, name) in bare else _free(longer, taken, "_", reserved, numbers)
            taken.add(offered)
            found[offered] = Origin(server, name)
    return found


def _free(
    name: str,
    taken: Container[str],
    joint: str,
    reserved: Callable[[str], bool] = lambda _: False,
    numbers: dict[str, int] | None = None,
) -> str:
    """The name, with a number if it is taken or reserved. `numbers` has the next one for each name that was numbered
    before: without it, ten thousand equal names take minutes."""
    known = {} if numbers is None else numbers
    free = name
    while free in taken or reserved(free):
        known[name] = known.get(name, 1) + 1
        free = f"{name}{joint}{known[name]}"
    return free
