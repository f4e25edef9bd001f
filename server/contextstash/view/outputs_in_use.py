"""Outputs in use: those that are not old, whatever their age, since the model is working on them or they are pinned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from posixpath import normpath

from contextstash.events.calls import Call
from contextstash.events.files import file_uses, is_same_file
from contextstash.events.turns import FileUse
from contextstash.outputs.own_tools import is_own_retrieval
from contextstash_storage.records import Output

RECENT_CALLS = 60
"""A file is under edit if it was changed in so many newest calls, about one task; with more, old reads stay in the
view."""

_LOOKS = re.compile(r"grep|search|glob|find|list|ls", re.IGNORECASE)
"""Tools whose main argument is neither a command nor a file that they show."""

_HEREDOC = re.compile(r"<<-?\s*['\"]?\w+['\"]?(\s*>{1,2} *[\w./~-]+)?.*", re.DOTALL)
"""A here-document in a call's main argument, which is one line: its end is not told from its text."""

_PATCHED = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (\S+)")


def paths_read(output: Output) -> set[str]:
    """The files whose text the call reads."""
    return {use.path for use in _uses_of(output.tool, output.argument) if use.verb == "read"}


def paths_changed(output: Output) -> set[str]:
    """The files that the call changes."""
    return {use.path for use in _uses_of(output.tool, output.argument) if use.changes}


@lru_cache(maxsize=4_096)
def _uses_of(tool: str, argument: str) -> Sequence[FileUse]:
    """The files that a call uses, by its tool's name and its main argument, a path or a command."""
    if patched := _PATCHED.findall(argument):
        return [FileUse(path, "edited") for path in patched]
    uses = file_uses(Call(0, tool, argument, "", {"path": argument}))
    if uses or _LOOKS.search(tool):
        return uses
    return file_uses(Call(0, "", argument, "", {"command": _HEREDOC.sub(r"\1", argument)}))


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


def is_handle(pin: str) -> bool:
    """Whether a pin is the handle of an output, and not a path that begins like one."""
    return pin.startswith("out_") and "/" not in pin and "." not in pin


def outputs_of_pins(pins: Sequence[str], recorded: Sequence[Output]) -> list[Output]:
    """The outputs that the pins stand for among these, which are in order. A pin is a handle, or the path of a file,
    which stands for the newest output that shows it."""
    found = (next((output for output in reversed(recorded) if _is_pinned(output, pin)), None) for pin in pins)
    return [output for output in found if output is not None]


def _is_pinned(output: Output, pin: str) -> bool:
    if is_handle(pin):
        return output.handle == pin
    if output.argument.startswith("wc "):  # it reads the file, and shows nothing of it
        return False
    return any(is_same_file(normpath(each), normpath(pin)) for each in paths_read(output))
