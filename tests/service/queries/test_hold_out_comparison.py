"""Edited and unedited sessions beside each other: their numbers, and whether they say anything."""

from __future__ import annotations

from random import Random

from contextstash.service.queries.hold_out_comparison import compared


def costs(count: int, each: float, seed: int = 1) -> list[tuple[float, int, int]]:
    """Sessions of 20 requests and 4 turns that cost about `each` for a request."""
    random = Random(seed)
    return [(20 * each * random.uniform(0.5, 1.5), 20, 4) for _ in range(count)]


def test_few_sessions_say_nothing_whatever_they_cost() -> None:
    found = compared(costs(50, 0.1), costs(3, 10.0))
    assert found.verdict == "too few sessions to tell: each group needs 10"
    assert found.chance is None
    assert (found.edited.sessions, found.held_out.sessions) == (50, 3)


def test_a_clear_difference_is_said_in_either_direction() -> None:
    cheaper = compared(costs(40, 0.10), costs(40, 0.20, seed=2))
    assert cheaper.verdict == "edited sessions cost less for each request"
    assert cheaper.chance is not None
    assert cheaper.chance < 0.01
    assert compared(costs(40, 0.20), costs(40, 0.10, seed=2)).verdict == "edited sessions cost more for each request"


def test_what_could_be_chance_is_called_so() -> None:
    assert compared(costs(20, 0.10), costs(20, 0.10, seed=2)).verdict == "no difference that could not be chance"


def test_the_medians_are_those_of_sessions() -> None:
    found = compared([(1.0, 10, 2), (3.0, 10, 1), (100.0, 10, 0)], [])
    assert (found.edited.per_request, found.edited.per_turn) == (0.3, 1.75)
    assert found.held_out.per_request is None
