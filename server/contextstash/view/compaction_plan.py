"""Compaction plans: where to split a view into what is summarized and what is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.messages.cuts import safe_cuts
from contextstash.view import session_counters as counting
from contextstash.view.output_importance import UNKNOWN, Importance
from contextstash.view.pinned_outputs import pinned_tokens
from contextstash.view.prune_plan import Candidate, visible_outputs
from contextstash.view.reach import Beyond
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash.view.thinking_blocks import later_cut
from contextstash.view.view import Entry, total_tokens
from contextstash_storage.records import Output

MAX_SUMMARY_SHARE = 0.9
"""A compaction is only done if the summary takes less than this share of what it replaces. A smaller saving is
not worth the loss of detail."""

WHOLE_SHARE = 0.6
"""Of the messages that a reduction to the low-water mark keeps, the newest with this share of the tokens stay whole; in
older ones, outputs become placeholders. Measured with bench/fidelity: 0.3 to 1 keep about as much of what is needed
later; with 0.6 the history that is kept is about half as long again, and each of its outputs has a handle."""

WHOLE_REQUEST_SHARE = 1 / 4
"""Of the usable window: a first request up to this size is not summarized alone, which could only shorten the user's
words."""

WORKING_SHARE = 0.5
"""Of the tokens of whole messages that a reduction keeps, outputs of the working set in older messages take at most
this share in addition; more would leave too few messages."""

LEFT_SHARE = 0.47
"""A reduction to the low-water mark leaves about this share of the usable window at most, with its summary and the
texts of files: a little less than leaving out the oldest messages down to half does. Measured with bench/fidelity: with
more the window is reduced sooner again, and each reduction is written to the prompt cache."""

PLACEHOLDER_TOKENS = 60
"""About how many tokens a placeholder takes. Ours take about 50."""


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """Messages `first_seq` to `last_seq` are to be summarized; `covered` are their entries in the view, which may
    include an earlier summary, and `beyond` the older ones that are covered too, beyond the snapshot's reach. If there
    are none, `reason` says why."""

    covered: tuple[Entry, ...]
    kept: tuple[Entry, ...]
    reason: str
    beyond: Beyond | None = None

    @property
    def first_seq(self) -> int:
        """Digest messages at the head are skipped: each belongs to a message that is not covered."""
        first = next(entry.first_seq for entry in self.covered if not entry.digest)
        return min(first, self.beyond.first_seq) if self.beyond else first

    @property
    def last_seq(self) -> int:
        return self.covered[-1].last_seq

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.covered) + (self.beyond.tokens if self.beyond else 0)

    @property
    def messages(self) -> int:
        """How many recorded messages are covered."""
        own = sum(entry.message is not None for entry in self.covered)
        return own + (self.beyond.messages if self.beyond else 0)


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """How many of the newest messages a compaction keeps: about `tokens`, and at least `messages`. With `either`,
    `messages` counts only if `tokens` is 0. With `levels`, earlier summaries stay next to the new one. Only the newest
    messages with `whole` tokens, and the newest step, keep outputs of more than `smallest` tokens, the others keep
    placeholders; all keep them if `whole` is None. By `importance`, superseded outputs become placeholders in newer
    messages too, and those of the working set stay in older ones. A first request of at most `request` tokens is not
    summarized alone."""

    tokens: int
    messages: int
    either: bool = False
    levels: bool = False
    whole: int | None = None
    smallest: int = 0
    request: int = 0
    importance: Importance = UNKNOWN


def plan_compaction(
    entries: Sequence[Entry], keep: KeepLimits, outputs: Mapping[tuple[int, int], Output] | None = None
) -> CompactPlan:
    """Splits a view into what is summarized and what is kept.

    System messages and the user's words at the head are always kept. Of the rest about `keep.tokens` of the newest are
    kept, at most half unless `keep.either`, and at least `keep.messages` messages. The view is split only where no
    provider's rule is violated.
    """
    head = leading_fixed(entries)
    if keep.levels:
        head += _leading_summaries(entries[head:])
    body = entries[head:]
    cuts = [cut for cut in cuts_of(body) if cut > 0]
    if not cuts:
        return CompactPlan(
            (),
            tuple(entries),
            "Nothing done: the session cannot be split at any message.",
        )
    messages = 0 if keep.either and keep.tokens else keep.messages
    # At most half, so that a short session gets smaller too.
    budget = keep.tokens if keep.either else min(keep.tokens, sum(entry.tokens for entry in body) // 2)
    wanted = _wanted_cut(_costs(body, keep, outputs or {}), budget, messages)
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
        return CompactPlan((), tuple(entries), "Nothing done: only summaries precede the recent messages.")
    if _is_request(covered, keep.request):
        return CompactPlan((), tuple(entries), "Nothing done: only the first request precedes the recent messages.")
    return CompactPlan(covered, tuple(body[cut:]), "")


def _is_request(covered: Sequence[Entry], most_tokens: int) -> bool:
    """Whether only the first request would be summarized, and has at most so many tokens."""
    return len(covered) == 1 and not covered[0].summary and covered[0].tokens <= most_tokens


def plan_without_thinking(plan: CompactPlan) -> CompactPlan:
    """The plan with its cut moved so that no thinking is kept, if at least half of what it keeps is still kept; else
    the same plan."""
    entries = [*plan.covered, *plan.kept]
    cut = later_cut(entries, cuts_of(entries), len(plan.covered))
    return plan if cut is None else replace(plan, covered=tuple(entries[:cut]), kept=tuple(entries[cut:]), reason="")


def plan_same(
    entries: Sequence[Entry], first_seq: int, last_seq: int, beyond: Beyond | None = None
) -> CompactPlan | None:
    """The plan that covers exactly these messages again; None if the view cannot be split there any more."""
    head = leading_fixed(entries)
    while head < len(entries) and entries[head].last_seq < first_seq:
        head += 1
    body = entries[head:]
    cut = next((place for place, entry in enumerate(body) if entry.first_seq > last_seq), len(body))
    covered = tuple(body[:cut])
    if cut not in cuts_of(body) or not any(entry.message for entry in covered):
        return None
    plan = CompactPlan(covered, tuple(body[cut:]), "", beyond)
    return plan if (plan.first_seq, plan.last_seq) == (first_seq, last_seq) else None


def _leading_summaries(entries: Sequence[Entry]) -> int:
    """How many entries at the head are summaries."""
    return next((place for place, entry in enumerate(entries) if not entry.summary), len(entries))


def leading_fixed(entries: Sequence[Entry]) -> int:
    """How many entries at the head stay in every view: the system messages, and our messages with the user's words."""
    other = (place for place, entry in enumerate(entries) if not (entry.is_system or entry.is_user_block))
    return next(other, len(entries))


def cuts_of(entries: Sequence[Entry]) -> list[int]:
    """The positions at which a list of entries can be split: those that every pairing rule allows."""
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


def _wanted_cut(costs: Sequence[int], budget: int, keep_messages: int) -> int:
    tokens = 0
    cut = len(costs)
    while cut > 0 and tokens + costs[cut - 1] <= budget:
        cut -= 1
        tokens += costs[cut]
    return min(cut, max(0, len(costs) - keep_messages))


def _costs(body: Sequence[Entry], keep: KeepLimits, outputs: Mapping[tuple[int, int], Output]) -> list[int]:
    """The tokens of each entry once the outputs that the plan replaces are placeholders."""
    saved: dict[int, int] = {}
    for candidate in outputs_to_archive(body, keep, outputs):
        seq = candidate.output.seq
        saved[seq] = saved.get(seq, 0) + candidate.view_tokens - PLACEHOLDER_TOKENS
    return [entry.tokens - (saved.get(entry.message.seq, 0) if entry.message else 0) for entry in body]


def room_beside(
    snapshot: SessionSnapshot, plan: CompactPlan, keep: KeepLimits, outputs: Mapping[tuple[int, int], Output]
) -> int:
    """The tokens that a plan leaves for its summary and the texts of files if LEFT_SHARE of the usable window is to be
    used; below 0 if what it keeps takes more, such as a large step that the model has not seen yet."""
    kept = _fixed_tokens(snapshot, keep.levels) + sum(_costs(plan.kept, keep, outputs))
    return int(snapshot.budget.usable * LEFT_SHARE) - kept


def outputs_to_archive(
    kept: Sequence[Entry], keep: KeepLimits, outputs: Mapping[tuple[int, int], Output]
) -> tuple[Candidate, ...]:
    """The outputs in kept messages that become placeholders: all but those of the newest messages and the working set,
    and those that are superseded."""
    if keep.whole is None:
        return ()
    found: list[Candidate] = []
    tokens, room = 0, int(keep.whole * WORKING_SHARE)
    step = _newest_step(kept)
    for position, entry in enumerate(reversed(kept)):
        tokens += entry.tokens
        recent = tokens <= keep.whole
        protected = position < step or (position < keep.messages and tokens <= keep.tokens)
        for candidate in () if protected else visible_outputs(entry, outputs):
            place, cost = _place(candidate), candidate.view_tokens
            if cost <= max(keep.smallest, PLACEHOLDER_TOKENS) or (recent and place not in keep.importance.superseded):
                continue
            if place in keep.importance.working and cost <= room:
                room -= cost
            else:
                found.append(candidate)
    return tuple(reversed(found))


def _newest_step(entries: Sequence[Entry]) -> int:
    """How many of the newest entries the model has not replied to yet, with its calls: it must see their outputs."""
    replies = (
        place for place, entry in enumerate(reversed(entries), 1) if entry.message and entry.message.role == "assistant"
    )
    return next(replies, len(entries))


def enough_to_free(candidates: Sequence[Candidate], tokens: int, importance: Importance) -> tuple[Candidate, ...]:
    """The outputs of these that have to become placeholders to free so many tokens: superseded ones first, then the
    oldest; all of them if they are too few."""
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: (_place(each) not in importance.superseded, _place(each))):
        if tokens <= 0:
            break
        tokens -= candidate.view_tokens - PLACEHOLDER_TOKENS
        chosen.append(candidate)
    return tuple(sorted(chosen, key=_place))


def _place(candidate: Candidate) -> Place:
    return candidate.output.seq, candidate.output.block


def keep_limits(snapshot: SessionSnapshot, importance: Importance = UNKNOWN) -> KeepLimits:
    """What a compaction keeps, by the session's settings and the importance of the outputs in the view."""
    settings, tokens = snapshot.settings, snapshot.budget.compact_keep_tokens
    # If the summaries take too much of the window, the next one takes the place of all.
    levels, whole, request = settings.summaries == "levels" and _one_more_fits(snapshot), None, 0
    if snapshot.budget.low_water is not None and settings.compact_keep_tokens is None:
        # An eighth is kept even if system prompt, tools and summaries take the rest of what the mark allows.
        tokens = max(tokens - _fixed_tokens(snapshot, levels) - pinned_tokens(snapshot), snapshot.budget.free // 8)
        whole = int(tokens * WHOLE_SHARE)
        request = int(snapshot.budget.usable * WHOLE_REQUEST_SHARE)
    return KeepLimits(
        tokens=tokens,
        messages=settings.compact_keep_messages,
        either=settings.compact_keep == "either",
        levels=levels,
        whole=whole,
        smallest=settings.prune_smallest_tokens,
        request=request,
        importance=importance,
    )


def _one_more_fits(snapshot: SessionSnapshot) -> bool:
    """Whether the standing summaries stay within their share of the window, with a further one if the room that a
    reduction leaves is bounded."""
    head = leading_fixed(snapshot.entries)
    standing = snapshot.entries[head : head + _leading_summaries(snapshot.entries[head:])]
    share = int(snapshot.budget.usable * snapshot.settings.summaries_share)
    bounded = snapshot.budget.low_water is not None and snapshot.settings.compact_keep_tokens is None
    return total_tokens(standing) + snapshot.budget.summary_tokens * bounded <= share


def _fixed_tokens(snapshot: SessionSnapshot, levels: bool) -> int:
    """What a compaction leaves as it is: system messages, with `levels` the standing summaries, and what was never
    recorded."""
    estimated, _ = counting.estimate(snapshot.session.counters, snapshot.settings, snapshot.counter.name)
    unrecorded = max(0, estimated - snapshot.session.counters.view_tokens)
    head = leading_fixed(snapshot.entries)
    if levels:
        head += _leading_summaries(snapshot.entries[head:])
    return unrecorded + total_tokens(snapshot.entries[:head])
