"""Measures how many of the facts that an agent needs after a compaction are still in its summary.

A fact is a path, an identifier, a quoted string or an id. A fact is needed if a tool result showed it before
the cut, it was last seen more than 10 messages before the cut, and the agent writes it in one of the next 60 messages
before it is shown again. Three texts of the same size (characters / 4) are compared: the summary that the recorded
agent's own model wrote, the extractive summary, and the last messages. Sessions without a recorded compaction are cut
at half and two thirds of their messages.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextstash.context.extraction.extractive_summary import extract_summary
from contextstash.context.extraction.facts import find_facts
from contextstash.context.extraction.turns import Turn
from contextstash.formats import get_format
from contextstash_storage.errors import ContextstashError

MAX_LATER_MESSAGES = 60
RECENT_MESSAGES = 10
DEFAULT_TOKENS = 2_700
"""The size of a summary if there is no recorded one: the median of the recorded summaries."""

FORMATS = {"claude_code": "anthropic", "codex": "openai-responses", "openai_chat": "openai-chat"}


@dataclass(frozen=True)
class Cut:
    """A point at which a session is compacted. `recorded` is the recorded summary, if there is one."""

    before: Sequence[Turn]
    after: Sequence[Turn]
    recorded: str | None = None


def count(text: str) -> int:
    return (len(text) + 3) // 4


def read_session(path: Path, family: str) -> tuple[list[Turn], dict[int, str]]:
    """The session's turns, and the recorded summaries by the index of the turn that follows them."""
    form = get_format(FORMATS[family])
    turns: list[Turn] = []
    summaries: dict[int, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        native, is_summary = _native(line, family)
        if native is None:
            continue
        try:
            reading = form.read(native)
        except ContextstashError:
            continue
        if is_summary:
            summaries[len(turns)] = "\n".join(reading.texts)
            continue
        handles = {i: f"out_{len(turns)}_{i}" for i, block in enumerate(reading.blocks) if block.type == "tool_result"}
        turns.append(Turn(len(turns), reading.role, reading.blocks, reading.texts, handles))
    return turns, summaries


def _native(line: str, family: str) -> tuple[dict[str, Any] | None, bool]:
    try:
        record = json.loads(line)
    except ValueError:
        return None, False
    if family == "openai_chat":
        return record, False
    if family == "codex":
        return (record["payload"] if record.get("type") == "response_item" else None), False
    if record.get("type") not in ("user", "assistant") or record.get("isSidechain") or record.get("isMeta"):
        return None, False
    return record["message"], bool(record.get("isCompactSummary"))


def cuts_of(turns: Sequence[Turn], summaries: dict[int, str]) -> Iterator[Cut]:
    """The recorded compactions of a session, or two artificial cuts if there are none."""
    start = 0
    for place, text in summaries.items():
        yield Cut(turns[start:place], turns[place : place + MAX_LATER_MESSAGES], text)
        start = place
    if not summaries and len(turns) > 60:
        for place in (len(turns) // 2, len(turns) * 2 // 3):
            yield Cut(turns[:place], turns[place : place + MAX_LATER_MESSAGES])


def needed(cut: Cut) -> set[str]:
    """The facts known before the cut that the agent writes after it, before they are shown to it again."""
    known = _joined(cut.before, {"tool_result"})
    shown: list[str] = [_joined(cut.before[-RECENT_MESSAGES:])]
    found: set[str] = set()
    for turn in cut.after:
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if turn.role == "assistant" and block.type in ("text", "tool_call"):
                again = "\n".join(shown)
                names = find_facts(text.replace('\\"', " ").replace("\\n", "\n")).names()
                found |= {name for name in names if name not in again and name in known}
            else:
                shown.append(text)
    return found


def _joined(turns: Sequence[Turn], types: Set[str] | None = None) -> str:
    return "\n".join(
        text
        for turn in turns
        for block, text in zip(turn.blocks, turn.texts, strict=True)
        if types is None or block.type in types
    )


def last_messages(turns: Sequence[Turn], tokens: int) -> str:
    text = "\n".join(text for turn in turns for text in turn.texts)
    return text[-4 * tokens :]


def retained(facts: set[str], text: str) -> float:
    return 100 * sum(fact in text for fact in facts) / len(facts)


def measure(traces: Path, show: bool) -> None:
    """Print a line for each kind of session."""
    for family in FORMATS:
        scores: dict[str, list[float]] = defaultdict(list)
        sizes: list[int] = []
        seconds = 0.0
        for path in sorted((traces / family).rglob("*.jsonl")):
            for cut in cuts_of(*read_session(path, family)):
                facts = needed(cut)
                if len(facts) < 5:
                    continue
                tokens = count(cut.recorded) if cut.recorded else DEFAULT_TOKENS
                started = time.perf_counter()
                ours = extract_summary(cut.before, max_tokens=tokens, count=count)
                seconds += time.perf_counter() - started
                sizes.append(count(ours))
                scores["extractive"].append(retained(facts, ours))
                scores["last messages"].append(retained(facts, last_messages(cut.before, tokens)))
                if cut.recorded:
                    scores["recorded"].append(retained(facts, cut.recorded))
                if show:
                    print(
                        f"\n===== {path.name} {len(cut.before)} messages, {len(facts)} facts,"
                        f" {scores['extractive'][-1]:.0f} %\n{ours}"
                    )
        if sizes:
            parts = ", ".join(f"{name} {statistics.mean(values):.1f} %" for name, values in scores.items())
            print(
                f"{family}: {len(sizes)} cuts, median {statistics.median(sizes):,.0f} tokens,"
                f" {1000 * seconds / len(sizes):.0f} ms each: {parts}"
            )


def main() -> None:
    default = Path(__file__).resolve().parents[1].parent / "shared" / "traces"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="?", type=Path, default=default)
    parser.add_argument("--show", action="store_true", help="print every summary")
    arguments = parser.parse_args()
    measure(arguments.traces, arguments.show)


if __name__ == "__main__":
    main()
