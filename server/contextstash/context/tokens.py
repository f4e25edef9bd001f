"""Counting tokens: which counter fits a model, and what each block of a message costs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from contextstash.context.settings import ContextSettings
from contextstash.formats.base import Reading
from contextstash_storage.records import Block

Encoder = Callable[[str], Callable[[str], int]]
"""`encoder(name)`: the counting function of a vocabulary."""

UNREADABLE_TOKENS = 50
"""What is taken for a block whose content only the provider can read, such as encrypted reasoning."""


@dataclass(frozen=True, slots=True)
class Family:
    """How a family of models counts: by which vocabulary, times what, and what a tool result costs beside its text.

    `factor` and `result_overhead` were measured on recorded sessions: the growth of the prompt that the provider
    reported, against the count of the tool results just added (`bench/estimation.py`).
    """

    name: str
    vocabulary: str = "o200k_base"
    factor: float = 1.0
    result_overhead: int = 4


FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    (
        re.compile(r"claude-(?:opus|sonnet|haiku)-(?:4-[7-9]|[5-9])(?!\d)"),
        Family("claude-new", factor=1.55, result_overhead=41),
    ),
    (re.compile("claude|anthropic"), Family("claude", factor=1.15, result_overhead=41)),
    (
        re.compile(r"gpt-3-5|gpt-35|gpt-4(?!o|-[15](?!\d))"),
        Family("gpt-4", vocabulary="cl100k_base", result_overhead=10),
    ),
    (re.compile(r"gpt|codex|openai|\bo[1-9]\b"), Family("gpt", result_overhead=10)),
    (re.compile("deepseek"), Family("deepseek", factor=1.05, result_overhead=15)),
    (re.compile("gemini|google"), Family("gemini", factor=1.05)),
)
UNKNOWN = Family("unknown")


def family_of(model: str | None) -> Family:
    """The family a model's name tells, `unknown` where it tells none."""
    name = (model or "").lower().replace(".", "-")
    return next((family for mark, family in FAMILIES if mark.search(name)), UNKNOWN)


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts texts in a model's tokens. `name` says how, for people."""

    name: str
    raw: Callable[[str], int]
    factor: float = 1.0
    result_overhead: int = 0

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return round(self.raw(text) * self.factor)


def counter_for(model: str | None, settings: ContextSettings, encoder: Encoder) -> Counter:
    """The counter that the settings ask for, made for a model."""
    if settings.estimator == "chars":
        return Counter("characters / 4", lambda text: len(text) // 4)
    family = family_of(model)
    name = family.vocabulary if family.factor == 1.0 else f"{family.vocabulary} × {family.factor:g} ({family.name})"
    return Counter(name, encoder(family.vocabulary), family.factor, family.result_overhead)


def measure(reading: Reading, counter: Counter, settings: ContextSettings) -> tuple[Block, ...]:
    """A message's blocks with their tokens; the overhead of the message is part of its first block."""
    blocks = reading.blocks or (Block(type="text"),)
    texts = reading.texts or ("",)
    measured = [
        block.model_copy(update={"tokens": _tokens(block, text, counter, settings)})
        for block, text in zip(blocks, texts, strict=True)
    ]
    first = measured[0]
    measured[0] = first.model_copy(update={"tokens": first.tokens + settings.message_overhead})
    return tuple(measured)


def _tokens(block: Block, text: str, counter: Counter, settings: ContextSettings) -> int:
    if block.type in ("image", "document"):
        return settings.image_tokens
    if block.type == "tool_call":
        return counter.count(block.tool or "") + counter.count(text)
    if block.type == "tool_result":
        return counter.count(text) + counter.result_overhead
    if block.type == "thinking" and not text:
        return block.size // 4 if block.size else UNREADABLE_TOKENS
    return counter.count(text)
