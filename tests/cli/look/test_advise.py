"""`contextstash advise`: what the user's own sessions would have cost in smaller windows."""

from __future__ import annotations

import pytest

from contextstash.results import AdvisedWindow, WindowAdvice
from tests.support.command_line import Orchard


def test_without_a_session_that_can_be_replayed_it_says_what_that_takes(orchard: Orchard) -> None:
    assert "30 calls with the usage" in orchard.run("advise").stdout
    advice = orchard.json("advise", orchard.session)
    assert (advice["conversations"], advice["left_out"]) == (0, 1)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        (
            {60_000: 55.0, 100_000: 58.0, 150_000: 75.0},
            "Recommended: 100k, for about 58 % of the recorded cost. For one run",
        ),
        ({60_000: 80.0, 100_000: 75.0}, "Recommended: 100k, for about 75 % of the recorded cost. For one run"),
        ({60_000: 95.0, 150_000: 99.0}, "leave the window as it is"),
        ({}, "leave the window as it is"),
    ],
)
def test_it_recommends_a_window_and_the_command_that_sets_it(costs: dict[int, float], said: str) -> None:
    windows = [
        AdvisedWindow(compaction_point=point, dollars=1.0, cost_percent=cost, more_compactions=0, lacking_percent=5.0)
        for point, cost in costs.items()
    ]
    advice = WindowAdvice(conversations=1, left_out=0, requests=40, dollars=2.0, windows=windows)
    text = advice.in_words()
    assert said in text
    assert ("contextstash run --window 100k claude" in text) == ("100k" in said)
