"""The budget of one request, in the provider's tokens and in those that we count."""

from __future__ import annotations

import math
from dataclasses import dataclass

from contextstash.context.view import estimate as counting
from contextstash.context.window.settings import ContextSettings
from contextstash.context.window.token_counters import Counter
from contextstash_storage.records import Counters


@dataclass(frozen=True)
class RequestBudget:
    """A budget in the provider's tokens, the view's estimate, by how much that may be too low, and the ratio of these
    tokens to counted ones."""

    tokens: int
    estimated: int
    unsure: int
    ratio: float

    def counted(self, view: int) -> int:
        """The number of counted tokens at which the view is within the budget, also if its estimate is too low."""
        excess = self.estimated + self.unsure - self.tokens
        return view if excess <= 0 else view - math.ceil(excess / self.ratio)

    def after(self, view: int, fitted: int) -> int:
        """The estimate if the view has `fitted` counted tokens instead of `view`."""
        return max(0, self.estimated - math.floor((view - fitted) * self.ratio))


def request_budget(
    counters: Counters, settings: ContextSettings, counter: Counter, tokens: int, added: int = 0
) -> RequestBudget:
    """The budget of a request of at most so many `tokens`. `added` are tokens that it has in addition to the view."""
    estimated, _ = counting.estimate(counters, settings, counter.name)
    unsure = counting.unsure(counters, settings) if counter.is_approximate else 0
    return RequestBudget(tokens, estimated + added, unsure, counting.growth_ratio(counters, settings))
