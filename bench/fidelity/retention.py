"""Retention: the share of needed facts that are in the view, with the price of all views of the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from .baselines import Policy, Run
from .costs import Shown, price, tokens_of
from .needs import Cut, cuts_at
from .sessions import Said, Session, steps_of


@dataclass(frozen=True, slots=True)
class Point:
    """One cut under one policy: how many facts were needed, how many were in the view, in the view or found by one
    search (None if the policy cannot search), and the view's tokens."""

    session: str
    at: int
    needed: int
    in_view: int
    one_search: int | None
    tokens: int


@dataclass
class Measured:
    """A policy on many sessions at one budget: the points, and the totals over all requests."""

    points: list[Point]
    cost: float = 0.0
    requests: int = 0
    sent: int = 0
    over_budget: int = 0
    invalid: int = 0

    def add(self, other: Measured) -> None:
        self.points += other.points
        self.cost += other.cost
        self.requests += other.requests
        self.sent += other.sent
        self.over_budget += other.over_budget
        self.invalid += other.invalid

    @property
    def facts(self) -> int:
        return sum(point.needed for point in self.points)

    @property
    def in_view(self) -> float:
        """Percent of the needed facts that are in the view."""
        return 100 * sum(point.in_view for point in self.points) / max(1, self.facts)

    @property
    def one_search(self) -> float | None:
        """Percent of the needed facts that are in the view or found by one search."""
        if any(point.one_search is None for point in self.points):
            return None
        return 100 * sum(point.one_search or 0 for point in self.points) / max(1, self.facts)

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a request."""
        return self.sent / max(1, self.requests)

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "in_view": self.in_view, "one_search": self.one_search, "facts": self.facts}


def measure(session: Session, policy: Policy, budget: int) -> Measured:
    """A whole session, step by step as an agent's loop sends it; each of its segments is a run of its own."""
    total = Measured([])
    for segment in session.segments:
        cuts = {cut.at: cut for cut in cuts_at(segment, budget)}
        if cuts:
            run = policy(budget)
            total.add(_measure_segment(session.name, segment, run, cuts, budget))
            total.invalid += getattr(run, "invalid", 0)
            close = getattr(run, "close", None)
            if close:
                close()
    return total


def _measure_segment(name: str, segment: Sequence[Said], run: Run, cuts: dict[int, Cut], budget: int) -> Measured:
    result = Measured([])
    before: Sequence[Shown] = ()
    requests = set(steps_of(segment))
    for end in range(1, len(segment) + 1):
        if end not in requests and end - 1 not in cuts:
            continue
        view = run.view(segment[:end])
        if end in requests and (end == len(segment) or segment[end].role == "assistant"):
            result.cost += price(before, view)
            result.requests += 1
            result.sent += tokens_of(view)
            result.over_budget += tokens_of(view) > budget
            before = view
        if end - 1 in cuts:
            result.points.append(_point(name, segment, run, cuts[end - 1], view))
    return result


def _point(name: str, segment: Sequence[Said], run: Run, cut: Cut, view: Sequence[Shown]) -> Point:
    have = frozenset[str]().union(*(shown.facts for shown in view))
    search = getattr(run, "found_by_one_search", None)
    found = None if search is None else len(cut.needed & (have | search(segment, cut.at)))
    return Point(name, cut.at, len(cut.needed), len(cut.needed & have), found, tokens_of(view))
