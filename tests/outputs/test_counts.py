"""Numbers for a reader."""

from __future__ import annotations

import pytest

from contextstash.outputs.counts import amount


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (0, "0"),
        (999, "999"),
        (9_500, "9.5k"),
        (9_960, "10k"),
        (68_959, "69k"),
        (999_600, "1.0M"),
        (1_250_000, "1.2M"),
        (2e9, "2.0B"),
    ],
)
def test_an_amount_is_short(tokens: int, text: str) -> None:
    assert amount(tokens) == text
