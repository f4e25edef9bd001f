"""Tiers of summaries: recent ones in detail, older ones merged to `medium` and `long`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from contextstash.context.view.compaction_plan import leading_fixed
from contextstash.context.view.view import Entry
from contextstash_storage.records import SummaryEdit, SummaryLevel

LEVELS: tuple[SummaryLevel, ...] = ("recent", "medium", "long")

MERGED_SHARE = 0.6
"""Maximum length of a merged summary, as a share of the summaries that it is made of. Two merges in a row
still keep a third of the first."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Adjacent summaries, oldest first, to be merged into one of `level`. If it is `superseded`, a newer summary stays
    after it."""

    summaries: tuple[SummaryEdit, ...]
    level: SummaryLevel
    superseded: bool = False

    @property
    def first_seq(self) -> int:
        return self.summaries[0].first_seq

    @property
    def last_seq(self) -> int:
        return self.summaries[-1].last_seq

    @property
    def tokens(self) -> int:
        return sum(edit.tokens for edit in self.summaries)


def standing_summaries(entries: Sequence[Entry]) -> tuple[SummaryEdit, ...]:
    """The summaries at the head of a view, after the system messages, oldest first."""
    found: list[SummaryEdit] = []
    for entry in entries[leading_fixed(entries) :]:
        if entry.summary is None:
            break
        found.append(entry.summary)
    return tuple(found)


def plan_merge(entries: Sequence[Entry], budget: int) -> MergePlan | None:
    """Which summaries to merge if those at the head take more than `budget` tokens; None if none are to be merged.

    The newest stays unchanged as long as there are two older ones to merge, so that recent work stays in detail.
    """
    standing = standing_summaries(entries)
    if len(standing) < 2 or sum(edit.tokens for edit in standing) <= budget:
        return None
    older = standing[:-1]
    for level, next_level in pairwise(LEVELS):
        run = [edit for edit in older if edit.level == level]
        if len(run) >= 2:
            return MergePlan(tuple(run), next_level, superseded=True)
    if len(older) >= 2:
        return MergePlan(older[-2:], _highest(older[-2:]), superseded=True)
    return MergePlan(standing, _highest((standing[0],)) if standing[0].level != "recent" else "medium")


def _highest(edits: Sequence[SummaryEdit]) -> SummaryLevel:
    return max((edit.level for edit in edits), key=LEVELS.index)
