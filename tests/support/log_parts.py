"""Tool outputs that fill a window."""

from __future__ import annotations


def part_of_a_log(number: int, lines: int = 250) -> str:
    """About 4,000 tokens, each one different."""
    return "\n".join(f"{number}:{line} GET /loans/{line * number % 97} 200 in {line % 13} ms" for line in range(lines))
