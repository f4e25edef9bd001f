"""Names under which things of several servers are offered: their own, and with the server's before it on a clash."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")

TOOL_JOINT = "__"
URI_JOINT = "+"


class Origin(NamedTuple):
    """Where an offered thing is from, and what it is called there."""

    server: str
    name: str


def prefixes(servers: Iterable[str]) -> dict[str, str]:
    """What stands before each server's names on a clash: its own name as far as tools' names allow, no two the same."""
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
    """What each server's names are offered as, in order. It depends on the names alone, not on who was there first.

    A name that several have, or that is `reserved`, gets each server's prefix, except with the server `unchanging`,
    which keeps its own. No other server's name is offered as one that is reserved.
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
