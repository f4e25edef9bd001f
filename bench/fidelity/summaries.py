"""How true the newest summary is in each view: whether its last words are the newest that it covers, and whether what
it lists as open is still open in the agent's own plan."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .product import ProductRun
from .sessions import Native, Said, Session, steps_of, text_of

_HEAD = re.compile(r"\[contextstash summary: \D*(\d+) earlier messages? \((\d+) to (\d+)")
_LAST_WORDS = re.compile(r"The assistant's last (?:message|words): (.*)")
_OPEN_LINE = re.compile(r"^- \[[ ~]\] ?(.*)$", re.MULTILINE)

PLAN_TOOLS = ("TodoWrite", "update_plan")
SAME_CHARACTERS = 40
"""Two texts count as the same if their first letters and digits, as many, are equal: a summary may shorten them."""


@dataclass
class Truth:
    """Counts over summaries. `open_stale` are summaries that list an item as open which the agent's newest plan does
    not have or calls completed; `open_missing` are open items of that plan that a summary does not list."""

    summaries: int = 0
    with_last_words: int = 0
    last_words_right: int = 0
    with_plan: int = 0
    open_stale: int = 0
    open_items: int = 0
    open_missing: int = 0

    def add(self, other: Truth) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def check_summaries(session: Session, budget: int, **settings: Any) -> Truth:
    """All summaries of a session that is recorded step by step, each when it is new."""
    total = Truth()
    for segment in session.segments:
        run = ProductRun(budget, **settings)
        try:
            for end in steps_of(segment):
                run.view(segment[:end])
                if any(line.startswith("Summarized") for line in run.done):
                    total.add(_truth(segment, run.natives))
        finally:
            run.close()
    return total


def _truth(segment: Sequence[Said], natives: Sequence[Native]) -> Truth:
    found = [(match, text_of(native)) for native in natives if (match := _HEAD.search(text_of(native)))]
    if not found:
        return Truth()
    match, text = found[-1]
    first, last = int(match.group(2)), int(match.group(3))
    truth = Truth(summaries=1)
    shown = _LAST_WORDS.findall(text)
    said = next((m.text for m in reversed(segment[first : last + 1]) if m.role == "assistant" and m.text.strip()), "")
    if shown and said:
        truth.with_last_words = 1
        truth.last_words_right = _plain(shown[0]) == _plain(said)
    plan = _newest_plan(segment[: last + 1])
    if plan is not None:
        section = text.split("## Open items")[-1].split("\n## ")[0] if "## Open items" in text else ""
        listed = {_plain(line.replace("(in progress)", "")) for line in _OPEN_LINE.findall(section)}
        still = {_plain(item) for item, status in plan if status != "completed"}
        truth.with_plan, truth.open_stale = 1, bool(listed - still)
        truth.open_items, truth.open_missing = len(still), len(still - listed)
    return truth


def _newest_plan(messages: Sequence[Said]) -> list[tuple[str, str]] | None:
    for message in reversed(messages):
        for call in reversed(message.native.get("tool_calls") or []):
            if call["function"]["name"] not in PLAN_TOOLS:
                continue
            try:
                arguments = json.loads(call["function"]["arguments"])
            except ValueError:
                continue
            items = arguments.get("todos") or arguments.get("plan") or []
            return [(item.get("content") or item.get("step") or "", item.get("status", "")) for item in items]
    return None


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().casefold()[:SAME_CHARACTERS]
