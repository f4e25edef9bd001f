"""What the messages of a session are read as: what the user asked for, and the uses of files.

Said(0, "Fix the fines."), FileUse("fines.py", "read"), Told(9, "The fines are fixed.")

`seq` is the position of the message, for what a call did that with its result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["read", "run", "edited", "created", "renamed", "deleted", "restored"]
"""`restored` is a file that Git put back as it was before its changes."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A text of a file was replaced by another one, once or everywhere. Without `old`, `new` was put in somewhere.
    `patched` is whether these are whole lines of a patch, `within` the line above them that says where."""

    old: str
    new: str
    everywhere: bool = False
    patched: bool = False
    within: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """Consecutive lines of a file that a read printed. `first` is the number of the first one, 0 if it is not known;
    `whole` is whether they are all that the file has."""

    lines: tuple[str, ...]
    first: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FileUse:
    """One use of one file. `was` is the path that a renamed file had.

    Of a change, as far as the call shows it: the `text` that was written, as the whole file or with `appended` at its
    end, or what was `replaced`. `shown` is what a read of this file alone printed."""

    path: str
    verb: Verb
    was: str = ""
    text: str | None = field(default=None, compare=False)
    appended: bool = field(default=False, compare=False)
    replaced: tuple[Replaced, ...] = field(default=(), compare=False)
    shown: Shown | None = field(default=None, compare=False)

    @property
    def changes(self) -> bool:
        """Whether the file is another one after it."""
        return self.verb not in ("read", "run")

    @property
    def seen(self) -> str:
        """The text of this file that the call shows, as it is after the use."""
        lines = self.shown.lines if self.shown else ()
        return "\n".join([*lines, self.text or "", *(each.new for each in self.replaced)])


@dataclass(frozen=True, slots=True)
class Said:
    """Something that the user said in message `seq`. `asked` is what the assistant had asked or proposed, if these
    words answer it. `command` is the client's command that the message gives or that the client expanded to this text,
    such as `/review 284`: it counts for one turn only. `source` is the project's file whose rules the client put there:
    the user did not say them. `stopped` is whether the same message interrupts the work on this; `dialog` whether it is
    what the user decided in a dialog of a tool."""

    seq: int
    text: str
    asked: str = ""
    command: str = ""
    source: str = ""
    stopped: bool = False
    dialog: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """A text of message `seq`."""

    seq: int
    text: str
