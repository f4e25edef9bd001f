"""The view: a session's history with its edits applied, which is what is sent to the model; and its branches: a
conversation goes back to an earlier message and continues from there, and the old branch stays stored."""

from __future__ import annotations

from bisect import bisect_right, insort_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

from contextstash.safety.sanitize import USER_BLOCK, USER_BLOCK_WHOLE
from contextstash.window.settings import DESCRIBED, ContextSettings
from contextstash.window.token_counters import Counter
from contextstash_storage.records import (
    ArchiveEdit,
    Block,
    Cover,
    DigestEdit,
    Edit,
    Kind,
    Message,
    Native,
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

USUAL_PLACEHOLDER = 70
"""Tokens. Of the placeholders of our own wording in recorded sessions, 19 in 20 take more, of every model."""


_PARTS: dict[str, Part] = {
    "thinking": Part.THINKING,
    "tool_call": Part.TOOL_CALLS,
    "tool_result": Part.TOOL_RESULTS,
    "image": Part.IMAGES,
    "document": Part.IMAGES,
    "system": Part.SYSTEM,
    "user": Part.USER,
    "assistant": Part.ASSISTANT,
    "tool": Part.TOOL_RESULTS,
}
"""By the type of a block, else by the role of its message."""


def part_named(role: Role, kind: Kind, block_type: str) -> Part:
    """The part of blocks of this type in messages of this role and kind."""
    if kind in ("summary", "tool_summary"):
        return Part.SUMMARIES
    return _PARTS.get(block_type) or _PARTS[role]


@dataclass(frozen=True, slots=True)
class Overlay:
    """The edits in force. `replaced` maps (seq, block) to the archive or truncate edit that is shown there; `covers`
    are the summaries and rewinds that hide messages, by position; `digests` are our messages about archived outputs;
    `strips` are the ranges in which no thinking is shown."""

    replaced: Mapping[tuple[int, int], Replacement]
    covers: tuple[Cover, ...]
    digests: tuple[DigestEdit, ...] = ()
    strips: tuple[StripEdit, ...] = ()

    @property
    def summaries(self) -> tuple[SummaryEdit, ...]:
        return tuple(edit for edit in self.covers if isinstance(edit, SummaryEdit))

    def visible_ranges(self, messages: int) -> list[tuple[int, int]]:
        """The runs `(first, last)` of the `messages` recorded messages that no summary or rewind hides."""
        hidden = _Spans(self.covers)
        starts = [0, *(end + 1 for end in hidden.ends)]
        ends = [*(min(start, messages) - 1 for start in hidden.starts), messages - 1]
        return [(first, last) for first, last in zip(starts, ends, strict=True) if first <= last]

    def with_edits(self, edits: Iterable[Edit]) -> Overlay:
        """The overlay with these edits laid over it, none of which undoes another."""
        replaced, covers = dict(self.replaced), list(self.covers)
        digests, strips = list(self.digests), list(self.strips)
        for edit in edits:
            # Messages with the user's words leave the view when they are written again as a whole, and with a summary
            # by the client (it stands at the position of the client's own message), whose new window has none of them.
            renewed = isinstance(edit, DigestEdit) and edit.text.startswith(USER_BLOCK_WHOLE)
            if renewed or (isinstance(edit, SummaryEdit) and edit.seq is not None):
                digests = [each for each in digests if not is_user_block(each)]
            match edit:
                case ArchiveEdit() | TruncateEdit():
                    replaced[edit.seq, edit.block] = edit
                case DigestEdit():
                    digests.append(edit)
                case StripEdit():
                    strips.append(edit)
                case SummaryEdit() | RewindEdit():
                    first, last = edit.span
                    outside = [each for each in covers if each.first_seq < first or last < each.last_seq]
                    covers = [*outside, edit]
        return Overlay(replaced, tuple(sorted(covers, key=lambda cover: cover.span)), tuple(digests), tuple(strips))


def edits_in_force(edits: Iterable[Edit]) -> Overlay:
    """The edits of an append-only list that no restore has undone.

    A cover that lies completely inside a later one is hidden by it, and returns when the later one is undone.
    """
    return Overlay({}, ()).with_edits(_live(edits)[0])


def is_user_block(edit: object) -> bool:
    """Whether an edit adds a message that holds the user's words."""
    return isinstance(edit, DigestEdit) and edit.text.startswith(USER_BLOCK)


@dataclass(frozen=True)
class Entry:
    """One message as the model sees it: a recorded message, perhaps with blocks replaced or its thinking `stripped`; a
    summary; or a digest message about archived outputs."""

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
        """The edit that made this entry. Raises ValueError if the entry is a recorded message."""
        made_by = self.summary or self.digest
        if made_by is None:
            raise ValueError("this entry is a recorded message")
        return made_by

    @property
    def kind(self) -> Kind:
        """The kind of message that the model sees here."""
        if self.message is None:
            return "summary" if self.summary else "tool_summary"
        has_results = any(block.type == "tool_result" for block in self.message.blocks)
        return "tool_result_archived" if has_results and not self.visible_results else self.message.kind

    @cached_property
    def visible_results(self) -> int:
        """How many tool results are shown here, whole or cut."""
        blocks = self.message.blocks if self.message else ()
        results = [place for place, block in enumerate(blocks) if block.type == "tool_result"]
        return sum(not isinstance(self.replaced.get(place), ArchiveEdit) for place in results)

    @cached_property
    def parts(self) -> Mapping[Part, int]:
        """Tokens by part, as the model sees this entry."""
        if self.message is None:
            return {Part.SUMMARIES: self.edit.tokens}
        role, kind, blocks = self.message.role, self.message.kind, self.message.blocks
        gone = {index for shown in self.replaced for index in _with_images(blocks, shown)}
        totals: dict[Part, int] = {}
        for index, block in enumerate(blocks):
            if index not in gone and not (self.stripped and block.type == "thinking"):
                part = part_named(role, kind, block.type)
                totals[part] = totals.get(part, 0) + block.tokens
        for index, edit in self.replaced.items():
            # An output that is cut is still in the view: only a placeholder stands for an archived one.
            is_archived = isinstance(edit, ArchiveEdit)
            part = Part.ARCHIVED if is_archived else part_named(role, kind, blocks[index].type)
            totals[part] = totals.get(part, 0) + edit.tokens
        return totals

    @cached_property
    def tokens(self) -> int:
        if self.message is not None and not self.replaced and not self.stripped:
            return self.message.tokens
        return sum(self.parts.values())

    @cached_property
    def open_calls(self) -> int:
        """How many more calls it makes than results it holds."""
        blocks = self.message.blocks if self.message else ()
        return sum((block.type == "tool_call") - (block.type == "tool_result") for block in blocks)

    def sent(self, body: Native, make: Callable[[], list[Native]]) -> list[Native]:
        """What `make` returns, which is made of this entry and the JSON that was recorded: once, for many requests."""
        known: tuple[Native, list[Native]] | None = self.__dict__.get("_sent")
        if known is None or known[0] is not body:
            known = self.__dict__["_sent"] = (body, make())  # as functools.cached_property does
        return known[1]

    @property
    def thinks(self) -> bool:
        """Whether it shows thinking of the model."""
        return self.message is not None and not self.stripped and thinking_tokens(self.message) > 0

    @property
    def user_words(self) -> str:
        """The text of a message that was added to hold the user's words; else empty."""
        return self.digest.text if self.digest and is_user_block(self.digest) else ""

    @property
    def is_user_turn(self) -> bool:
        """Whether this is a message of a person, not results of tools and images in them in the user's role."""
        if self.message is None or self.message.role != "user":
            return False
        blocks = self.message.blocks
        results = [place for place, block in enumerate(blocks) if block.type == "tool_result"]
        return len({index for place in results for index in _with_images(blocks, place)}) < len(blocks)


def thinking_tokens(message: Message) -> int:
    """The tokens of a message's thinking; hidden thinking counts as one."""
    return sum([max(1, block.tokens) for block in message.blocks if block.type == "thinking"])


def _with_images(blocks: Sequence[Block], index: int) -> range:
    """The index of a block, and of a tool result also those of the images nested in it, which follow it."""
    end = index + 1
    while blocks[index].type == "tool_result" and end < len(blocks) and blocks[end].type in ("image", "document"):
        if blocks[end].call_id != blocks[index].call_id:
            break
        end += 1
    return range(index, end)


def output_tokens(message: Message, index: int) -> int:
    """The tokens of a tool result in the view, including the images nested in it."""
    return sum(message.blocks[i].tokens for i in _with_images(message.blocks, index))


def build_view(
    messages: Iterable[Message], overlay: Overlay, known: Mapping[int, Entry] = MappingProxyType({})
) -> list[Entry]:
    """The view's entries in order. `messages` must include all that no cover hides. `known` are entries, by position,
    of messages in which no edit since has changed anything: what they add up to is known too."""
    hidden = _Spans(overlay.covers)
    added = [Entry(summary=edit) for edit in overlay.summaries]
    added += [Entry(digest=edit) for edit in overlay.digests if edit.after_seq not in hidden]
    entries = message_entries(messages, overlay, known)
    for entry in added:
        insort_right(entries, entry, key=_place)
    return entries


def message_entries(
    messages: Iterable[Message], overlay: Overlay, known: Mapping[int, Entry] = MappingProxyType({})
) -> list[Entry]:
    """The entries of those messages that the view shows, in order; without those that edits add between them."""
    entries: list[Entry] = []
    hidden = _Spans(overlay.covers)
    stripped = _Spans(overlay.strips)
    edits = overlay.replaced
    for message in messages:
        seq = message.seq
        if not message.agent_visible or seq in hidden:
            continue
        made = known.get(seq)
        if made is None or made.message is not message:
            # Looked up one by one: there can be far more edits of hidden messages.
            places = range(len(message.blocks)) if edits else ()
            replaced = {place: edits[seq, place] for place in places if (seq, place) in edits}
            made = Entry(message, replaced=replaced, stripped=seq in stripped)
        entries.append(made)
    return entries


def untouched(entries: Iterable[Entry], edits: Sequence[Edit]) -> dict[int, Entry]:
    """The entries of messages, by position, of which these edits change nothing; they may hide them. None of the edits
    restores anything."""
    places = {edit.seq for edit in edits if isinstance(edit, ArchiveEdit | TruncateEdit)}
    stripped = _Spans(edit for edit in edits if isinstance(edit, StripEdit))
    return {
        entry.message.seq: entry
        for entry in entries
        if entry.message and entry.message.seq not in places and entry.message.seq not in stripped
    }


def _place(entry: Entry) -> tuple[int, int]:
    """A summary comes before the message at its position, a digest after it."""
    return entry.first_seq, 0 if entry.summary else 1 if entry.message else 2


class _Spans:
    """The positions inside any of the edits' spans."""

    def __init__(self, edits: Iterable[SpanEdit]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for first, last in sorted(edit.span for edit in edits):
            if self.ends and first <= self.ends[-1] + 1:
                self.ends[-1] = max(self.ends[-1], last)
            else:
                self.starts.append(first)
                self.ends.append(last)

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self.starts, seq) - 1
        return place >= 0 and seq <= self.ends[place]


def parts_of(entries: Iterable[Entry]) -> dict[Part, int]:
    """The tokens of a whole view by part."""
    totals: dict[Part, int] = {}
    for entry in entries:
        parts = entry.parts
        for part in parts:
            totals[part] = totals.get(part, 0) + parts[part]
    return totals


def total_tokens(entries: Iterable[Entry]) -> int:
    """Tokens of a whole view."""
    return sum([entry.tokens for entry in entries])


def smallest_placeholder(settings: ContextSettings, counter: Counter) -> int:
    """The tokens that nearly every placeholder takes at least; words of the user's own can be empty."""
    return (USUAL_PLACEHOLDER if settings.placeholder == DESCRIBED else 0) + counter.family.result_overhead


def smallest_tokens(entry: Entry, placeholder: int) -> int:
    """The fewest tokens that an entry takes once its outputs are placeholders of at least `placeholder` tokens and its
    thinking is stripped."""
    if entry.message is None:
        return entry.edit.tokens
    total = 0
    for index, block in enumerate(entry.message.blocks):
        if block.type == "tool_result":
            shown = entry.replaced.get(index)
            total += min(placeholder, shown.tokens if shown else block.tokens)
        elif block.type in ("text", "tool_call"):
            total += block.tokens
    return total


def results_of(entries: Iterable[Entry]) -> int:
    """How many tool results a view shows, whole or cut."""
    return sum([entry.visible_results for entry in entries])


HOST = "host"
"""The strategy of edits that repeat what a client or a program did to its own conversation."""


def known_path(edits: Iterable[Edit], stored: Sequence[bytes], listed: Sequence[bytes]) -> tuple[int, ...]:
    """The positions of the stored messages that are equal to the beginning of a list, by their fingerprints, along one
    branch. Of two paths of the same length the newer one is returned."""
    parents = _parents(edits)
    after: dict[int, list[int]] = {}
    for seq in range(len(stored)):
        after.setdefault(parents.get(seq, seq - 1), []).append(seq)
    last = -1
    ends = [last]
    for fingerprint in listed:
        ends = [seq for at in ends for seq in after.get(at, ()) if stored[seq] == fingerprint]
        if not ends:
            break
        last = max(ends)
    return tuple(sorted(_ancestors(parents, last)))


def path_to(edits: Iterable[Edit], last: int) -> frozenset[int]:
    """The message `last` and those that it descends from."""
    return frozenset(_ancestors(_parents(edits), last))


def rewinds_in_force(edits: Iterable[Edit]) -> list[RewindEdit]:
    """The rewinds that hide a branch which the conversation has left and not gone back to."""
    return [edit for edit in _live(edits)[0] if isinstance(edit, RewindEdit)]


def _ancestors(parents: Mapping[int, int], last: int) -> Iterator[int]:
    """A message and those that it descends from, the nearest first."""
    while last >= 0:
        yield last
        last = parents.get(last, last - 1)


def _parents(edits: Iterable[Edit]) -> dict[int, int]:
    """The parents of the messages whose parent is not the message before them. The message after a rewind descends from
    the one before what the rewind hid, unless the rewind was undone before that message was recorded."""
    parents: dict[int, int] = {}
    live: dict[int, tuple[int, int]] = {}
    for edit in edits:
        if isinstance(edit, RewindEdit):
            live[edit.edit_id] = edit.span
            parents[edit.last_seq + 1] = edit.first_seq - 1
        elif isinstance(edit, RestoreEdit):
            for undone in edit.undoes:
                live.pop(undone, None)
            if edit.seq is not None:  # the next message, which is not stored yet, gets another parent
                starts = [first for first, last in live.values() if last + 1 == edit.seq]
                parents[edit.seq] = min(starts, default=edit.seq) - 1
    return parents


def rewinding(edits: Sequence[Edit], messages: int, last: int) -> list[Edit]:
    """The edits after which a view of `messages` messages continues after message `last`: its path is shown, the other
    branches are hidden. No edits if the view does so already."""
    path = path_to(edits, last)
    live, undone_by_host = _live(edits)
    covers = [edit for edit in live if isinstance(edit, SummaryEdit | RewindEdit)]
    undone = [cover for cover in covers if not _applies(cover, path)]
    standing = [cover.span for cover in covers if isinstance(cover, RewindEdit) and cover not in undone]
    shown = {cover.summary_id for cover in covers if isinstance(cover, SummaryEdit)}
    again = [
        edit.model_copy(update={"edit_id": 0, "created_at": None})
        for edit in undone_by_host
        if isinstance(edit, SummaryEdit)
        and edit.strategy == HOST
        and _applies(edit, path)
        and edit.summary_id not in shown
    ]
    hidden = [
        RewindEdit(first_seq=before + 1, last_seq=after - 1)
        for before, after in pairwise([-1, *sorted(path), messages])
        if after > before + 1 and not any(start <= before + 1 and after - 1 <= stop for start, stop in standing)
    ]
    gone = {cover.summary_id for cover in undone if isinstance(cover, SummaryEdit)}
    words = [edit for edit in live if isinstance(edit, DigestEdit) and set(edit.handles) <= gone]
    return [*restored([*undone, *words], at=messages), *again[-1:], *hidden]


def restored(edits: Sequence[Cover | DigestEdit], *, at: int | None = None) -> list[RestoreEdit]:
    """The edit that undoes these; `at` is the position of the next message, if the conversation changes its branch."""
    if not edits:
        return []
    return [RestoreEdit(strategy=HOST, seq=at, undoes=tuple(edit.edit_id for edit in edits))]


def _live(edits: Iterable[Edit]) -> tuple[list[Edit], list[Edit]]:
    """The edits that no restore has undone, including hidden ones; and those that the client itself undid."""
    live: dict[int, Edit] = {}
    undone_by_host: list[Edit] = []
    number = 0
    for edit in edits:
        number = edit.edit_id or number + 1  # edits that are not stored yet have no number
        live[number] = edit
        if isinstance(edit, RestoreEdit):
            undone = [live.pop(each) for each in edit.undoes if each in live]
            undone_by_host += undone if edit.strategy == HOST else []
    return list(live.values()), undone_by_host


def _applies(cover: Cover, path: frozenset[int]) -> bool:
    """Whether a cover is right for a path: a rewind if it hides nothing of it, a summary if it was written on it."""
    if isinstance(cover, RewindEdit):
        return path.isdisjoint(range(cover.first_seq, cover.last_seq + 1))
    return (cover.last_seq if cover.seq is None else cover.seq) in path
