"""How many tokens an image takes by its width and height, as the providers document it."""

from __future__ import annotations

from collections.abc import Callable

ImageTokens = Callable[[int, int], int]
"""Tokens by pixels across and down."""

CLAUDE_LONGEST_EDGE = 1_568
CLAUDE_PIXELS_PER_TOKEN = 750
CLAUDE_MOST = 1_600
"""Anthropic scales larger images down to this edge, and to about this many tokens (its guide on vision)."""

OPENAI_BOX = 2_048
OPENAI_SHORTEST_EDGE = 768
OPENAI_TILE = 512
OPENAI_BASE_TOKENS = 85
OPENAI_TILE_TOKENS = 170
"""OpenAI's guide on vision, for GPT-4o and 4.1. GPT-5 takes 70 and 140: this errs on the safe side."""


def claude_image(across: int, down: int) -> int:
    """Tokens of an image for Claude."""
    scale = min(1.0, CLAUDE_LONGEST_EDGE / max(across, down))
    return min(CLAUDE_MOST, max(1, round(across * scale * down * scale / CLAUDE_PIXELS_PER_TOKEN)))


def openai_image(across: int, down: int) -> int:
    """Tokens of an image in high detail for OpenAI's models."""
    scale = min(1.0, OPENAI_BOX / max(across, down))
    scale *= min(1.0, OPENAI_SHORTEST_EDGE / (min(across, down) * scale))
    columns, rows = (-(-max(1, round(edge * scale)) // OPENAI_TILE) for edge in (across, down))
    return OPENAI_BASE_TOKENS + OPENAI_TILE_TOKENS * columns * rows
