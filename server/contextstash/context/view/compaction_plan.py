"""Where to split a session for a summary: pure planning over a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.context.pairing import safe_cuts
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.context.view.thinking_blocks import later_cut
from contextstash.context.view.view import Entry

MINIMUM_PROGRESS = 0.9
"""A compaction is worth doing only if the summary takes less than this share of what it replaces."""


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """Messages `first_seq..last_seq` are to be summarized; `covered` are their entries in the view, an earlier
    summary among them included. Without entries, `reason` says why."""

    covered: tuple[Entry, ...]
    kept: tuple[Entry, ...]
    reason: str

    @property
    def first_seq(self) -> int:
        """A digest message at the head stands after a message that is not covered."""
        return next(entry.first_seq for entry in self.covered if not entry.digest)

    @property
    def last_seq(self) -> int:
        return self.covered[-1].last_seq

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.covered)


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """What a compaction keeps of the newest: about `tokens`, and at least `messages`. With `either`, the messages
    count only if `tokens` is 0. `levels` leaves earlier summaries standing beside the new one."""

    tokens: int
    messages: int
    either: bool = False
    levels: bool = False


def plan_compaction(entries: Sequence[Entry], keep: KeepLimits) -> CompactPlan:
    """Split a view into what is summarized and what is kept.

    System messages at the head are always kept. Of the rest about `keep.tokens` of the newest are kept, at most
    half unless `keep.either`, and at least `keep.messages` messages; the split falls where no provider's rule is
    broken.
    """
    head = leading_system(entries)
    if keep.levels:
        head += _leading_summaries(entries[head:])
    body = entries[head:]
    cuts = [cut for cut in cuts_of(body) if cut > 0]
    if not cuts:
        return CompactPlan((), tuple(entries), "Nothing done: there is no place where the session may be split.")
    messages = 0 if keep.either and keep.tokens else keep.messages
    room = keep.tokens if keep.either else min(keep.tokens, sum(entry.tokens for entry in body) // 2)
    wanted = _wanted_cut(body, room, messages)
    later = [cut for cut in cuts if wanted <= cut <= len(body) - messages]
    earlier = [cut for cut in cuts if cut <= wanted]
    if not wanted or (not later and not earlier):
        return CompactPlan(
            (),
            tuple(entries),
            f"Nothing done: all {len(body)} messages are recent or belong to an open tool call.",
        )
    cut = later[0] if later else earlier[-1]
    covered = tuple(body[:cut])
    if not any(entry.message for entry in covered):
        return CompactPlan((), tuple(entries), "Nothing done: only summaries stand before the recent messages.")
    return CompactPlan(covered, tuple(body[cut:]), "")


def plan_without_thinking(plan: CompactPlan) -> CompactPlan:
    """The plan with its cut moved to where no thinking is kept, if that costs no more than half of what is kept;
    else as it is."""
    entries = [*plan.covered, *plan.kept]
    cut = later_cut(entries, cuts_of(entries), len(plan.covered))
    return plan if cut is None else CompactPlan(tuple(entries[:cut]), tuple(entries[cut:]), "")


def plan_same(entries: Sequence[Entry], first_seq: int, last_seq: int) -> CompactPlan | None:
    """The plan that covers just these messages once more; None if the view may not be split there any more."""
    head = leading_system(entries)
    while head < len(entries) and entries[head].last_seq < first_seq:
        head += 1
    body = entries[head:]
    cut = next((place for place, entry in enumerate(body) if entry.first_seq > last_seq), len(body))
    covered = tuple(body[:cut])
    if cut not in cuts_of(body) or not any(entry.message for entry in covered):
        return None
    plan = CompactPlan(covered, tuple(body[cut:]), "")
    return plan if (plan.first_seq, plan.last_seq) == (first_seq, last_seq) else None


def _leading_summaries(entries: Sequence[Entry]) -> int:
    """How many summaries stand at the head."""
    count = 0
    while count < len(entries) and entries[count].summary:
        count += 1
    return count


def leading_system(entries: Sequence[Entry]) -> int:
    """How many entries at the head are system messages."""
    count = 0
    for entry in entries:
        if not entry.is_system:
            break
        count += 1
    return count


def cuts_of(entries: Sequence[Entry]) -> list[int]:
    """Positions in a list of entries where it may be split: those that every pairing rule allows."""
    messages = [entry.message for entry in entries if entry.message]
    allowed = set(safe_cuts(messages))
    cuts: list[int] = []
    seen = 0
    for position, entry in enumerate(entries):
        if seen in allowed:
            cuts.append(position)
        seen += entry.message is not None
    if seen in allowed:
        cuts.append(len(entries))
    return cuts


def _wanted_cut(body: Sequence[Entry], room: int, keep_messages: int) -> int:
    tokens = 0
    cut = len(body)
    while cut > 0 and tokens + body[cut - 1].tokens <= room:
        cut -= 1
        tokens += body[cut].tokens
    return min(cut, max(0, len(body) - keep_messages))


def keep_limits(snapshot: SessionSnapshot) -> KeepLimits:
    """What a compaction keeps, by the session's settings."""
    settings = snapshot.settings
    return KeepLimits(
        tokens=snapshot.budget.compact_keep_tokens,
        messages=settings.compact_keep_messages,
        either=settings.compact_keep == "either",
        levels=settings.summaries == "levels",
    )
