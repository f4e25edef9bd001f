"""Rereads: tool outputs that show text of outputs out of view again, whatever the tool that reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from contextstash.outputs.own_tools import is_own_call
from contextstash.view.outputs_in_use import UNKNOWN_TIME, MadeCall, is_same_file

Key = tuple[str, str]
"""An output: the id of its call, and the SHA-256 of its text."""

MIN_LINE = 12
"""Characters of a line that counts: shorter ones, such as a closing brace, stand in many files."""

REREAD_SHARE = 0.5
"""An output is a re-read as a whole if this share of it stood in outputs that are out of view. In recorded sessions
hardly any line of other outputs did, and nearly all of a re-read; if it is too low, more is charged than is due."""

MIN_SHARED = 700
"""Characters, about 200 tokens as of the smallest output that is pruned. Of an output that mostly shows other things,
fewer lines that are known are by chance, such as imports."""

_BEFORE_LINE = re.compile(r"^\s*(?:[\w./~-]+[:-])?\d{1,7}(?:[→\t|]|[:-] ?)")
"""The number before a line in a read, and its file in a search."""


@dataclass(frozen=True, slots=True)
class Reread:
    """Which `share` of an output, by characters, stood in outputs that were out of view, most of it in `of`."""

    of: Key
    share: float


class OutputLines:
    """The lines of a conversation's outputs, each with the newest output that shows it.

    A line is read again if that output is out of view. What was changed since does not count as one: a file by a call
    that names it, the output of a run by any change. If in doubt, such as after a change by a script, it counts.
    """

    def __init__(self) -> None:
        self._newest: dict[int, Key] = {}
        self._calls: dict[Key, tuple[int, MadeCall]] = {}
        self._changed: dict[str, int] = {}
        self._last_change = -1

    @property
    def outputs(self) -> set[Key]:
        """All outputs that were added."""
        return set(self._calls)

    def add(
        self, key: Key, call: MadeCall, text: str, hidden: Mapping[Key, float], *, failed: bool = False
    ) -> Reread | None:
        """Add the next output. `hidden` says since when earlier ones are out of view, in seconds since 1970. A change
        that `failed` is none. Returns what it shows again; None if nothing, or nothing to speak of."""
        number = len(self._calls)
        if call.writes and not failed:
            self._last_change = number
            self._changed |= dict.fromkeys(call.changes, number)
        lines = _lines_of(text)
        shared: Counter[Key] = Counter()
        equal = next((each for each, since in hidden.items() if each[1] == key[1] and since < call.made_at), None)
        for line, size in lines.items():
            before = equal or self._newest.get(line)
            if before is not None and hidden.get(before, UNKNOWN_TIME) < call.made_at:
                shared[before] += size
            self._newest[line] = key
        self._calls[key] = number, call
        if call.writes or is_own_call(call.tool, call.argument):
            return None
        return _reread({each: size for each, size in shared.items() if not self._is_outdated(each)}, lines)

    def _is_outdated(self, key: Key) -> bool:
        number, call = self._calls[key]
        if not (call.reads or call.shows_file):
            return number < self._last_change
        return any(
            number < changed_at and any(is_same_file(path, changed) for path in call.paths)
            for changed, changed_at in self._changed.items()
        )


def _reread(shared: Mapping[Key, int], lines: Mapping[int, int]) -> Reread | None:
    size, whole = sum(shared.values()), sum(lines.values())
    if not size or (size < REREAD_SHARE * whole and size < MIN_SHARED):
        return None
    return Reread(max(shared, key=lambda each: shared[each]), size / whole)


def _lines_of(text: str) -> dict[int, int]:
    """The lines that count, without what a tool writes before them, with the characters that each takes in all."""
    found: dict[int, int] = {}
    for raw in text.split("\n"):
        line = _BEFORE_LINE.sub("", raw).strip()
        if len(line) >= MIN_LINE:
            name = hash(line)
            found[name] = found.get(name, 0) + len(line)
    return found
