"""Outputs in use: those that are not old, whatever their age, since the model is working on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from contextstash.events.calls import Call
from contextstash.events.files import file_uses
from contextstash.events.turns import Verb
from contextstash.outputs.own_tools import is_own_retrieval

RECENT_CALLS = 60
"""A file is under edit if it was changed in so many newest calls, about one task; with more, old reads stay in the
view."""

_READS = re.compile(r"read|view|open|cat|get_file|show|grep|search|glob|find|list|fetch|ls", re.IGNORECASE)
_SHOWS = re.compile(r"read|view|open|cat|get_file|show|fetch", re.IGNORECASE)
_WRITES = re.compile(r"edit|write|replace|insert|patch|update|create|append", re.IGNORECASE)
_SHOWING_COMMAND = re.compile(r"\s*(?:cd [^;&|]+&&\s*)?(?:cat|head|tail|sed -n|less|bat|nl)\b(?! *>)")
_HEREDOC = re.compile(r"<<-?\s*['\"]?\w+['\"]?(\s*>{1,2} *[\w./~-]+)?.*", re.DOTALL)
"""A here-document in a call's main argument, which is one line: its end is not told from its text."""

_PATCHED = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (\S+)")


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A tool call of a conversation, with its main argument, such as a path or a command."""

    call_id: str
    tool: str
    argument: str

    @property
    def shows_file(self) -> bool:
        """Whether its output is the text of a file, by the tool's name or by the command."""
        if _WRITES.search(self.tool):
            return False
        return bool(_SHOWS.search(self.tool) or _SHOWING_COMMAND.match(self.argument))

    @property
    def paths(self) -> set[str]:
        """The files whose text it shows."""
        return {path for path, verb in _uses_of(self.tool, self.argument) if verb == "read"}

    @property
    def changes(self) -> set[str]:
        """The files that it changes."""
        return {path for path, verb in _uses_of(self.tool, self.argument) if verb not in ("read", "run")}


@lru_cache(maxsize=4_096)
def _uses_of(tool: str, argument: str) -> tuple[tuple[str, Verb], ...]:
    """The files that a call uses, and how, by its tool's name and its main argument, a path or a command."""
    if _WRITES.search(tool):
        return ((argument, "edited"),) if argument else ()
    if _READS.search(tool):
        return ((argument, "read"),) if argument else ()
    if patched := _PATCHED.findall(argument):
        return tuple((path, "edited") for path in patched)
    command = Call(0, "", argument, "", {"command": _HEREDOC.sub(r"\1", argument)})
    return tuple((use.path, use.verb) for use in file_uses(command))


def protected_calls(calls: Sequence[MadeCall]) -> set[str]:
    """The ids of the calls, which are in order, whose outputs stay: the newest read of each file under edit, and the
    outputs of our own retrievals."""
    edited = {path for call in calls[-RECENT_CALLS:] for path in call.changes}
    newest: dict[str, str] = {}
    for call in calls:
        if not call.changes:
            newest.update(dict.fromkeys(call.paths & edited, call.call_id))
    own = {call.call_id for call in calls if is_own_retrieval(call.tool, call.argument)}
    return own | set(newest.values())
