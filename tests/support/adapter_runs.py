"""What the runs of all frameworks share: the task, its tool, and how long they are."""

from __future__ import annotations

from tests.support.effort import THOROUGH
from tests.support.log_parts import part_of_a_log
from tests.support.strict_provider import StrictProvider

WINDOW = 32_000
TURNS = 100 if THOROUGH else 12
SYSTEM = "You read logs, part by part, until you know why."
QUESTION = "Why do loans fail?"


def read_part(n: int) -> str:
    """Read part n of the log."""
    return part_of_a_log(n)


def unmanaged_overflows(provider: StrictProvider) -> None:
    """Asserts that the run ended because its window was full."""
    assert provider.over
    assert provider.invalid == []
    assert len(provider.accepted) < TURNS
