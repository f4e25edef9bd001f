"""Compares the costs of held-out, unedited sessions with those of the others, by medians and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt
from statistics import median

from contextstash.service.results import CostGroup, HoldOutComparison

MIN_SESSIONS = 10
"""Sessions of each group below which nothing is concluded: the normal approximation of the rank test needs about ten,
and the cost of single sessions differs by a factor of ten."""

MAX_CHANCE = 0.05
"""The chance that equal groups differ so much, above which the difference is called undecided: the usual convention."""

Costs = Sequence[tuple[float, int, int]]
"""Of each session: US dollars, requests, turns of the user."""


def compared(edited: Costs, held_out: Costs) -> HoldOutComparison:
    """The comparison of both groups by the cost of a request."""
    pairs = [[dollars / requests for dollars, requests, _ in group] for group in (edited, held_out)]
    enough = min(map(len, pairs)) >= MIN_SESSIONS
    chance = _chance(*pairs) if enough else None
    return HoldOutComparison(
        edited=_group(edited),
        held_out=_group(held_out),
        chance=None if chance is None else round(chance, 3),
        verdict=_verdict(pairs[0], pairs[1], chance),
    )


def _group(costs: Costs) -> CostGroup:
    return CostGroup(
        sessions=len(costs),
        requests=sum(requests for _, requests, _ in costs),
        dollars=round(sum(dollars for dollars, _, _ in costs), 4),
        per_request=_median([dollars / requests for dollars, requests, _ in costs]),
        per_turn=_median([dollars / turns for dollars, _, turns in costs if turns]),
    )


def _median(values: Sequence[float]) -> float | None:
    return round(median(values), 6) if values else None


def _verdict(edited: Sequence[float], held_out: Sequence[float], chance: float | None) -> str:
    if chance is None:
        return f"too few sessions to tell: each group needs {MIN_SESSIONS}"
    if chance > MAX_CHANCE:
        return "no difference that could not be chance"
    cheaper = median(edited) < median(held_out)
    return "edited sessions cost less for each request" if cheaper else "edited sessions cost more for each request"


def _chance(first: Sequence[float], second: Sequence[float]) -> float:
    """The chance that equal groups differ as much in rank: Mann and Whitney's test, two-sided, by the normal
    distribution."""
    above = sum((a > b) + (a == b) / 2 for a in first for b in second)
    m, n = len(first), len(second)
    z = (above - m * n / 2) / sqrt(m * n * (m + n + 1) / 12)
    return erfc(abs(z) / sqrt(2))
