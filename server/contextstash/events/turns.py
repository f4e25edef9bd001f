"""Turns: messages with their texts, and what they are read as: what the user said, and the uses of files.

Said(0, "Fix the fines."), FileUse("fines.py", "read"), Told(9, "The fines are fixed.")

`seq` is the position of the message, for what a call did that with its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from contextstash.outputs.placeholders import is_own_call
from contextstash_storage.records import Block, Kind, Role


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `texts[i]` is the whole text of `blocks[i]`; `handles` maps the index of a block to the handle of
    its archived output. For a message in the user's role, `kind` is whether a person wrote it."""

    seq: int
    role: Role
    blocks: tuple[Block, ...]
    texts: tuple[str, ...]
    handles: Mapping[int, str] = field(default_factory=dict)
    kind: Kind = "message"

    @property
    def said(self) -> list[str]:
        """The texts of the message that are neither calls nor results nor thinking."""
        return [text for block, text in zip(self.blocks, self.texts, strict=True) if block.type == "text"]

    @property
    def ends_work(self) -> bool:
        """Whether this is a message of the assistant without a call: it waits for the user. What an earlier one asks,
        the assistant asks itself. Some clients record its thinking as a message; that ends nothing."""
        types = {block.type for block in self.blocks}
        return self.role == "assistant" and "tool_call" not in types and types != {"thinking"}


FILLERS = ("No response requested.", "(no content)")  # of Claude Code, for example behind a local command


def conversation_of(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """The turns without the calls of our own tools and their results, and without replies that a client wrote itself; a
    turn with nothing else is left out."""
    own: set[str] = set()
    kept = []
    for turn in turns:
        own |= {block.call_id for block in turn.blocks if block.call_id and _is_own(block)}
        places = [place for place, block in enumerate(turn.blocks) if block.call_id not in own and not _is_own(block)]
        if turn.role == "assistant" and turn.texts and all(text.strip() in FILLERS for text in turn.texts):
            continue
        if places and len(places) < len(turn.blocks):
            turn = replace(
                turn,
                blocks=tuple(turn.blocks[place] for place in places),
                texts=tuple(turn.texts[place] for place in places),
                handles={new: turn.handles[place] for new, place in enumerate(places) if place in turn.handles},
            )
        if places or not turn.blocks:
            kept.append(turn)
    return tuple(kept)


def _is_own(block: Block) -> bool:
    return block.type in ("tool_call", "tool_result") and is_own_call(block.tool, block.argument)


Verb = Literal["created", "edited", "renamed", "deleted", "restored", "git add", "run", "read"]
"""`restored` is a file that Git put back as it was before its changes, `git add` one that was staged. A summary writes
them in this order."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A text of a file was replaced by another one, once or everywhere. Without `old`, `new` was put in somewhere.
    `patched` is whether these are whole lines of a patch."""

    old: str
    new: str
    everywhere: bool = False
    patched: bool = False


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
        return self.verb not in ("read", "run", "git add")

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
