"""Token counters: which one fits a model, and how many tokens each block of a message takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextstash.messages.base import Reading
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import Block

Encoder = Callable[[str], Callable[[str], int]]
"""`encoder(name)`: the counting function of a vocabulary."""

UNREADABLE_TOKENS = 50
"""The estimate for a block that only the provider can read, such as encrypted reasoning, if its size is unknown.
The provider's report corrects it."""


@dataclass(frozen=True, slots=True)
class Family:
    """How a family of models counts: the vocabulary, a factor, and the tokens of a tool result in addition to its text.

    The model's own vocabulary is not public: the count is scaled by `factor`. This and `result_overhead` were measured
    on recorded sessions: the growth of the prompt that the provider reported, compared with the count of the tool
    results just added. `image_tokens` is what each image takes, if that does not depend on its size:
    https://ai.google.dev/gemini-api/docs/media-resolution. A family that `quotes_results` takes them as JSON objects,
    and it is not documented if it counts a line break in one as the two characters of JSON.
    """

    name: str
    vocabulary: str = "o200k_base"
    factor: float = 1.0
    result_overhead: int = 4
    image_tokens: int | None = None
    quotes_results: bool = False


FAMILIES = {
    r"claude-(?:opus|sonnet|haiku)-(?:4-[7-9]|[5-9])(?!\d)": Family("claude-new", factor=1.55, result_overhead=41),
    "claude|anthropic": Family("claude", factor=1.15, result_overhead=41),
    r"gpt-3-5|gpt-35|gpt-4(?!o|-[15](?!\d))": Family("gpt-4", vocabulary="cl100k_base", result_overhead=10),
    r"gpt|codex|openai|\bo[1-9]\b": Family("gpt", result_overhead=10),
    "deepseek": Family("deepseek", factor=1.05, result_overhead=15),
    "gemini|google": Family("gemini", factor=1.05, image_tokens=1_120, quotes_results=True),
}
"""The families by an expression for the names of their models, of which the first one counts."""

UNKNOWN = Family("unknown")


def family_of(model: str | None) -> Family:
    """The family of a model by its name, `unknown` if the name does not match any."""
    name = (model or "").lower().replace(".", "-")
    return next((family for pattern, family in FAMILIES.items() if re.search(pattern, name)), UNKNOWN)


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts a text in a model's tokens. `name` describes the method for people.

    `raw` measures a text; `in_tokens` converts the measure into tokens. A counter that `rounds_up` rounds once for a
    whole message, not for each block.
    """

    name: str
    raw: Callable[[str], int]
    family: Family = Family("", result_overhead=0)
    in_tokens: Callable[[int], int] | None = None
    rounds_up: bool = False

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self.tokens(self.raw(text))

    def count_result(self, text: str) -> int:
        """Tokens of a text that stands for a tool result, without `result_overhead`. Quoted ones count half of what
        JSON adds: it adds 6 % to a log, and Google's local tokenizer counts none of it."""
        if not self.family.quotes_results:
            return self.count(text)
        return (self.count(text) + self.count(json.dumps(text, ensure_ascii=False))) // 2

    def count_results(self, texts: Sequence[str]) -> list[int]:
        """The same of several short texts without control characters."""
        together = None if self.family.quotes_results else getattr(self.raw, "together", None)
        return [*(map(self.count_result, texts) if together is None else map(self.tokens, together(texts)))]

    def tokens(self, measured: int) -> int:
        """The tokens of a measured size."""
        return self.in_tokens(measured) if self.in_tokens else round(measured * self.family.factor)


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


RULES_OF_THUMB: dict[str, Counter] = {
    "chars": Counter("characters / 4", len, in_tokens=lambda size: size // 4),
    "chars_plus_one": Counter("characters / 4 + 1", len, in_tokens=lambda size: size // 4 + 1 if size else 0),
    "chars_rounded_up": Counter(
        "characters / 4, rounded up", len, in_tokens=lambda size: -(-size // 4), rounds_up=True
    ),
    "bytes": Counter("bytes / 4", _utf8_length, in_tokens=lambda size: -(-size // 4), rounds_up=True),
}
"""The estimates of the systems that the presets reproduce, by the value of the setting `estimator`."""


def counter_for(model: str | None, settings: ContextSettings, encoder: Encoder) -> Counter:
    """The counter that the settings name, for a model."""
    if settings.estimator in RULES_OF_THUMB:
        return RULES_OF_THUMB[settings.estimator]
    family = family_of(model)
    if settings.estimator == "tiktoken":
        vocabulary = family.vocabulary if family.name.startswith("gpt") else "cl100k_base"
        return Counter(vocabulary, encoder(vocabulary))
    name = family.vocabulary if family.factor == 1.0 else f"{family.vocabulary} × {family.factor:g} ({family.name})"
    return Counter(name, encoder(family.vocabulary), family)


def measure(reading: Reading, counter: Counter, settings: ContextSettings) -> tuple[Block, ...]:
    """A message's blocks with their tokens; the message's overhead is added to its first block."""
    blocks = reading.blocks or (Block(type="text"),)
    texts = reading.texts or ("",)
    measured = _rounded_once(blocks, texts, counter, settings) if counter.rounds_up else None
    if measured is None:
        measured = [_tokens(block, text, counter, settings) for block, text in zip(blocks, texts, strict=True)]
    measured[0] += settings.message_overhead
    return tuple(block.model_copy(update={"tokens": tokens}) for block, tokens in zip(blocks, measured, strict=True))


def _rounded_once(
    blocks: Sequence[Block], texts: Sequence[str], counter: Counter, settings: ContextSettings
) -> list[int]:
    """Tokens by block, whose sum is that of the whole message, rounded once."""
    tokens = []
    size = 0
    for block, text in zip(blocks, texts, strict=True):
        if block.type in ("image", "document"):
            tokens.append(settings.image_tokens)
            continue
        before = size
        size += counter.raw(text) + (counter.raw(block.tool or "") if block.type == "tool_call" else 0)
        tokens.append(counter.tokens(size) - counter.tokens(before))
    return tokens


def _tokens(block: Block, text: str, counter: Counter, settings: ContextSettings) -> int:
    if block.type in ("image", "document"):
        return (block.type == "image" and counter.family.image_tokens) or settings.image_tokens
    if block.type == "tool_call":
        return counter.tokens(counter.raw(block.tool or "") + counter.raw(text))
    if block.type == "tool_result":
        is_object = text.startswith("{") and text.endswith("}")  # its text is its JSON then: see GeminiFormat
        return (counter.count(text) if is_object else counter.count_result(text)) + counter.family.result_overhead
    if block.type == "thinking" and not text:
        return block.size // 4 if block.size else UNREADABLE_TOKENS
    return counter.count(text)
