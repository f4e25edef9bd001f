"""A receipt for each of several ways to shrink a history: recorded sessions, the same requests, the same prices.

    python -m bench.receipts FOLDER [--budget 32000] [--sessions 5] [--only NAME]

FOLDER holds native transcripts of Claude Code, or sessions as Chat Completions messages, one message a line. Each
session is replayed request by request, as a loop sends it. The price of a request follows a prompt cache: what the
request before began with is read, the rest is written. "Lacked" is the share of what the agent wrote next, and had
learned from a tool's output more than ten messages before, that the request did not hold (bench/fidelity).

Rivals are packages of others, installed into an environment of their own (`pip install headroom-ai langchain
agent-framework-core`); one that is not installed is left out. None of them gets a model: what needs one cannot run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

from .baselines import BASELINES, Policy, shown
from .costs import Shown
from .facts import facts_of
from .product import product
from .retention import Measured, measure
from .rivals import LangChainClearing
from .sessions import Native, Said, Session, prose_of, read_sessions, said, size_of, tokens_of_text

DOLLARS = 5.0
"""US dollars for a million input tokens: Claude Opus 4.5 and later, list price of November 2026."""

CLEARED = "keep last, cut to half"
"""The plain policy that any other has to beat."""


class Whole:
    """Sends everything, as a loop without any of these."""

    def __init__(self, budget: int) -> None:
        pass

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        return [shown(message) for message in messages]


class Headroom:
    """Headroom's `compress` at each request, with the messages of the request before frozen, as its documentation
    tells loops to do; without the model for plain text, which it would download."""

    def __init__(self, budget: int) -> None:
        self._compress = import_module("headroom").compress
        self._budget = budget
        self._sent: list[Native] = []
        self._seen = 0

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        found = self._compress(
            [*self._sent, *(message.native for message in messages[self._seen :])],
            model="claude-opus-4-5",
            model_limit=self._budget,
            kompress_model="disabled",
            frozen_message_count=len(self._sent),
        )
        self._sent, self._seen = list(found.messages), len(messages)
        return [_shown(native) for native in self._sent]


class AgentFramework:
    """Microsoft Agent Framework's `ContextWindowCompactionStrategy` with its defaults, on a list that grows."""

    def __init__(self, budget: int) -> None:
        self._framework = import_module("agent_framework")
        self._strategy = self._framework.ContextWindowCompactionStrategy(
            max_context_window_tokens=budget, max_output_tokens=0, tokenizer=self
        )
        self._messages: list[Any] = []
        self._seen = 0

    def count_tokens(self, text: str) -> int:
        """The tokenizer that it asks: the same as for all others."""
        return tokens_of_text(text)

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        self._messages += [self._message(message.native) for message in messages[self._seen :]]
        self._seen = len(messages)
        asyncio.run(self._strategy(self._messages))
        included = import_module("agent_framework._compaction").included_messages(self._messages)
        return [_shown(_native_of(message)) for message in included]

    def _message(self, native: Native) -> Any:
        content, kinds = self._framework.Content, []
        text = native.get("content")
        if native["role"] == "tool":
            kinds.append(content.from_function_result(call_id=native["tool_call_id"], result=_text(text)))
        else:
            kinds += [content.from_text(_text(text))] if text else []
            for call in native.get("tool_calls") or ():
                function = call["function"]
                kinds.append(
                    content.from_function_call(
                        call_id=call["id"], name=function["name"], arguments=function["arguments"]
                    )
                )
        return self._framework.Message(role=native["role"], contents=kinds)


def _native_of(message: Any) -> Native:
    """A message of Agent Framework as a Chat Completions message, for the count of its tokens and facts."""
    calls = [
        {"id": each.call_id, "type": "function", "function": {"name": each.name, "arguments": str(each.arguments)}}
        for each in message.contents
        if each.type == "function_call"
    ]
    results = [str(each.result) for each in message.contents if each.type == "function_result"]
    found: Native = {"role": str(message.role), "content": "\n".join([message.text or "", *results]).strip()}
    return {**found, "tool_calls": calls} if calls else found


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part.get("text") or "" for part in content or () if isinstance(part, dict)]
    return "\n".join(parts)


def _shown(native: Native) -> Shown:
    return Shown(repr(native), size_of(native), facts_of(prose_of(native)))


RIVALS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "Headroom, `compress`": ("headroom-ai", Headroom),
    "LangChain, clear tool uses, then trim": ("langchain", LangChainClearing),
    "Agent Framework, context window strategy": ("agent-framework-core", AgentFramework),
}
"""By name: the distribution and the policy."""

NOT_RUN = {
    "OpenHands": "the condensers of its SDK (1.58) other than the one that does nothing let a model write a summary",
}
"""Rivals that cannot run without a model or a network, and why."""


def policies() -> dict[str, Policy]:
    """All policies that can run here, with the versions of those that are others'."""
    found: dict[str, Policy] = {"everything sent": Whole, CLEARED: BASELINES[CLEARED]}
    for name, (distribution, policy) in RIVALS.items():
        try:
            found[f"{name} ({version(distribution)})"] = policy
        except PackageNotFoundError:
            print(f"not installed, left out: {distribution}", file=sys.stderr)
    return {**found, "contextstash": product()}


def sessions_in(folder: Path) -> Iterator[Session]:
    """The sessions of a folder, the longest conversation of each native transcript."""
    native = [path for path in sorted(folder.glob("*.jsonl")) if '"sessionId"' in path.read_text("utf-8", "replace")]
    if not native:
        yield from read_sessions(folder)
    for path in native:
        calls = import_module("bench.proxy").recorded(path)
        if calls:
            longest = max(calls, key=lambda call: len(call.messages))
            listed = [each for message in longest.messages for each in as_chat(message)]
            yield Session(path.stem, tuple(said(place, each) for place, each in enumerate(listed)))


def as_chat(message: Native) -> Iterator[Native]:
    """A message of Anthropic's API as Chat Completions messages, without thinking and images."""
    blocks = message["content"]
    texts = "\n".join(block["text"] for block in blocks if block.get("type") == "text")
    if message["role"] == "assistant":
        calls = [
            {
                "id": each["id"],
                "type": "function",
                "function": {"name": each["name"], "arguments": json.dumps(each["input"], ensure_ascii=False)},
            }
            for each in blocks
            if each.get("type") == "tool_use"
        ]
        if texts or calls:
            yield {"role": "assistant", "content": texts or None, **({"tool_calls": calls} if calls else {})}
        return
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block.get("content")) or "-"}
    if texts:
        yield {"role": "user", "content": texts}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.receipts", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", type=int, default=32_000, help="tokens of the window that all get")
    parser.add_argument("--sessions", type=int, help="at most so many sessions")
    parser.add_argument("--only", default="", help="only policies whose name contains this")
    arguments = parser.parse_args()
    chosen = {name: policy for name, policy in policies().items() if arguments.only in name}
    totals = {name: Measured([]) for name in chosen}
    count = 0
    for session in islice(sessions_in(arguments.folder), arguments.sessions):
        count += 1
        for name, policy in chosen.items():
            print(f"{session.name}: {name}", file=sys.stderr, flush=True)
            totals[name].add(measure(session, policy, arguments.budget))
    report(count, totals, arguments.budget)


def report(count: int, totals: dict[str, Measured], budget: int) -> None:
    """Print the table in Markdown."""
    first = next(iter(totals.values()))
    print(f"{count} sessions, {first.requests:,} requests, {first.facts:,} facts needed; window {budget:,} tokens.\n")
    print("| | input, US dollars | of everything sent | tokens a request | lacked | lacked after one search | over |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, found in totals.items():
        search = "-" if found.one_search is None else f"{100 - found.one_search:.0f} %"
        share = f"{found.cost / first.cost:.2f}" if first.cost else "-"
        print(
            f"| {name} | {found.cost * DOLLARS / 1e6:.2f} | {share} | {found.mean_tokens:,.0f} |"
            f" {100 - found.in_view:.0f} % | {search} | {found.over_budget} |"
        )
    for name, why in NOT_RUN.items():
        print(f"| {name} | not run: {why} | | | | | |")


if __name__ == "__main__":
    main()
