"""Outputs in use: those that are not old, whatever their age, since the model is working on them or they are pinned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from posixpath import normpath

from contextstash.events.calls import Call
from contextstash.events.files import file_uses, is_same_file
from contextstash.events.turns import Verb
from contextstash.outputs.own_tools import is_own_retrieval
from contextstash_storage.records import Output

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


def shows_file(output: Output) -> bool:
    """Whether an output is the text of a file, by the tool's name or by the command."""
    if _WRITES.search(output.tool):
        return False
    return bool(_SHOWS.search(output.tool) or _SHOWING_COMMAND.match(output.argument))


def paths_read(output: Output) -> set[str]:
    """The files whose text the call reads."""
    return {path for path, verb in _uses_of(output.tool, output.argument) if verb == "read"}


def paths_changed(output: Output) -> set[str]:
    """The files that the call changes."""
    return {path for path, verb in _uses_of(output.tool, output.argument) if verb not in ("read", "run")}


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


def outputs_in_use(outputs: Sequence[Output]) -> set[str]:
    """The handles of those of the outputs, which are in order, that stay: the newest read of each file under edit, and
    our own retrievals."""
    edited = {path for output in outputs[-RECENT_CALLS:] for path in paths_changed(output)}
    newest: dict[str, str] = {}
    for output in outputs:
        if not paths_changed(output):
            newest.update(dict.fromkeys(paths_read(output) & edited, output.handle))
    own = {output.handle for output in outputs if is_own_retrieval(output.tool, output.argument)}
    return own | set(newest.values())


HANDLE_PREFIX = "out_"


def outputs_of_pins(pins: Sequence[str], recorded: Sequence[Output]) -> list[Output]:
    """The outputs that the pins stand for among these, which are in order. A pin is a handle, or the path of a file,
    which stands for the newest output that shows it."""
    found = (next((output for output in reversed(recorded) if _is_pinned(output, pin)), None) for pin in pins)
    return [output for output in found if output is not None]


def _is_pinned(output: Output, pin: str) -> bool:
    if pin.startswith(HANDLE_PREFIX):
        return output.handle == pin
    return shows_file(output) and any(is_same_file(normpath(each), normpath(pin)) for each in paths_read(output))
