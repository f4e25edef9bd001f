"""Which conversation a request belongs to: by the client's own id, else by the messages that it begins with."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from contextstash.formats.request_text import RequestText, TextMessage
from contextstash.hosts.request_identity import ClientSession, is_compaction
from contextstash.proxy.part_kinds import TOOL_OUTPUTS_ONLY, PartKinds
from contextstash.service.requests.proxied import Catalog, ProxiedEdits, ProxiedSessions, RecordedList
from contextstash_storage.records import ProxiedSession, Usage

MAX_CONVERSATIONS = 64
"""Conversations whose last request is kept in memory. A guess: requests of some MB each."""

MAX_HEADS = 8
"""First messages by which a conversation is recognized; each compaction by the client makes a new one. A guess."""

DEFAULT_TOKENS_PER_BYTE = 1 / 3.4
"""Tokens of a byte of a request until the provider has reported usage: measured on recorded sessions of Claude Code."""

RECENT_SECONDS = 7 * 24 * 3600
RECENT_SESSIONS = 200
"""How far back sessions without a client's id are searched for one that continues after a restart. Guesses."""


@dataclass(eq=False)
class Conversation:
    """One line of requests: what the proxy knows of its session.

    `sent_bytes` is how much of the last request was sent of the prompt; `calibration` is the ratio of the provider's
    count of tokens to ours; `anchor` is the message of the last request that had our own breakpoint. `recorded` are the
    messages that the session holds of the last recorded request, `stored` says where. `followed` is the transcript by
    which the session is recorded, if it is; `usage` is that of the last reply; `edits` are those in force, `shown`
    those of the last request; `kept` are the pins of the user or the model: handles and files that stay; parts of
    `other_kinds` may leave its requests beside tool outputs. `counted` are the repeated calls that are booked already;
    `unoffered_since` is when the client stopped to offer the retrieval tool, in seconds since 1970.
    """

    session_id: str
    format: str
    state: ProxiedSession
    parent: str | None = None
    loaded: bool = False
    agent: str = "proxy"
    followed: str | None = None
    request: RequestText | None = None
    sent_bytes: int = 0
    recorded: tuple[TextMessage, ...] = ()
    stored: RecordedList = field(default_factory=RecordedList)
    catalog: Catalog = field(default_factory=Catalog)
    edits: ProxiedEdits = field(default_factory=ProxiedEdits)
    shown: ProxiedEdits = field(default_factory=ProxiedEdits)
    kept: tuple[str, ...] = ()
    other_kinds: PartKinds = TOOL_OUTPUTS_ONLY
    calibration: float = 1.0
    anchor: int | None = None
    usage: Usage | None = None
    counted: frozenset[str] = frozenset()
    unoffered_since: float | None = None
    recording: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def tokens_per_byte(self) -> float:
        """Tokens of a byte of a request."""
        return self.state.tokens_per_byte or DEFAULT_TOKENS_PER_BYTE

    @property
    def positions(self) -> tuple[int, ...]:
        """Where the recorded messages are in the session."""
        return self.stored.positions

    def extended_by(self, request: RequestText) -> RecordedList | None:
        """Where the messages are that the request begins with, if it continues the recorded ones."""
        count = len(self.recorded)
        return self.stored if 0 < count == len(self.positions) == self.same_messages(request) else None

    def same_messages(self, request: RequestText) -> int:
        """How many messages the request begins with that are recorded, breakpoints aside."""
        return common_start(self.recorded, request.messages)


def common_start(known: tuple[TextMessage, ...], messages: tuple[TextMessage, ...]) -> int:
    """How many messages two lists have in common at the start. Breakpoints do not count: they move."""
    for place, (old, new) in enumerate(zip(known, messages, strict=False)):
        if old is not new and old.plain != new.plain:
            return place
    return min(len(known), len(messages))


def head_of(request: RequestText) -> str:
    """A hash of the first message, made once: it can be long, and the client waits for it at the end of each reply."""
    first = request.messages[0]
    if "head" not in first.notes:
        first.notes["head"] = _hash(first.plain)
    return str(first.notes["head"])


def surroundings_of(request: RequestText) -> str:
    """A hash of what stands around the messages: the system prompt without its breakpoints and billing lines, and the
    names of the tools. Sub-agents have others than the conversation that started them."""
    system = request.value("system") or request.value("instructions")
    texts = [part.get("text") for part in system if isinstance(part, dict)] if isinstance(system, list) else [system]
    # The first line of a long block is enough: dates, folders and the model's name stand further down.
    heads = [text.strip()[:200] for text in texts if isinstance(text, str) and "billing-header" not in text]
    return _hash(heads)


def tool_names(request: RequestText) -> list[str]:
    """The names of the tools that the request offers, also those in a namespace: Codex puts the tools of an MCP server
    into one, and for GPT-6 all tools into an item of the input (seen in 0.169)."""
    items = [request.messages[place].native.get("tools") for place in request.places(lists_tools)]
    return [name for tools in (request.value("tools"), *items) for name in _names(tools)]


def lists_tools(message: TextMessage) -> bool:
    """Whether an item of the input holds tool definitions and no message."""
    return message.native.get("type") == "additional_tools"


def _names(tools: object) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function")
        name = (inner if isinstance(inner, dict) else tool).get("name")
        if isinstance(name, str):
            yield name
        yield from _names(tool.get("tools"))


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


class Conversations:
    """The conversations whose requests were seen last."""

    def __init__(self, sessions: ProxiedSessions | None) -> None:
        """Without `sessions` nothing is looked up or recorded."""
        self._sessions = sessions
        self._known: OrderedDict[str, Conversation] = OrderedDict()

    def likely(self, body: bytes) -> RequestText | None:
        """The earlier request that this body most likely continues, to read less of it."""
        for conversation in reversed(self._known.values()):
            request = conversation.request
            if request is not None:
                first = request.spans[0]
                if body[first.start : first.end] == request.messages[0].raw:
                    return request
        return None

    async def find(self, request: RequestText, client: ClientSession | None, now: float) -> Conversation | None:
        """The conversation that a request belongs to, perhaps a new one; None for a side call, which offers no tools
        and belongs to none, unless it asks for the summary of a known one."""
        found = None
        offers_tools = bool(tool_names(request))
        if offers_tools or is_compaction(request.latest.native):
            found = self._by_messages(request, client.session_id if client else None)
        if not offers_tools:
            return found
        if found is None:
            found = await (self._of_client(request, client) if client else self._without_id(request, now))
        self._known[found.session_id] = found
        self._known.move_to_end(found.session_id)
        while len(self._known) > MAX_CONVERSATIONS:
            self._known.popitem(last=False)
        return found

    def _by_messages(self, request: RequestText, client: str | None) -> Conversation | None:
        """The conversation whose last request has most messages in common with the start of this one."""
        best: tuple[int, Conversation] | None = None
        for conversation in reversed(self._known.values()):
            before = conversation.request
            if before is None or conversation.state.client_session != client or conversation.format != request.format:
                continue
            common = common_start(before.messages, request.messages)
            # People begin several conversations with the same words: without an id one message is not enough.
            enough = 1 if client or len(before.messages) == 1 else 2
            if common >= enough and (best is None or common > best[0]):
                best = (common, conversation)
        return best[1] if best else None

    async def _of_client(self, request: RequestText, client: ClientSession) -> Conversation:
        """The client's main conversation, or one beside it: a sub-agent begins with another message and has another
        system prompt. After a compaction of the main one only its first message is another."""
        name = client.session_id
        main = self._known.get(name) or await self._stored(name, request)
        head, surroundings = head_of(request), surroundings_of(request)
        if main is None:
            return _new(name, request, name, client.parent)
        if head in main.state.heads or surroundings == main.state.surroundings:
            return main
        beside = f"{name}.{head[:8]}"
        return self._known.get(beside) or await self._stored(beside, request) or _new(beside, request, name, name)

    async def _without_id(self, request: RequestText, now: float) -> Conversation:
        head = head_of(request)
        if self._sessions is not None and len(request.messages) > 1:
            for session_id, state in await self._sessions.recent(now - RECENT_SECONDS, RECENT_SESSIONS):
                if state.client_session is None and head in state.heads and session_id not in self._known:
                    return Conversation(session_id, request.format, state)
        return _new(f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", request, None)

    async def _stored(self, session_id: str, request: RequestText) -> Conversation | None:
        state = await self._sessions.state(session_id) if self._sessions is not None else None
        return None if state is None else Conversation(session_id, request.format, state)


def _new(session_id: str, request: RequestText, client: str | None, parent: str | None = None) -> Conversation:
    state = ProxiedSession(client_session=client, surroundings=surroundings_of(request))
    return Conversation(session_id, request.format, state, parent=parent)


def with_head(state: ProxiedSession, head: str) -> ProxiedSession:
    """The state, by which requests that begin with this message are recognized too."""
    if state.heads and state.heads[-1] == head:
        return state
    heads = (*(known for known in state.heads if known != head), head)[-MAX_HEADS:]
    return state.model_copy(update={"heads": heads})
