"""What can happen in a session: the kinds of events that its messages are read as.

    Asked(0, "Fix the fines."), Used(2, FileUse("fines.py", "read")), Said(9, "Done.", ends=True)

`seq` is the position of the message, for what a call did that with its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["read", "run", "edited", "created", "renamed", "deleted"]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A text of a file was replaced by another one, once or everywhere. Without `old`, `new` was put in somewhere."""

    old: str
    new: str
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """Consecutive lines of a file that a read printed. `first` is the number of the first one, 0 if it is not known;
    `whole` is whether they are all that the file has."""

    lines: tuple[str, ...]
    first: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FileUse:
    """One use of one file. `names` are the definitions and identifiers that a change affects. `was` is the path that a
    renamed file had, or of which a created one is a copy.

    Of a change, as far as the call shows it: the `text` that was written, as the whole file or with `appended` at its
    end, or what was `replaced`. `shown` is what a read of this file alone printed."""

    path: str
    verb: Verb
    names: tuple[str, ...] = ()
    was: str = ""
    text: str | None = field(default=None, compare=False)
    appended: bool = field(default=False, compare=False)
    replaced: tuple[Replaced, ...] = field(default=(), compare=False)
    shown: Shown | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """The user asked for something. `said` is the assistant's text just before it, empty if there is none. `command` is
    the client's command that the message gives or that the client expanded to this text, such as `/review 284`: what it
    says counts for one turn and makes no rule."""

    seq: int
    text: str
    said: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """The user decided something in a dialog of a tool: answered, refused, approved a plan."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """The client began a new window with a summary of the one before."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """The assistant said something. `ends` is whether it made no call in this message: it waits for the user."""

    seq: int
    text: str
    ends: bool


@dataclass(frozen=True, slots=True)
class Used:
    """A call used a file."""

    seq: int
    use: FileUse


@dataclass(frozen=True, slots=True)
class Planned:
    """The agent wrote its plan. `entries` are the texts of the tasks by their numbers, each with its state ("todo",
    "doing", "done" or "gone"); with `whole` they are the whole plan, else those that changed."""

    seq: int
    entries: Mapping[str, tuple[str, str]]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Committed:
    """The agent made a commit, pushed one, or opened a pull request. `amends` is whether it replaced the commit
    before."""

    seq: int
    text: str
    amends: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """Names of files and in code that a message contains. `by_agent` is whether the agent wrote them; `file` is the one
    whose text it shows, if it shows that of one file."""

    seq: int
    names: tuple[str, ...]
    by_agent: bool = False
    file: str = ""


@dataclass(frozen=True, slots=True)
class Quoted:
    """Wordings and numbers that the agent wrote in quotation marks into a file or a command."""

    seq: int
    texts: tuple[str, ...]
