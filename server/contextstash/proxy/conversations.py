"""Finds the conversation of a request: by the client's own id, else by the messages that it begins with.

A conversation has a `line`, the messages of its newest request. A request continues it if it begins with them. One of
the same client may also go back in it, begin with its summary, or belong to a sub-agent of it. Credentials keep users
apart, whatever their requests name. What fits nowhere begins a new conversation.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from itertools import compress, count
from operator import is_not
from typing import Any

from contextstash.clients.proxied import continues_summary, is_compaction
from contextstash.messages.request import RequestText, TextMessage
from contextstash.request.proxied import ProxiedEdits
from contextstash.session.access import Access, BoundedCache
from contextstash_storage.records import Native, ProxiedSession, Usage

_BILLING = "billing-header"
"""What a block of Claude Code's system prompt holds that is another one in each request."""

MAX_CONVERSATIONS = 64
"""Conversations whose last request is kept in memory, some MB each; those of further ones are read again."""

CREDENTIALS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"chatgpt-account-id")
"""Headers that hold credentials, or name the account: of Anthropic, OpenAI, Azure, Google and Codex.
Cookies change during a session: they are the network's."""

RECENT_SECONDS = 7 * 24 * 3600
RECENT_SESSIONS = 200
"""How far back sessions without a client's id are searched for one that continues after a restart;
one that is not found gets a new session."""


Line = tuple[TextMessage, ...]


@dataclass(eq=False)
class AskedRequest:
    """A request with what tells whose it is: the client's own id of the conversation and of its `parent`, the `sender`,
    and when it came, in seconds since 1970."""

    request: RequestText
    client_id: str | None
    sender: str
    at: float
    parent: str | None = None

    @cached_property
    def summarizes(self) -> bool:
        """Whether the client asks for its own summary: its edits stay as they are, and no new one is made for it."""
        return is_compaction(self.request.latest.native)

    @cached_property
    def tools(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The names and definitions of the tools that the request offers, those in a namespace with its name in front:
        Codex puts the tools of an MCP server into one, and for GPT-6 all tools into an item of the input (seen in
        0.169)."""
        responses = self.request.messages if self.request.format == "openai-responses" else ()
        items = [each.native.get("tools") for each in responses if lists_tools(each)]
        return [found for tools in (self.request.value("tools"), *items) for found in _named(tools)]

    @cached_property
    def surroundings(self) -> str:
        """A hash of the system prompt, without its breakpoints and billing lines. Sub-agents have another than the
        conversation that started them. The first line of a long block is enough: folders and the model's name stand
        further down."""
        system = self.request.value("system") or self.request.value("instructions")
        blocks = system if isinstance(system, list) else [{"text": system}]
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
        lines = [text.strip()[:200] for text in texts if isinstance(text, str) and _BILLING not in text]
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:16]

    @cached_property
    def marks(self) -> list[str]:
        """A hash of each of its beginnings, the shortest first, by which it is known after a restart."""
        chain, marks = hashlib.sha256(self.request.format.encode()), []
        for message in self.request.messages:
            chain.update(message.noted(_digest))
            marks.append(chain.hexdigest()[:32])
        return marks


def lists_tools(message: TextMessage) -> bool:
    """Whether an item of the input holds tool definitions and no message."""
    return message.native.get("type") == "additional_tools"


def _named(tools: object, namespace: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for tool in tools if isinstance(tools, list) else ():
        inner = tool.get("function", tool) if isinstance(tool, dict) else None
        name = inner.get("name") if isinstance(inner, dict) else None
        if not isinstance(name, str):
            continue
        if isinstance(tool.get("tools"), list):
            yield from _named(tool["tools"], f"{namespace}{name}__")
        else:
            yield f"{namespace}{name}", tool


ONE_USER = "run"
"""The sender of all requests under `contextstash run`, whose address no other user knows: a sign-in renews its
token."""


def sender_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """A hash of a request's credentials, so that two users never share a session, also across restarts."""
    found = {name.lower(): value for name, value in headers}
    return _slow_hash(hashlib.sha256(b"\0".join(found.get(name, b"") for name in CREDENTIALS)).digest())


@lru_cache(maxsize=256)
def _slow_hash(digest: bytes) -> str:
    """Takes some 40 ms: a short key, as local servers have, is not found by trying from a copy of the database."""
    return hashlib.scrypt(digest, salt=b"contextstash proxy", n=2**14, r=8, p=1, dklen=8).hex()


@dataclass(eq=False)
class Conversation:
    """What the proxy knows of a session, from its requests and replies.

    `line` are the messages of the newest request; it is `compacting` if that had the model summarize instead.
    `answered` is the last request that got a reply, with the `usage` and the `last_words` of that. `added` are the
    tokens that the last billed one held because of contextstash.

    `recorded` are the messages of the last recorded request, after which the session had `stored` messages. `followed`
    is the transcript by which the session is recorded, if it is. `edits` are those in force, `shown` those of the last
    request; if there are summaries, `places` are the positions in the session of the messages that the request in hand
    begins with. `stored_since` is when the session was created; it is `deleted` if that one is gone.
    """

    session_id: str
    format: str
    state: ProxiedSession
    parent: str | None = None
    agent: str = "proxy"
    line: Line = ()
    compacting: bool = False
    answered: RequestText | None = None
    usage: Usage | None = None
    last_words: Sequence[Native] = ()
    added: int = 0
    loaded: bool = False
    followed: str | None = None
    recorded: Line = ()
    stored: int = 0
    edits: ProxiedEdits = field(default_factory=ProxiedEdits)
    shown: ProxiedEdits = field(default_factory=ProxiedEdits)
    places: tuple[int, ...] = ()
    stored_since: datetime | None = None
    deleted: bool = False
    recording: asyncio.Lock = field(default_factory=asyncio.Lock)

    def change(self, **fields: Any) -> None:
        """Change what is stored of the session's requests."""
        self.state = self.state.model_copy(update=fields)

    def kinship(self, asked: AskedRequest) -> Kinship | None:
        """How a request belongs to this conversation; None if it does not, or if another sender's or client's does."""
        known = (self.format, self.state.client_session, self.state.sender)
        if known != (asked.request.format, asked.client_id, asked.sender):
            return None
        common, is_main = common_start(self.line, asked.request.messages), self.session_id == asked.client_id
        alike = self.state.surroundings == asked.surroundings
        if self.line:
            continues = common == len(self.line) and (alike or has_reply(self.line))
        else:  # read from the store, which knows the hash of the line alone
            common, mark = self.state.length, self.state.mark
            continues = bool(mark) and 0 < common <= len(asked.marks) and asked.marks[common - 1] == mark
        if continues:
            return CONTINUES, common, is_main
        if asked.client_id is None:
            return None
        if asked.summarizes:
            return (SUMMARIZES, common, is_main) if common and self.line else None
        # The messages of a stored conversation are not known: a request goes back in it unless it is in a loop of
        # calls, in which people do not go back.
        stored_back = not self.line and is_main and not (asked.request.latest.results and self.state.mark)
        went_back = is_main and goes_back(self.line, asked.request.messages, common) if self.line else stored_back
        if alike and (went_back or edited_in_place(self.line, asked.request.messages, common)):
            # A person goes back in the main conversation alone, also to a message that a fork beside it has as well: a
            # second sub-agent that begins with the same prompt is another one.
            return GOES_BACK, common, is_main
        if alike and (self.compacting or (is_main and continues_summary(asked.request.messages[0].native))):
            return BEGINS_AGAIN, common, is_main
        return None

    def take(self, asked: AskedRequest) -> None:
        """Take over a request, so that the next one is recognized."""
        self.compacting = asked.summarizes
        if self.compacting:
            return
        self.line = asked.request.messages
        mark = asked.marks[-1] if has_reply(self.line) else ""
        self.change(surroundings=asked.surroundings, mark=mark, length=len(self.line))

    def usage_before(self, asked: AskedRequest) -> Usage | None:
        """The usage of the last reply among the messages of a request, if that extends the last request."""
        known = self.answered
        return self.usage if known is not None and len(asked.request.messages) > len(known.messages) else None

    def forget(self) -> None:
        """Drop all that is known of a session that was deleted."""
        self.deleted, self.recorded = True, ()
        self.edits = self.shown = ProxiedEdits()


Kinship = tuple[int, int, bool]
"""How a request belongs to a conversation, how many messages they have in common, and whether that is the client's main
one. The greatest decides."""

BEGINS_AGAIN, GOES_BACK, SUMMARIZES, CONTINUES = range(4)


class Conversations:
    """The conversations whose requests were seen last."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.known: BoundedCache[str, Conversation] = BoundedCache(MAX_CONVERSATIONS)
        """The newest ones by the id of their session, in the order in which they went on."""
        self._looking_up = asyncio.Lock()

    def likely(self, body: bytes) -> RequestText | None:
        """The earlier request that this body most likely continues, to read less of it."""
        for conversation in reversed(self.known.values()):
            request = conversation.answered
            if request is not None and body[slice(*request.spans[0])] == request.messages[0].raw:
                return request
        return None

    async def find(self, asked: AskedRequest) -> Conversation | None:
        """The conversation that a request belongs to, perhaps a new one; None for a side call, which offers no tools
        and belongs to none, unless it asks for the summary of a known one."""
        found = _nearest(self.known.values(), asked) if asked.tools or asked.summarizes else None
        if found is None and not asked.tools:
            return None
        if found is None:
            async with self._looking_up:  # another request of the same conversation may have been first
                group = [*await self._stored(asked), *self.known.values()]
                found = _nearest(group, asked) or await self._new(asked)
        found.take(asked)  # nothing is awaited before this, so that the next one to look finds it
        return self.known.set(found.session_id, found)

    async def _stored(self, asked: AskedRequest) -> list[Conversation]:
        """The stored conversations that are not in memory, the newest last: recent ones, and the client's own."""
        found = dict(await self._access.store.recent_proxied(asked.at - RECENT_SECONDS, RECENT_SESSIONS))
        if asked.client_id is not None and asked.client_id not in found:
            state = await self._access.proxied(asked.client_id)
            found |= {asked.client_id: state} if state is not None else {}
        stored = ((name, state) for name, state in reversed(found.items()) if name not in self.known)
        return [Conversation(name, asked.request.format, state) for name, state in stored]

    async def _new(self, asked: AskedRequest) -> Conversation:
        """A new conversation: the client's main one, or one beside it, as of a sub-agent. If its session was deleted,
        perhaps while no proxy ran, it is marked so."""
        name, parent = asked.client_id, asked.parent
        if name is None:
            name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        else:
            if await self._is_taken(name):
                name, parent = f"{name}.{asked.marks[0][:8]}", name
            if await self._is_taken(name):
                name = f"{name}-{secrets.token_hex(3)}"
        state = ProxiedSession(client_session=asked.client_id, sender=asked.sender)
        found, access = Conversation(name, asked.request.format, state, parent=parent), self._access
        if await access.find(name) is None and await access.was_deleted(name, asked.marks):
            found.forget()
        return found

    async def _is_taken(self, session_id: str) -> bool:
        """Whether a session of this id belongs to another conversation."""
        return session_id in self.known or await self._access.proxied(session_id) is not None


def _nearest(group: Iterable[Conversation], asked: AskedRequest) -> Conversation | None:
    """The conversation of these, the oldest first, that a request belongs to: only its sender could continue it."""
    kin = [(kinship, each) for each in reversed([*group]) if (kinship := each.kinship(asked)) is not None]
    return max(kin, key=lambda found: found[0])[1] if kin else None


# Lines of requests: whether a request continues another one, by the messages that both have.


def common_start(known: Sequence[TextMessage], messages: Sequence[TextMessage]) -> int:
    """How many messages two lists have in common at the start. Breakpoints do not count: they move."""
    # Without a loop over equal ones: this is asked some times for each request, and some have two thousand messages.
    for place in compress(count(), map(is_not, known, messages)):
        if known[place].plain != messages[place].plain:
            return place
    return min(len(known), len(messages))


def has_reply(line: Line) -> bool:
    """Whether the model has spoken in it. What was said before is not enough to know a conversation by: many begin with
    the same words."""
    return any(message.is_models for message in line)


def goes_back(line: Line, messages: Line, common: int) -> bool:
    """Whether in a request of the same client a person went back to an earlier message of `line`, with which it has so
    many messages in common.

    Parallel agents begin with the same messages too. They are told apart by where they differ: two replies to the same
    request, or two results of the same calls, followed by further work of the agent and not by words of a person."""
    if common in (len(line), len(messages)):
        return True
    if common == 0:
        return False
    new, old = messages[common], line[common]
    is_parallel = (new.is_models and old.is_models) or bool(new.results and old.results)
    return not (is_parallel and any(message.results for message in behind_reply(messages)))


def edited_in_place(line: Line, messages: Line, common: int) -> bool:
    """Whether the client edited old messages of `line`: a reply behind them stands where it stood."""
    behind = zip(line[common + 1 :], messages[common + 1 :], strict=False)
    return any(old.is_models and old.plain == new.plain for old, new in behind)


def behind_reply(messages: Line) -> Line:
    """The messages behind the last reply of the model: results of its calls, and perhaps a reminder by the client."""
    last = max((place for place, message in enumerate(messages) if message.is_models), default=-1)
    return messages[last + 1 :]


def _digest(message: TextMessage) -> bytes:
    text = json.dumps(message.plain, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
