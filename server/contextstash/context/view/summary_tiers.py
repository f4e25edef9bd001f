"""Levels of summaries: recent ones in detail, older ones merged to medium and long; pure planning over a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from contextstash.context.view.compaction_plan import leading_system
from contextstash.context.view.view import Entry
from contextstash_storage.records import SummaryEdit, SummaryLevel

LEVELS: tuple[SummaryLevel, ...] = ("recent", "medium", "long")

MERGED_SHARE = 0.6
"""A merged summary may take this share of what it is made of."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Adjacent summaries, oldest first, to be made one of `level`."""

    summaries: tuple[SummaryEdit, ...]
    level: SummaryLevel

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
    """The summaries that stand one after the other at the head of a view, oldest first."""
    found: list[SummaryEdit] = []
    for entry in entries[leading_system(entries) :]:
        if entry.summary is None:
            break
        found.append(entry.summary)
    return tuple(found)


def plan_merge(entries: Sequence[Entry], room: int) -> MergePlan | None:
    """Which summaries to merge if those at the head take more than `room` tokens; None if nothing is to be.

    The newest stays as it is as long as there are two older ones to merge: what is recent is told in detail.
    """
    standing = standing_summaries(entries)
    if len(standing) < 2 or sum(edit.tokens for edit in standing) <= room:
        return None
    older = standing[:-1]
    for level, next_level in pairwise(LEVELS):
        run = [edit for edit in older if edit.level == level]
        if len(run) >= 2:
            return MergePlan(tuple(run), next_level)
    if len(older) >= 2:
        return MergePlan(older[-2:], _highest(older[-2:]))
    return MergePlan(standing, _highest((standing[0],)) if standing[0].level != "recent" else "medium")


def _highest(edits: Sequence[SummaryEdit]) -> SummaryLevel:
    return max((edit.level for edit in edits), key=LEVELS.index)
