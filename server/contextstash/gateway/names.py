"""Names of the tools, prompts and resources of several servers: the original name, with a server prefix on a clash."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")

TOOL_JOINT = "__"
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


def offered_names(
    names: Mapping[str, Sequence[str]],
    before: Mapping[str, str],
    joint: str,
    unchanging: str | None = None,
    reserved: Callable[[str], bool] = lambda _: False,
) -> dict[str, Origin]:
    """The offered names of all servers, in order. They depend on the names alone, not on which server started first.

    A name that several servers have, or that is `reserved`, gets the server's prefix. The server `unchanging` keeps its
    names. No other server gets an offered name that is reserved.
    """
    times = Counter(name for each in names.values() for name in dict.fromkeys(each))
    kept = set(names.get(unchanging, ())) if unchanging is not None else set()
    alone = {name for name, number in times.items() if number == 1 and (name in kept or not reserved(name))}
    found: dict[str, Origin] = {}
    for server, own in names.items():
        for name in dict.fromkeys(own):
            bare = name in alone or server == unchanging
            offered = name if bare else _free(f"{before[server]}{joint}{name}", {*found, *alone, *kept}, "_", reserved)
            found[offered] = Origin(server, name)
    return found


def _free(name: str, taken: Iterable[str], joint: str, reserved: Callable[[str], bool] = lambda _: False) -> str:
    known = set(taken)
    number, free = 2, name
    while free in known or reserved(free):
        free, number = f"{name}{joint}{number}", number + 1
    return free
