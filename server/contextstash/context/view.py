"""The view: a session's history with its edits laid over it, which is what the model is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from contextstash_storage.records import Block, Edit, Message, NewMessage, Part


@dataclass(frozen=True, slots=True)
class Overlay:
    """The edits in force. `replaced` maps (seq, block) to the archive or truncate edit shown there;
    `covers` are the summaries and rewinds that hide messages, by position."""

    replaced: Mapping[tuple[int, int], Edit]
    covers: tuple[Edit, ...]

    @property
    def summaries(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.covers if edit.kind == "summary")

    def visible_ranges(self, messages: int) -> list[tuple[int, int]]:
        """Runs `(first, last)` of the `messages` recorded ones that no summary or rewind hides."""
        ranges: list[tuple[int, int]] = []
        start = 0
        for cover in self.covers:
            first, last = span(cover)
            if first > start:
                ranges.append((start, min(first, messages) - 1))
            start = max(start, last + 1)
        if start < messages:
            ranges.append((start, messages - 1))
        return ranges


def span(edit: Edit) -> tuple[int, int]:
    """First and last message that a summary or rewind covers."""
    if edit.first_seq is None or edit.last_seq is None:
        raise ValueError(f"edit {edit.edit_id} covers no messages")
    return edit.first_seq, edit.last_seq


def edits_in_force(edits: Iterable[Edit]) -> Overlay:
    """What is left of an append-only list of edits once restores are taken into account.

    A cover that lies wholly inside a later one is hidden by it, and comes back when the later one is undone.
    """
    live: dict[int, Edit] = {}
    for edit in edits:
        if edit.kind == "restore":
            for undone in edit.undoes:
                live.pop(undone, None)
        else:
            live[edit.edit_id] = edit
    replaced: dict[tuple[int, int], Edit] = {}
    covers: list[Edit] = []
    for edit in live.values():
        if edit.seq is not None and edit.block is not None:
            replaced[edit.seq, edit.block] = edit
        else:
            covers = [cover for cover in covers if not _inside(cover, edit)]
            covers.append(edit)
    return Overlay(replaced, tuple(sorted(covers, key=span)))


def _inside(inner: Edit, outer: Edit) -> bool:
    inner_first, inner_last = span(inner)
    outer_first, outer_last = span(outer)
    return outer_first <= inner_first and inner_last <= outer_last


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing the model sees: a recorded message, some of its blocks perhaps replaced, or a summary."""

    message: Message | None = None
    summary: Edit | None = None
    replaced: Mapping[int, Edit] = field(default_factory=dict)

    @property
    def first_seq(self) -> int:
        return self.message.seq if self.message else span(self._covering)[0]

    @property
    def last_seq(self) -> int:
        return self.message.seq if self.message else span(self._covering)[1]

    @property
    def _covering(self) -> Edit:
        if self.summary is None:
            raise ValueError("an entry is a message or a summary")
        return self.summary

    def parts(self) -> dict[Part, int]:
        """Tokens by part, as the model sees this entry."""
        if self.message is None:
            return {Part.SUMMARIES: self._covering.tokens}
        totals: dict[Part, int] = {}
        gone = {index for shown in self.replaced for index in _with_images(self.message.blocks, shown)}
        for index, block in enumerate(self.message.blocks):
            if index not in gone:
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
    if message.kind in ("summary", "tool_summary"):
        return Part.SUMMARIES
    return _PARTS_BY_TYPE.get(block.type) or _PARTS_BY_ROLE[message.role]


def lay(messages: Iterable[Message], overlay: Overlay) -> list[Entry]:
    """The view's entries in order. `messages` are at least those that no cover hides."""
    entries: list[Entry] = []
    hidden = [span(cover) for cover in overlay.covers]
    blocks_by_seq: dict[int, dict[int, Edit]] = {}
    for (seq, block), edit in overlay.replaced.items():
        blocks_by_seq.setdefault(seq, {})[block] = edit
    for message in messages:
        if message.agent_visible and not any(first <= message.seq <= last for first, last in hidden):
            entries.append(Entry(message=message, replaced=blocks_by_seq.get(message.seq, {})))
    entries.extend(Entry(summary=edit) for edit in overlay.summaries)
    return sorted(entries, key=lambda entry: (entry.first_seq, entry.message is not None))


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
