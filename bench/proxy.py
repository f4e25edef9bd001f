"""What the proxy saves, replayed: recorded sessions of Claude Code, request by request, through the real proxy.

`python -m bench.proxy replay FOLDER [PATTERN]` sends the requests of native transcripts, at their recorded times and
with their recorded prompt totals, to a provider on loopback that models the prompt cache; once directly, once through
the proxy.
`python -m bench.proxy latency` measures the added time to the first byte, beside direct requests in the same run.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2

from contextstash.proxy.conversations import DEFAULT_TOKENS_PER_BYTE
from contextstash.proxy.requests.preparation import DEFAULT_KEEP_TOKENS
from tests.support.caching_provider import (
    CHARACTERS_PER_TOKEN,
    CachingProvider,
    blocks_of,
    caching_provider,
    stream_events,
)
from tests.support.proxies import READ, RETRIEVAL, Clock, request_of, running_proxy, session

OUTPUT_CHARACTERS = 3_000
"""Of one tool output in the measurement of the latency: a usual read or test run."""

FIRST_CALLS = 10
"""Requests of a session before its cost is compared within it: one large prompt decides the share until then."""

LEAST_CALLS = 30
"""Shorter sessions are not replayed: nothing can be saved in them."""


@dataclass
class Recorded:
    """One request of a session: when, with which messages and model, and what the provider counted."""

    at: float
    messages: list[dict[str, Any]]
    model: str
    prompt: int
    one_hour: bool


def recorded(path: Path) -> list[Recorded]:
    """The requests of the main conversation of a native transcript."""
    records = [json.loads(line) for line in path.read_text("utf-8", "replace").splitlines() if line.startswith("{")]
    by_id = {each["uuid"]: each for each in records if "uuid" in each}
    found: list[Recorded] = []
    seen: set[str] = set()
    for record in records:
        message = record.get("message")
        if record.get("type") != "assistant" or record.get("isSidechain") or not isinstance(message, dict):
            continue
        usage = message.get("usage") or {}
        prompt = sum(usage.get(key) or 0 for key in PROMPT)
        if message.get("id") in seen or message.get("model") == "<synthetic>" or prompt < 1000:
            continue
        seen.add(message["id"])
        at = datetime.fromisoformat(record["timestamp"].replace("Z", "+00:00")).timestamp()
        long = bool((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens"))
        messages = list(history(record, by_id))
        if messages:
            found.append(Recorded(at, messages, message["model"], prompt, long))
    return sorted(found, key=lambda each: each.at)


PROMPT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def history(record: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages before a reply, as Claude Code sends them: neighbours of one role are one message."""
    path = []
    own = record["message"]["id"]
    while (parent := by_id.get(record.get("parentUuid") or "")) is not None:
        record = parent
        message = record.get("message")
        if record.get("type") in ("user", "assistant") and isinstance(message, dict) and message.get("id") != own:
            path.append(message)
    merged: list[dict[str, Any]] = []
    for message in reversed(path):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += parts
        else:
            merged.append({"role": message["role"], "content": list(parts)})
    while merged and merged[0]["role"] != "user":
        merged.pop(0)
    yield from (_sent(message) for message in merged)


def _sent(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": message["role"], "content": [block for block in message["content"] if isinstance(block, dict)]}


def body_of(call: Recorded, unseen: int) -> dict[str, Any]:
    """A request as the client sent it. Transcripts lack the system prompt: `unseen` tokens of other text stand for it,
    so that a byte of the body is worth as many tokens as in reality."""
    mark = {"type": "ephemeral", **({"ttl": "1h"} if call.one_hour else {})}
    body = request_of(call.messages, model=call.model, tools=[READ, RETRIEVAL], stream=True, metadata={})
    body["system"][0] = {"type": "text", "text": "x" * round(unseen * CHARACTERS_PER_TOKEN), "cache_control": mark}
    body["messages"][-1]["content"][-1]["cache_control"] = mark
    return body


def hidden_tokens(call: Recorded, body: dict[str, Any]) -> int:
    """Tokens that the provider counted and the body does not hold."""
    return max(0, call.prompt - sum(block[0] for block, _ in blocks_of(body, 0)))


def cost(usage: dict[str, int], write: float) -> float:
    return usage["input_tokens"] + 0.1 * usage["cache_read_input_tokens"] + write * usage["cache_creation_input_tokens"]


def sent(usage: dict[str, int]) -> int:
    return sum(usage[key] for key in PROMPT)


@dataclass
class Outcome:
    """What a session cost through the proxy. `within` is the highest share of the direct cost after any request from
    the tenth on; `tokens_error` and `cost_error` are by how much the proxy's report was off, as shares."""

    name: str
    calls: int
    cost_ratio: float
    token_ratio: float
    direct_cost: float
    direct_tokens: int
    prunes: int
    refetched: int
    largest: int
    within: float
    tokens_error: float
    cost_error: float


def replay(path: Path, calls: list[Recorded]) -> Outcome:
    """One session, directly and through the proxy."""
    clock = Clock()
    direct = CachingProvider(clock=clock)
    paid = direct_paid = 0.0
    tokens = direct_tokens = largest = 0
    within = 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        caching_provider(clock) as provider,
        running_proxy(provider.url, Path(folder) / "stash.db", clock, keep_tokens=DEFAULT_KEEP_TOKENS) as proxy,
    ):
        unseen = min(hidden_tokens(call, body_of(call, 0)) for call in calls)
        for number, call in enumerate(calls):
            clock.now = call.at
            body = body_of(call, unseen)
            hidden = hidden_tokens(call, body)
            plain = direct.count(body, hidden)
            proxy.send(body, {"x-hidden-tokens": str(hidden), "x-claude-code-session-id": path.stem})
            write = 2.0 if call.one_hour else 1.25
            direct_paid += cost(plain, write)
            paid += cost(provider.usage[-1], write)
            direct_tokens += sent(plain)
            tokens += sent(provider.usage[-1])
            within = max(within, paid / direct_paid) if number >= FIRST_CALLS else within
            largest = max(largest, len(provider.asked[-1].body))
            provider.asked.clear()
        state = proxy.state(path.stem)
    return Outcome(
        path.stem, len(calls), paid / direct_paid, tokens / direct_tokens, direct_paid, direct_tokens,
        state.prunes, state.refetched, largest, within, state.direct / direct_tokens - 1,
        (state.paid / state.direct_cost) / (paid / direct_paid) - 1,
    )  # fmt: skip


def replay_all(folder: Path, pattern: str = "*.jsonl") -> None:
    print(
        "| session | requests | prunes | fetched again | cost / direct | worst within | tokens sent / direct"
        " | report: tokens unedited | report: cost |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    found = []
    for path in sorted(folder.glob(pattern)):
        calls = recorded(path)
        if len(calls) < LEAST_CALLS:
            continue
        outcome = replay(path, calls)
        found.append(outcome)
        print(
            f"| {outcome.name} | {outcome.calls} | {outcome.prunes} | {outcome.refetched} |"
            f" {outcome.cost_ratio:.3f} | {outcome.within:.3f} | {outcome.token_ratio:.3f} |"
            f" {outcome.tokens_error:+.1%} | {outcome.cost_error:+.1%} |",
            flush=True,
        )
    total = sum(each.direct_cost for each in found)
    tokens = sum(each.direct_tokens for each in found)
    print(
        f"| all | {sum(each.calls for each in found)} | {sum(each.prunes for each in found)} |"
        f" {sum(each.refetched for each in found)} |"
        f" {sum(each.cost_ratio * each.direct_cost for each in found) / total:.3f} |"
        f" {max(each.within for each in found):.3f} |"
        f" {sum(each.token_ratio * each.direct_tokens for each in found) / tokens:.3f} |"
    )
    print(f"worst session: cost {max(each.cost_ratio for each in found):.3f} of direct")


PAUSE_SECONDS = 0.3
"""Between two requests, as a model needs longer than that: the proxy records in the background."""


def latency(rounds: int = 40) -> None:
    """Medians of the time to the first byte, alternating direct and proxied requests of a growing session that had so
    many turns before."""
    for turns in (20, 100, 400):
        with tempfile.TemporaryDirectory() as folder, instant_provider() as upstream:
            command = [sys.executable, "-m", "contextstash", "proxy", "--listen", "127.0.0.1:0"]
            command += ["--upstream", upstream, "--db", f"{folder}/stash.db"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
                assert process.stderr is not None
                address = process.stderr.readline().split()[2]
                try:
                    print(_latencies({"direct": upstream, "proxy": address}, turns, rounds), flush=True)
                finally:
                    process.terminate()


def _latencies(addresses: dict[str, str], turns: int, rounds: int) -> str:
    messages = session(turns + rounds, OUTPUT_CHARACTERS)
    times: dict[str, list[float]] = {name: [] for name in addresses}
    sizes = []
    with httpx2.Client(timeout=60) as client:
        for count in range(2 * turns + 1, len(messages) + 1, 2):
            content = json.dumps(request_of(messages[:count])).encode()
            sizes.append(len(content))
            for name, url in addresses.items():
                time.sleep(PAUSE_SECONDS)
                started = time.perf_counter()
                with client.stream("POST", f"{url}/v1/messages?beta=true", content=content) as response:
                    chunks = response.iter_raw()
                    next(chunks)
                    times[name].append(1000 * (time.perf_counter() - started))
                    for _ in chunks:
                        pass
    added = statistics.median(p - d for p, d in zip(times["proxy"], times["direct"], strict=True))
    return (
        f"{statistics.median(sizes) / 1e6:.2f} MB: direct {statistics.median(times['direct']):.1f} ms,"
        f" proxy {statistics.median(times['proxy']):.1f} ms, added {added:.1f} ms"
    )


@contextmanager
def instant_provider() -> Iterator[str]:
    """A provider in a process of its own that replies at once, without looking at the request."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.Process(target=_reply_for_ever, args=(listener,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        process.kill()
        listener.close()


def _reply_for_ever(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_reply_on, args=(connection,), daemon=True).start()


def _reply_on(connection: socket.socket) -> None:
    before = 0
    with connection, connection.makefile("rb") as stream:
        while line := stream.readline():
            length = 0
            while line not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                line = stream.readline()
            stream.read(length)
            connection.sendall(_reply(length, before))
            before = length


def _reply(length: int, before: int) -> bytes:
    """A streamed reply with the usage of a body of this length after one of length `before`: all of that is cached."""
    tokens, cached = (round(size * DEFAULT_TOKENS_PER_BYTE) for size in (length, min(before, length)))
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": tokens - cached,
        "output_tokens": 1,
    }
    events = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in stream_events("Done.", usage)).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(events)}\r\n\r\n"
    return head.encode() + events


def main() -> None:
    if sys.argv[1:2] == ["replay"] and len(sys.argv) in (3, 4):
        replay_all(Path(sys.argv[2]), *sys.argv[3:])
    elif sys.argv[1:2] == ["latency"]:
        latency()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
