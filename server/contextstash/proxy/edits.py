"""What leaves a request, and how a session's edits are laid over it: what is sent in place of what the client wrote.

Old tool outputs leave if the cache is cold anyway or the provider refused the request as too long. At a warm cache an
edit would make the provider write everything behind it again: then only what the user or the model asked for is
changed, by prune, compact, restore and pins.

A placeholder stands for the first output with its id and text, wherever the client sends it. Some models count their
calls again from the start in each turn: a later output with the same id and text is shown.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from contextstash.clients.client import ANTHROPIC
from contextstash.clients.proxied import announces
from contextstash.messages.base import Path
from contextstash.messages.request import RequestText, SummaryOf, TextMessage, edited
from contextstash.proxy.conversations import AskedRequest, Conversation, lists_tools
from contextstash.request.proxied import ProxiedEdits
from contextstash.view.ladder import PrunePlan, Step, plan_prune
from contextstash.view.session_snapshot import SessionSnapshot, outputs_in_use
from contextstash.window.models import reasoning_binding

DEFAULT_KEEP_TOKENS = 8_000
"""Tokens of the newest tool results that stay: about ten outputs, as many as the preset `rolling` keeps. Replayed on
recorded sessions, 12,000 cost 2 % more (bench/proxy). Less would save more, but the model works with what it has just
read."""

STEP_SECONDS = 1.0
"""By default, how long a request waits for the database before it goes out as it is. Clients wait longer for
the first byte anyway; another process's transaction takes some 10 ms."""

RETRIEVAL_TOOL = "get_archived_output"

CACHE_SECONDS = 300
LONG_CACHE_SECONDS = 3600
"""How long a provider keeps a cache after its last use: Anthropic by the request's breakpoints, OpenAI 5 to 10 minutes
and at most an hour, so that only then it is surely gone. Sources:
https://docs.claude.com/en/docs/build-with-claude/prompt-caching, OpenAI's guide to prompt caching."""

_LONG = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*"1h"')
"""A breakpoint that keeps the cache for an hour. Within a string of JSON no quotation mark stands without a backslash:
no text can hold one."""

SLACK_SECONDS = 15
"""Seconds after the end of a cache's time until it counts as cold: the provider's clock started elsewhere."""

MIN_TOKENS = 3_000
"""Tokens that a prune at a cold cache must free: less is not worth an output that may be fetched again."""

COLD_KEEP_SHARE = 0.5
"""The share of these tokens that stays if the cache is cold: after a pause the model is done with what it had read
these outputs for, and what leaves now costs nothing. Too small a share, and outputs in use are fetched again."""


@dataclass(frozen=True)
class ProxyOptions:
    """What a proxy serves, and how it edits: `upstream` is the model API's address, `step_seconds` how long a request
    waits for the database. `configured` says that the client is known to have our server, `project` is the folder in
    which it was started. With a `secret`, only requests whose path begins with it are served: those of the one client
    that was told it, whatever credentials they hold.

    `unrecorded` gets the session of each request or reply that could not be recorded; `unread` holds how many requests
    of each client's session could not be read, until a request of it is recorded."""

    upstream: str = ANTHROPIC
    keep_tokens: int = DEFAULT_KEEP_TOKENS
    prune: bool = True
    step_seconds: float = STEP_SECONDS
    configured: bool = False
    project: str | None = None
    secret: str | None = None
    clock: Callable[[], float] = time.time
    unrecorded: list[str] = field(default_factory=list)
    unread: dict[str | None, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """A request ready to be sent. `cold` says that the provider's cache of the former request has expired, `changed`
    that it shows other edits than the former one."""

    conversation: Conversation
    asked: AskedRequest
    body: bytes
    cold: bool = False
    changed: bool = False

    @property
    def request(self) -> RequestText:
        """The request as the client wrote it."""
        return self.asked.request

    @property
    def edited(self) -> bool:
        """Whether it is sent in another way."""
        return self.body is not self.request.body


Shown = tuple[dict[int, dict[Path, str]], list[SummaryOf]]
"""What edits change in a request: the texts of results, by message and path, and messages that become summaries."""


def shown(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> Shown:
    """What these edits change in a request."""
    texts: dict[int, dict[Path, str]] = {}
    seen = set[tuple[str, str]]()
    for place, message in enumerate(request.messages) if edits.pins else ():
        for result in message.results:
            if result.text is not None and result.key in edits.pins and result.key not in seen:
                seen.add(result.key)
                texts.setdefault(place, {})[result.path] = edits.pins[result.key]
    return texts, _summaries(conversation, request, edits)


def _summaries(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> list[SummaryOf]:
    """The summaries that stand for messages of a request: those of which it still has all messages. Those of adjacent
    messages become one message, since two of the user may not follow each other."""
    if not edits.summaries:
        return []
    place_of = {seq: place for place, seq in enumerate(conversation.places)}
    places = [(place_of.get(each.first_seq), place_of.get(each.last_seq), each.text) for each in edits.summaries]
    found = list[SummaryOf]()
    for first, last, text in sorted(each for each in places if None not in each):
        if first is None or last is None or last + 1 >= len(request.messages):
            continue
        if found and found[-1].last + 1 == first:
            former = found.pop()
            first, text = former.first, f"{former.text}\n\n{text}"
        found.append(SummaryOf(first, last, text))
    return found


def is_bound(conversation: Conversation, request: RequestText) -> bool:
    """Whether the request holds reasoning that is bound to what stands before it, so that this must stay as it was
    sent: edits wait until the client compacts. A request that lets the API drop what does not match is bound too: its
    reasoning would be lost."""
    binds = reasoning_binding(conversation.state.model) == request.format
    return binds and any(message.reasons for message in request.messages)


def laid_over(original: Prepared) -> Prepared:
    """The request with its session's edits; those of the former request if it holds bound reasoning. Raises
    JsonPositionError if a place is not as expected."""
    conversation, request = original.conversation, original.request
    now, before = (shown(conversation, request, edits) for edits in (conversation.edits, conversation.shown))
    if now != before and is_bound(conversation, request):
        conversation.edits, now = conversation.shown, before
    conversation.shown = conversation.edits
    return replace(original, body=edited(request, *now), changed=now != before)


def writes_long(request: RequestText) -> bool:
    """Whether the cache keeps what the request writes for an hour, at a higher price; of two kinds of breakpoints the
    longer one counts."""
    return request.format == "anthropic" and _LONG.search(request.body) is not None


def cache_seconds(request: RequestText) -> int:
    """How long the cache that a request asks for is kept."""
    return LONG_CACHE_SECONDS if request.format != "anthropic" or writes_long(request) else CACHE_SECONDS


def cold_now(conversation: Conversation, now: float) -> bool:
    """Whether the provider's cache of this conversation has surely expired, by the time since its last use alone: a
    single request that read nothing from it says little, since requests are routed to different machines. It is not
    known to be cold if no request of it was ever seen."""
    state = conversation.state
    return state.requests > 0 and now - state.last_at > state.cache_seconds + SLACK_SECONDS


def offers_retrieval(asked: AskedRequest, *, configured: bool = False) -> bool:
    """Whether the model can call our tool that returns an output: it is offered, or named for a tool search.
    `configured` says that the client is known to have our server: Codex does not name the tools of MCP servers to a
    model that writes programs, but lets the program search for them."""
    messages, names = asked.request.messages, [name for name, _ in asked.tools]
    if configured and any("ALL_TOOLS" in json.dumps(each.native) for each in messages if lists_tools(each)):
        return True
    if any(name.endswith(RETRIEVAL_TOOL) for name in names):
        return True
    searches = any("toolsearch" in name.lower().replace("_", "") for name in names)
    return searches and any(each.noted(_announces) for each in messages)


def _announces(message: TextMessage) -> bool:
    return announces(message.native, RETRIEVAL_TOOL)


def old_outputs(keep_tokens: int, minimum_tokens: int = 0, *, unread: bool = False) -> Step:
    """The recorded outputs that are old enough to leave: all before the newest `keep_tokens`, but for pinned ones and
    those in use, if that frees more than the minimum. Outputs behind the model's last reply, which it has perhaps not
    seen, leave only with `unread`."""

    def step(snapshot: SessionSnapshot) -> PrunePlan:
        messages = (entry.message for entry in reversed(snapshot.entries) if entry.message)
        reply = next((message.seq for message in messages if message.role == "assistant"), 0)
        end = math.inf if unread else reply
        in_use = outputs_in_use(list(snapshot.outputs.values()))
        outputs = {
            place: output
            for place, output in snapshot.unpinned.items()
            if place[0] < end and output.handle not in in_use
        }
        return plan_prune(snapshot, outputs, protect_tokens=keep_tokens, minimum_tokens=minimum_tokens)

    return step
