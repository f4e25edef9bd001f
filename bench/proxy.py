"""What the proxy saves, replayed: sessions of Claude Code and Codex, request by request, through the real proxy.

`python -m bench.proxy FOLDER [PATTERN] [KEY=VALUE …]` sends the requests of native transcripts, at their
recorded times and with their recorded prompt totals, to a provider on loopback that models the prompt cache; once
directly, once through the proxy with these settings. It counts the replies for which the recorded agent wrote what the
edited request no longer held, and charges a retrieval for each. `cache=5m` or `cache=1h` replays Claude Code with that
cache.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fidelity.facts import facts_of
from bench.recorded_requests import PROMPT, Recorded, cache_price_ratios, facts_in, recorded, texts
from contextstash.proxy.edits import DEFAULT_KEEP_TOKENS
from contextstash.request.proxied import report_of
from tests.support.proxies import (
    CHARACTERS_PER_TOKEN,
    READ,
    RETRIEVAL,
    CachingProvider,
    Clock,
    blocks_of,
    caching_provider,
    in_stash,
    prefixes,
    request_of,
    running_proxy,
    tokens,
    usage_of,
)

FIRST_CALLS = 10
"""Requests of a session before its cost is compared within it: one large prompt decides the share until then."""

LEAST_CALLS = 30
"""Shorter sessions are not replayed: nothing can be saved in them."""


@dataclass(frozen=True)
class Client:
    """How a client's requests are sent, and what the cache of its provider costs: `write` in uncached input tokens."""

    path: str
    headers: dict[str, str]
    read: float
    write: float


def client_of(call: Recorded, name: str) -> Client:
    """The client that sent a request of session `name`, by the prices of its model."""
    ratios = cache_price_ratios(call.model)
    read = ratios.read if ratios else 0.1
    if call.format == "anthropic":
        write = (ratios.long_write if call.one_hour else ratios.write) if ratios else 2.0 if call.one_hour else 1.25
        return Client("/v1/messages?beta=true", {"x-claude-code-session-id": name}, read, write)
    return Client("/v1/responses", {"session-id": name}, read, ratios.write if ratios else 1.0)


def body_of(call: Recorded, unseen: int) -> dict[str, Any]:
    """A request as the client sent it. Transcripts lack the system prompt: `unseen` tokens of other text stand for it,
    so that a byte of the body is worth as many tokens as in reality."""
    hidden = "x" * round(unseen * CHARACTERS_PER_TOKEN)
    if call.format != "anthropic":
        tool = {"type": "function", "name": "contextstash__get_archived_output", "parameters": {"type": "object"}}
        named = {"model": call.model, "instructions": hidden, "tools": [tool], "stream": True, "store": False}
        return {**named, "input": list(call.messages)}
    mark = {"type": "ephemeral", **({"ttl": "1h"} if call.one_hour else {})}
    body = request_of(list(call.messages), model=call.model, tools=[READ, RETRIEVAL], stream=True, metadata={})
    body["system"][0] = {"type": "text", "text": hidden, "cache_control": mark}
    body["messages"][-1]["content"][-1]["cache_control"] = mark
    return body


def items_of(body: dict[str, Any], hidden: int, weights: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """What a request of the Responses API holds, in the order of the cache: its tokens and content."""
    around = json.dumps([body.get("tools"), body.get("instructions")])
    yield hidden + tokens(around), around
    for item in body["input"]:
        text = json.dumps(item)
        yield weights.get(text) or tokens(text), text


class Replayed:
    """What a provider would count of a session's requests, by a cache of its own. That of the Responses API finds the
    longest common start of any earlier request, in whole items and in steps of 128 tokens, as long as that was used
    within an hour; writing costs nothing extra there, and is not reported."""

    def __init__(self, clock: Clock, weights: dict[str, int]) -> None:
        self._clock, self._weights = clock, weights
        self._messages = CachingProvider(clock=clock, weights=weights)
        self._stored: dict[str, float] = {}

    def count(self, body: dict[str, Any], hidden: int) -> dict[str, int]:
        if "input" not in body:
            return self._messages.count(body, hidden)
        now, total, read = self._clock(), 0, 0
        for chain, total in prefixes(items_of(body, hidden, self._weights)):
            if now - self._stored.get(chain, float("-inf")) <= 3600.0:
                read = total
            self._stored[chain] = now
        read = read // 128 * 128 if read >= 1024 else 0
        return usage_of(read, total - read)


def weigh(call: Recorded, body: dict[str, Any], weights: dict[str, int]) -> None:
    """Give what is new in a request the tokens by which the recorded total has grown: a text keeps its weight, and the
    part in front of all its size, as with a real provider."""
    front, *blocks = _blocks(body, weights)
    new = {text: size for size, text in blocks if text not in weights}
    known = front[0] + sum(size for size, text in blocks if text in weights)
    if FRONT not in weights:
        weights[FRONT] = max(0, call.prompt - known - sum(new.values()))
    grown = call.prompt - weights[FRONT] - known
    share = min(MAX_SHARE, max(1 / MAX_SHARE, grown / max(1, sum(new.values()))))
    weights |= {text: max(1, round(size * share)) for text, size in new.items()}


FRONT = "the part in front of all"

MAX_SHARE = 2.0
"""A new text is taken to have at most twice, or at least half, the tokens that its length lets expect: what a total
differs by beyond that stands in no transcript."""


def _blocks(body: dict[str, Any], weights: dict[str, int]) -> Iterator[tuple[int, str]]:
    return items_of(body, 0, weights) if "input" in body else (block for block, _ in blocks_of(body, 0, weights))


def cost(usage: dict[str, int], client: Client) -> float:
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return usage["input_tokens"] + client.read * read + client.write * written


def sent(usage: dict[str, int]) -> int:
    return sum(usage[key] for key in PROMPT)


@dataclass
class Losses:
    """What the recorded agent wrote next and no longer had in its requests: it would have fetched it again. The fetch
    is charged as a request more, and what it brought stays in the session until the client starts over."""

    replies: int = 0
    lossy: int = 0
    cost: float = 0.0
    carried: int = 0
    fetched: set[str] = field(default_factory=set)

    def after(self, call: Recorded, body: Any, usage: dict[str, int], client: Client) -> None:
        """Book a reply to a request that was sent as `body`."""
        self.cost += client.read * self.carried
        if not call.reply:
            self.carried = 0  # the client compacted or went back
            return
        self.replies += 1
        if body is None:
            return
        written = facts_in(call.reply) - self.fetched
        missing = written - facts_in(body.get("messages") or body.get("input"))
        missing &= facts_in(call.messages)
        if not missing:
            return
        self.lossy += 1
        self.fetched |= missing
        brought = CALL_TOKENS + _smallest_page(call.messages, missing)
        self.cost += client.read * (sent(usage) + self.carried) + client.write * brought
        self.carried += brought


CALL_TOKENS = 150
"""Of a retrieval call: its name, a handle, and what the model says with it."""

PAGE_TOKENS = 2_500
"""A retrieval brings the output that holds what is missing, or a page of it."""


def _smallest_page(messages: Sequence[dict[str, Any]], missing: set[str]) -> int:
    """The tokens of the smallest text of the messages that holds something of what is missing."""
    sizes = [len(text) for text in texts(list(messages)) if missing & facts_of(text)]
    return min(PAGE_TOKENS, round(min(sizes, default=0) / CHARACTERS_PER_TOKEN))


@dataclass
class Outcome:
    """What a session cost through the proxy. `within` is the highest share of the direct cost after any request from
    the tenth on; `tokens_error` and `cost_error` are by how much the proxy's report was off, as shares. `charged` is
    the share of the cost with what was lost fetched again, `lossy` of how many `replies`."""

    name: str
    calls: int
    cost_ratio: float
    token_ratio: float
    direct_cost: float
    direct_tokens: int
    edited: int
    within: float
    tokens_error: float
    cost_error: float
    charged: float
    lossy: int
    replies: int


def replay(path: Path, calls: Sequence[Recorded], **settings: Any) -> Outcome:
    """One session, directly and through the proxy."""
    clock = Clock()
    weights: dict[str, int] = {}
    direct, losses = Replayed(clock, weights), Losses()
    paid = direct_paid = within = 0.0
    tokens = direct_tokens = hidden = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        caching_provider(clock) as provider,
        running_proxy(
            provider, Path(folder) / "stash.db", clock, keep_tokens=DEFAULT_KEEP_TOKENS, settings=settings
        ) as proxy,
    ):
        provider.weights, behind = weights, Replayed(clock, weights)
        provider.responses_events = lambda body: responses_events(provider, behind.count(body, hidden))
        shown = (sum(size for size, _ in _blocks(body_of(call, 0), {})) for call in calls)
        unseen = max(0, min(call.prompt - size for call, size in zip(calls, shown, strict=True)))
        for number, call in enumerate(calls):
            clock.now = call.at
            client, body = client_of(call, path.stem), body_of(call, unseen)
            weigh(call, body, weights)
            hidden = weights[FRONT]
            plain = direct.count(body, hidden)
            content = json.dumps(body).encode()
            headers = {"x-hidden-tokens": str(hidden), **client.headers}
            assert proxy.http.post(proxy.url + client.path, content=content, headers=headers).is_success
            proxy.settle()
            through = provider.asked[-1]
            usage = provider.usage[-1]
            losses.after(call, through.body if through.data != content else None, usage, client)
            direct_paid += cost(plain, client)
            paid += cost(usage, client)
            direct_tokens += sent(plain)
            tokens += sent(usage)
            within = max(within, paid / direct_paid) if number >= FIRST_CALLS else within
            provider.asked.clear()
        states = [state for _, state in in_stash(proxy.database, lambda stash: stash.store.recent_proxied(0.0, 100))]
    report, cost_ratio = report_of(*states), paid / direct_paid
    said = (report.dollars_paid or 0.0) / ((report.dollars_paid or 0.0) + (report.dollars_saved or 0.0) or 1.0)
    return Outcome(
        path.stem, len(calls), cost_ratio, tokens / direct_tokens, direct_paid, direct_tokens,
        report.edited, within, report.tokens_unedited / direct_tokens - 1, said / cost_ratio - 1,
        (paid + losses.cost) / direct_paid, losses.lossy, losses.replies,
    )  # fmt: skip


def responses_events(provider: CachingProvider, usage: dict[str, int]) -> list[dict[str, Any]]:
    """The stream of an empty reply of the Responses API with this usage."""
    provider.usage.append(usage)
    told = {
        "input_tokens": sent(usage),
        "input_tokens_details": {"cached_tokens": usage["cache_read_input_tokens"]},
        "output_tokens": 5,
    }
    response = {"id": f"resp_{len(provider.usage)}", "object": "response", "output": [], "usage": told}
    return [
        {"type": "response.created", "response": {"id": response["id"]}},
        {"type": "response.completed", "response": response},
    ]


def replay_all(folder: Path, pattern: str = "*.jsonl", *, cache: str = "", **settings: Any) -> None:
    print(
        "| session | requests | edited | cost / direct | worst within | tokens sent / direct"
        " | replies that lack something | cost with that fetched | report: tokens unedited | report: cost |"
    )
    print("| --- " * 10 + "|")
    found = []
    for path in sorted(folder.glob(pattern)):
        calls = recorded(path)
        if len(calls) < LEAST_CALLS:
            continue
        for call in calls if cache else ():
            call.one_hour = cache == "1h"
        outcome = replay(path, calls, **settings)
        found.append(outcome)
        print(
            f"| {outcome.name} | {outcome.calls} | {outcome.edited} |"
            f" {outcome.cost_ratio:.3f} | {outcome.within:.3f} | {outcome.token_ratio:.3f} |"
            f" {outcome.lossy / max(1, outcome.replies):.1%} | {outcome.charged:.3f} |"
            f" {outcome.tokens_error:+.1%} | {outcome.cost_error:+.1%} |",
            flush=True,
        )
    total = sum(each.direct_cost for each in found)
    tokens = sum(each.direct_tokens for each in found)
    lossy = sum(each.lossy for each in found) / max(1, sum(each.replies for each in found))
    print(
        f"| all | {sum(each.calls for each in found)} | {sum(each.edited for each in found)} |"
        f" {sum(each.cost_ratio * each.direct_cost for each in found) / total:.3f} |"
        f" {max(each.within for each in found):.3f} |"
        f" {sum(each.token_ratio * each.direct_tokens for each in found) / tokens:.3f} | {lossy:.1%} |"
        f" {sum(each.charged * each.direct_cost for each in found) / total:.3f} |"
    )
    print(f"worst session: cost {max(each.cost_ratio for each in found):.3f} of direct")


def main() -> None:
    given = [argument for argument in sys.argv[1:] if "=" not in argument]
    settings = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    if len(given) not in (1, 2):
        sys.exit(__doc__)
    replay_all(Path(given[0]), *given[1:], **settings)


if __name__ == "__main__":
    main()
