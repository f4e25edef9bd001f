"""`contextstash advise`: what the user's own sessions would have cost in smaller windows."""

from __future__ import annotations

from tests.support.orchard import Orchard


def test_without_a_session_that_can_be_replayed_it_says_what_that_takes(orchard: Orchard) -> None:
    assert "30 calls with the usage" in orchard.run("advise").stdout
    advice = orchard.json("advise", orchard.session)
    assert (advice["conversations"], advice["left_out"]) == (0, 1)
