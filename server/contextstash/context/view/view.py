"""The view: a session's history with its edits laid over it, which is what the model is sent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from contextstash_storage.records import (
    ArchiveEdit,
    Block,
    Cover,
    DigestEdit,
    Edit,
    Kind,
    Message,
    NewMessage,
    Part,
    Replacement,
    RestoreEdit,
    RewindEdit,
    Role,
    SpanEdit,
    StripEdit,
    SummaryEdit,
    TruncateEdit,
)


@dataclass(frozen=True, slots=True)
class Overlay:
    """The edits in force. `replaced` maps (seq, block) to the archive or truncate edit shown there;
    `covers` are the summaries and rewinds that hide messages, by position; `digests` the messages of ours that tell
    of archived outputs; `strips` say where no thinking is shown."""

    replaced: Mapping[tuple[int, int], Replacement]
    covers: tuple[Cover, ...]
    digests: tuple[DigestEdit, ...] = ()
    strips: tuple[StripEdit, ...] = ()

    @property
    def summaries(self) -> tuple[SummaryEdit, ...]:
        return tuple(edit for edit in self.covers if isinstance(edit, SummaryEdit))

    def visible_ranges(self, messages: int) -> list[tuple[int, int]]:
        """Runs `(first, last)` of the `messages` recorded ones that no summary or rewind hides."""
        ranges: list[tuple[int, int]] = []
        start = 0
        for cover in self.covers:
            if cover.first_seq > start:
                ranges.append((start, min(cover.first_seq, messages) - 1))
            start = max(start, cover.last_seq + 1)
        if start < messages:
            ranges.append((start, messages - 1))
        return ranges


def edits_in_force(edits: Iterable[Edit]) -> Overlay:
    """What is left of an append-only list of edits once restores are taken into account.

    A cover that lies wholly inside a later one is hidden by it, and comes back when the later one is undone.
    """
    live: dict[int, Replacement | DigestEdit | StripEdit | Cover] = {}
    for edit in edits:
        if isinstance(edit, RestoreEdit):
            for undone in edit.undoes:
                live.pop(undone, None)
        else:
            live[edit.edit_id] = edit
    replaced: dict[tuple[int, int], Replacement] = {}
    covers: list[Cover] = []
    digests: list[DigestEdit] = []
    strips: list[StripEdit] = []
    for standing in live.values():
        match standing:
            case ArchiveEdit() | TruncateEdit():
                replaced[standing.seq, standing.block] = standing
            case DigestEdit():
                digests.append(standing)
            case StripEdit():
                strips.append(standing)
            case SummaryEdit() | RewindEdit():
                covers = [cover for cover in covers if not _inside(cover, standing)]
                covers.append(standing)
    return Overlay(replaced, tuple(sorted(covers, key=lambda cover: cover.span)), tuple(digests), tuple(strips))


def _inside(inner: Cover, outer: Cover) -> bool:
    return outer.first_seq <= inner.first_seq and inner.last_seq <= outer.last_seq


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing the model sees: a recorded message, some of its blocks perhaps replaced or its thinking `stripped`, a
    summary, or a digest message that tells of archived outputs."""

    message: Message | None = None
    summary: SummaryEdit | None = None
    digest: DigestEdit | None = None
    replaced: Mapping[int, Replacement] = field(default_factory=dict)
    stripped: bool = False

    @property
    def first_seq(self) -> int:
        return self.message.seq if self.message else self.edit.span[0]

    @property
    def last_seq(self) -> int:
        return self.message.seq if self.message else self.edit.span[1]

    @property
    def edit(self) -> SummaryEdit | DigestEdit:
        """The edit that made this entry; only for entries that are no message."""
        made_by = self.summary or self.digest
        if made_by is None:
            raise ValueError("this entry is a recorded message")
        return made_by

    @property
    def kind(self) -> Kind:
        """What kind of message the model sees here."""
        if self.message is None:
            return "summary" if self.summary else "tool_summary"
        archived = any(isinstance(edit, ArchiveEdit) for edit in self.replaced.values())
        return "tool_result_archived" if archived and not self.visible_results else self.message.kind

    @property
    def visible_results(self) -> int:
        """How many tool results are shown here, whole or cut."""
        if self.message is None:
            return 0
        return sum(
            block.type == "tool_result" and not isinstance(self.replaced.get(index), ArchiveEdit)
            for index, block in enumerate(self.message.blocks)
        )

    def parts(self) -> dict[Part, int]:
        """Tokens by part, as the model sees this entry."""
        if self.message is None:
            return {Part.SUMMARIES: self.edit.tokens}
        totals: dict[Part, int] = {}
        gone = {index for shown in self.replaced for index in _with_images(self.message.blocks, shown)}
        for index, block in enumerate(self.message.blocks):
            if index not in gone and not (self.stripped and block.type == "thinking"):
                part = part_of(self.message, block)
                totals[part] = totals.get(part, 0) + block.tokens
        for edit in self.replaced.values():
            totals[Part.ARCHIVED] = totals.get(Part.ARCHIVED, 0) + edit.tokens
        return totals

    @property
    def tokens(self) -> int:
        return sum(self.parts().values())

    @property
    def is_system(self) -> bool:
        return self.message is not None and self.message.role == "system"

    @property
    def is_user_turn(self) -> bool:
        """Whether a person speaks here, rather than a tool answering in the user's role."""
        return (
            self.message is not None
            and self.message.role == "user"
            and any(block.type != "tool_result" for block in own_blocks(self.message))
        )


def own_blocks(message: Message) -> list[Block]:
    """A message's blocks without the images that lie inside its tool results."""
    nested = {
        index
        for place, block in enumerate(message.blocks)
        if block.type == "tool_result"
        for index in _with_images(message.blocks, place)[1:]
    }
    return [block for index, block in enumerate(message.blocks) if index not in nested]


def _with_images(blocks: Sequence[Block], index: int) -> list[int]:
    """A tool result's block index and those of the images nested in it, which follow it."""
    indexes = [index]
    for later in range(index + 1, len(blocks)):
        block = blocks[later]
        if block.type not in ("image", "document") or block.call_id != blocks[index].call_id:
            break
        indexes.append(later)
    return indexes


def output_tokens(message: Message, index: int) -> int:
    """What a tool result costs in the view, the images nested in it included."""
    return sum(message.blocks[i].tokens for i in _with_images(message.blocks, index))


_PARTS_BY_TYPE: dict[str, Part] = {
    "thinking": Part.THINKING,
    "tool_call": Part.TOOL_CALLS,
    "tool_result": Part.TOOL_RESULTS,
    "image": Part.IMAGES,
    "document": Part.IMAGES,
}
_PARTS_BY_ROLE: dict[str, Part] = {
    "system": Part.SYSTEM,
    "user": Part.USER,
    "assistant": Part.ASSISTANT,
    "tool": Part.TOOL_RESULTS,
}


def part_of(message: Message | NewMessage, block: Block) -> Part:
    """Which part of the window a block's tokens count to."""
    return part_named(message.role, message.kind, block.type)


def part_named(role: Role, kind: Kind, block_type: str) -> Part:
    """The part of blocks of this type in messages of this role and kind."""
    if kind in ("summary", "tool_summary"):
        return Part.SUMMARIES
    return _PARTS_BY_TYPE.get(block_type) or _PARTS_BY_ROLE[role]


def lay(messages: Iterable[Message], overlay: Overlay) -> list[Entry]:
    """The view's entries in order. `messages` are at least those that no cover hides."""
    entries: list[Entry] = []
    hidden = _Spans(overlay.covers)
    stripped = _Spans(overlay.strips)
    blocks_by_seq: dict[int, dict[int, Replacement]] = {}
    for (seq, block), edit in overlay.replaced.items():
        blocks_by_seq.setdefault(seq, {})[block] = edit
    for message in messages:
        if message.agent_visible and message.seq not in hidden:
            replaced = blocks_by_seq.get(message.seq, {})
            entries.append(Entry(message=message, replaced=replaced, stripped=message.seq in stripped))
    entries.extend(Entry(summary=edit) for edit in overlay.summaries)
    entries.extend(Entry(digest=edit) for edit in overlay.digests if edit.after_seq not in hidden)
    return sorted(entries, key=_place)


def _place(entry: Entry) -> tuple[int, int]:
    """A summary stands before the message of its position, a digest after it."""
    return entry.first_seq, 0 if entry.summary else 1 if entry.message else 2


class _Spans:
    """Which positions lie inside any of some edits' spans."""

    def __init__(self, edits: Iterable[SpanEdit]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in sorted(edit.span for edit in edits):
            if self._ends and first <= self._ends[-1] + 1:
                self._ends[-1] = max(self._ends[-1], last)
            else:
                self._starts.append(first)
                self._ends.append(last)

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self._starts, seq) - 1
        return place >= 0 and seq <= self._ends[place]


def parts_of(entries: Iterable[Entry]) -> dict[Part, int]:
    """Tokens by part over a whole view."""
    totals: dict[Part, int] = {}
    for entry in entries:
        for part, tokens in entry.parts().items():
            totals[part] = totals.get(part, 0) + tokens
    return totals


def total_tokens(entries: Iterable[Entry]) -> int:
    """Tokens of a whole view."""
    return sum(entry.tokens for entry in entries)


def change(before: Iterable[Entry], after: Iterable[Entry]) -> dict[Part, int]:
    """By how many tokens each part differs from one view to the other; parts that don't are left out."""
    old, new = parts_of(before), parts_of(after)
    deltas = {part: new.get(part, 0) - old.get(part, 0) for part in (*old, *new)}
    return {part: delta for part, delta in sorted(deltas.items()) if delta}


def results_of(entries: Iterable[Entry]) -> int:
    """How many tool results a view shows, whole or cut."""
    return sum(entry.visible_results for entry in entries)


def difference(before: Sequence[Entry], after: Sequence[Entry]) -> dict[str, object]:
    """The fields of an edit that keep a session's counters in step: what it changes of the view."""
    return {
        "delta": change(before, after),
        "view_messages": len(after) - len(before),
        "view_results": results_of(after) - results_of(before),
    }
