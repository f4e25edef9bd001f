"""Finds the conversation of a request: by the client's own id, else by the messages that it begins with."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from contextstash.base.bounded_cache import BoundedCache
from contextstash.clients.request_identity import ClientSession, continues_summary
from contextstash.messages.reasoning_reports import DroppedPiece
from contextstash.messages.request.text import RequestText, TextMessage
from contextstash.proxy.refetches import Refetches
from contextstash.proxy.request_lines import (
    Line,
    common_start,
    follows_response,
    goes_back,
    has_reply,
    is_side_call,
    line_mark,
    prefix_marks,
    replied_line,
    tool_names,
    without_prompt,
)
from contextstash.proxy.senders import Sender
from contextstash.request.proxied import Catalog, ProxiedEdits, ProxiedSessions, RecordedList
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import Native, ProxiedSession, Usage

_NUMBER = re.compile(r"\d+")

_BILLING = "billing-header"
"""What a block of Claude Code's system prompt holds that is another one in each request."""

MAX_CONVERSATIONS = 64
"""Conversations whose last request is kept in memory, some MB each; those of further ones are read again."""

MAX_HEADS = 8
"""First messages by which a conversation is recognized; each compaction by the client makes a new one. A conversation
that is not recognized gets a new session."""

DEFAULT_TOKENS_PER_BYTE = 1 / 3.4
"""Tokens of a byte of a request until the provider has reported usage: measured on recorded sessions of Claude Code."""

SAME_GREETING_SECONDS = 600.0
"""Requests without an id that are all equal, before the model has spoken, count as one conversation for so long: as
tries again, or as parallel agents, which part when they differ."""

MAX_SENDERS = 10_000
"""Sessions of which the sender is remembered after they have left the memory: some 150 bytes each."""

MAX_RESPONSES = 8
"""Responses of a conversation that a request may follow: the newest, and some to which a program goes back."""

MIN_RANDOM_ID = 20
"""Characters of a call's id that no other conversation has: Anthropic's and OpenAI's have 29 or 30, most of them
random. Those that a model counts, such as `call_0`, are shorter."""

RECENT_SECONDS = 7 * 24 * 3600
RECENT_SESSIONS = 200
"""How far back sessions without a client's id are searched for one that continues after a restart;
one that is not found gets a new session."""


@dataclass(eq=False)
class AskedRequest:
    """A request with what tells whose it is: the client's own id of the conversation, a hash of the credentials, and
    when it came, in seconds since 1970. It is on its way until it has `ended`; it is `left_behind` if another request
    has gone on from the same messages meanwhile, so that its own reply is continued in another session."""

    request: RequestText
    client: ClientSession | None
    sender: Sender
    at: float
    ended: bool = False
    left_behind: bool = False

    @property
    def client_id(self) -> str | None:
        return self.client.session_id if self.client else None

    def is_behind(self, other: AskedRequest) -> bool:
        """Whether the other one, of the same conversation, goes further."""
        if follows_response(self.request) or follows_response(other.request):
            return not follows_response(self.request)
        return len(self.request.messages) < len(other.request.messages)

    def repeats(self, other: AskedRequest) -> bool:
        """Whether both follow the same response with the same messages, as if the client tries again."""
        one, two = self.request, other.request
        same = one.value("previous_response_id") == two.value("previous_response_id")
        return same and len(one.messages) == len(two.messages) == common_start(one.messages, two.messages)

    def may_be_of(self, sender: Sender | None, common: int) -> bool:
        """Whether it may continue a session of this sender, None if that is not known. Of another token of the same
        account, as after it was renewed, the `common` first messages must hold what only its client knows."""
        if sender is None or sender == self.sender:
            return True
        return self.sender.may_be(sender) and self.has_random_call(common)

    def has_random_call(self, count: int) -> bool:
        """Whether its first messages, so many, hold a result of a call whose id cannot be guessed."""
        results = (result for message in self.request.messages[:count] for result in message.results)
        return any(len(result.call_id) >= MIN_RANDOM_ID for result in results)

    @cached_property
    def surroundings(self) -> str:
        return surroundings_of(self.request)

    @cached_property
    def marks(self) -> list[str]:
        """The hashes of its beginnings, by which stored lines are recognized."""
        return prefix_marks(self.request.format, self.request.messages)


def is_continued(state: ProxiedSession, asked: AskedRequest) -> bool:
    """Whether a request follows the last response of a stored session, or begins with all messages of its last
    request."""
    if follows_response(asked.request):
        return bool(state.response == asked.request.value("previous_response_id"))
    return bool(state.mark) and 0 < state.length <= len(asked.marks) and asked.marks[state.length - 1] == state.mark


NO_SETTINGS = ContextSettings()
"""Those of a session that is not recorded yet, or not any more."""


@dataclass(eq=False)
class Conversation:
    """One line of requests: what the proxy knows of its session.

    `sent_bytes` is how much of the last request was sent of the prompt; `dropped` names the reasoning that the provider
    has reported as dropped. `recorded` are the messages that the session holds of the last recorded request, `stored`
    says where. `followed` is the transcript by which the session is recorded, if it is; `usage` is that of the last
    reply; `edits` are those in force, `shown` those of the last request; `settings` are the session's, as far as it is
    recorded. `refetches` are outputs that were fetched again; `added` are the tokens that the last request held because
    of contextstash, `lost` the size of the window that its compaction ended; `unoffered_since` is when the client
    stopped to offer the retrieval tool, in seconds since 1970.

    `line` are the messages of the last request that got a reply, `flights` the requests that wait for theirs; `sender`
    is the hash of their credentials. While the client has the model summarize, it is `compacting`, and `summarized` is
    the size of the window that this ends, in tokens. `responses` are the
    lines that the provider keeps, by the ids of their responses, empty until they are recorded; `origin` has the one
    with which this conversation begins, until that is recorded here. `stored_since` is when the session was created; it
    is `deleted` if that one is gone. `final` reads the reply to the last request, if that ends a turn.
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
    settings: ContextSettings = NO_SETTINGS
    dropped: set[str] = field(default_factory=set)
    usage: Usage | None = None
    refetches: Refetches = field(default_factory=Refetches)
    added: int = 0
    lost: int = 0
    unoffered_since: float | None = None
    line: Line = ()
    flights: list[AskedRequest] = field(default_factory=list)
    sender: Sender | None = None
    compacting: bool = False
    summarized: int = 0
    responses: OrderedDict[str, Line] = field(default_factory=OrderedDict)
    origin: Conversation | None = None
    stored_since: datetime | None = None
    deleted: bool = False
    recording: asyncio.Lock = field(default_factory=asyncio.Lock)
    final: Callable[[], list[Native]] = list
    _compared: tuple[Line, Line, int] = ((), (), 0)

    def note_model(self, request: RequestText) -> None:
        """Note which model the request asks for."""
        model = request.value("model")
        if isinstance(model, str) and model != self.state.model:
            self.state = self.state.model_copy(update={"model": model})

    @property
    def tokens_per_byte(self) -> float:
        """Tokens of a byte of a request."""
        return self.state.tokens_per_byte or DEFAULT_TOKENS_PER_BYTE

    def newly_dropped(self, reported: Sequence[DroppedPiece]) -> list[DroppedPiece]:
        """What is reported for the first time: the provider reports it again with each request that holds it."""
        new = [each for each in reported if each.name not in self.dropped]
        self.dropped.update(each.name for each in new)
        return new

    @property
    def positions(self) -> tuple[int, ...]:
        """Where the recorded messages are in the session."""
        return self.stored.positions

    def is_continued_by(self, asked: AskedRequest) -> bool:
        """Whether a request begins with all messages of the last one, and with those that are on their way."""
        messages = asked.request.messages
        waiting = self.waiting()
        if asked.client is None and any(asked.is_behind(flight) for flight in waiting):
            return False
        flights = [flight.request.messages for flight in waiting]
        if any(common_start(flight, messages) < min(len(flight), len(messages)) for flight in flights):
            return False
        if not self.line:
            if self.state.mark:
                return is_continued(self.state, asked)
            return self._is_like(asked) and (bool(flights) or asked.client is not None)
        if common_start(self.line, messages) < len(self.line):
            return False
        return has_reply(self.line) or (self._is_like(asked) and self._is_recent(asked))

    def waiting(self) -> list[AskedRequest]:
        """The requests that wait for their replies, except for those that were left behind."""
        return [flight for flight in self.flights if not flight.ended and not flight.left_behind]

    def _is_like(self, asked: AskedRequest) -> bool:
        return self.state.surroundings == asked.surroundings

    def _is_recent(self, asked: AskedRequest) -> bool:
        return asked.client is not None or asked.at - self.state.last_at <= SAME_GREETING_SECONDS

    def goes_back_to(self, request: RequestText) -> bool:
        """Whether a request of the same client goes on from an earlier message of this conversation."""
        flights = [flight.request.messages for flight in self.waiting()]
        lines = [line for line in (self.line, *flights) if line]
        return bool(lines) and all(goes_back(line, request) for line in lines)

    def is_summarized_by(self, asked: AskedRequest) -> bool:
        """Whether the request begins with a summary of the client's main conversation."""
        return self.session_id == asked.client_id and continues_summary(asked.request.messages[0].native)

    def is_followed_by(self, asked: AskedRequest) -> bool:
        """Whether a request goes on from the newest response, and no other request does. Users who begin with the same
        words share a session until one of them has gone on; the others leave it then."""
        ahead = [
            flight
            for flight in self.waiting()
            if follows_response(flight.request) or len(flight.request.messages) > len(self.line)
        ]
        alone = asked.client is not None or all(flight.repeats(asked) for flight in ahead)
        return alone and asked.request.value("previous_response_id") == self.state.response

    def answered(self, asked: AskedRequest) -> bool:
        """Whether the response that the request follows was given here, the newest or an earlier one."""
        return asked.request.value("previous_response_id") in (*self.responses, self.state.response)

    def extended_by(self, messages: Line) -> RecordedList | None:
        """Where the messages are that a list begins with, if it continues the recorded ones."""
        count = len(self.recorded)
        return self.stored if 0 < count == len(self.positions) == common_start(self.recorded, messages) else None

    def advance(self, request: RequestText, response: Mapping[str, Any] | None) -> None:
        """Take over a request that got its reply, so that the next one is recognized."""
        self.compacting = is_side_call(request)
        state = with_head(self.state, head_of(request))
        if self.compacting:
            self.summarized = state.prompt
        line = self._line_after(request, response)
        if line is not None:
            self.line = line
            mark = line_mark(self.format, line) if request.compacts or not follows_response(request) else ""
            around = state.surroundings if request.compacts else surroundings_of(request)
            state = state.model_copy(update={"surroundings": around, "mark": mark, "length": len(line)})
        if not request.compacts and response is not None and isinstance(response.get("id"), str):
            state = state.model_copy(update={"response": response["id"]})
            self.keep_response(response, ())
        elif not follows_response(request):
            state = state.model_copy(update={"response": None})  # the former one has not ended this line
        self.state = state

    def _line_after(self, request: RequestText, response: Mapping[str, Any] | None) -> Line | None:
        """What the next request begins with; None if that is not known: the client is about to write it."""
        if request.compacts:
            return replied_line(request, (), response) or None
        if self.compacting:
            return None
        # What only follows a response does not begin a conversation, so no other request is known by it.
        return () if follows_response(request) and not self.state.client_session else request.messages

    def keep_response(self, response: Mapping[str, Any] | None, line: Line) -> None:
        """Remember the conversation up to a response, which the next request may follow."""
        if response is not None and isinstance(response.get("id"), str):
            self.responses[response["id"]] = line
            while len(self.responses) > MAX_RESPONSES:
                self.responses.popitem(last=False)

    def forget(self) -> None:
        """Drop all that is known of a session that was deleted."""
        self.deleted, self.recorded, self.stored = True, (), RecordedList()
        self.catalog, self.settings, self.origin = Catalog(), NO_SETTINGS, None
        self.responses = OrderedDict.fromkeys(self.responses, ())
        self.edits = self.shown = ProxiedEdits()

    def same_messages(self, request: RequestText) -> int:
        """How many messages the request begins with that are recorded, breakpoints aside."""
        recorded, messages, count = self._compared
        if recorded is not self.recorded or messages is not request.messages:  # asked ten times for each request
            count = common_start(self.recorded, request.messages)
            self._compared = self.recorded, request.messages, count
        return count


def before_summary(conversation: Conversation, request: RequestText) -> RequestText | None:
    """What the client's request for a summary holds but the prompt for it, if that is new: the results that have
    filled the window are in no other request. None if there is nothing new, or if it does not go on from what is
    recorded."""
    known = conversation.same_messages(request)
    if request.compacts:  # the API's own compaction has no prompt
        return request if known < len(request.messages) else None
    place = request.messages.index(request.latest)
    rest = without_prompt(request.latest)
    messages = (*request.messages[:place], *([rest] if rest is not None else []))
    if not known or known < len(conversation.recorded) or len(messages) <= known:
        return None
    return replace(request, messages=messages, spans=request.spans[: len(messages)], asked={})


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
    # The first line of a long block is enough: folders and the model's name stand further down. Some programs begin
    # with the time, which is another one in each request.
    heads = [_NUMBER.sub("0", text.strip()[:200]) for text in texts if isinstance(text, str) and _BILLING not in text]
    return _hash(heads)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


class Conversations:
    """The conversations whose requests were seen last."""

    def __init__(self, sessions: ProxiedSessions | None) -> None:
        """Without `sessions` nothing is looked up or recorded."""
        self._sessions = sessions
        self._known: BoundedCache[str, Conversation] = BoundedCache(MAX_CONVERSATIONS)
        self._senders: BoundedCache[str, Sender] = BoundedCache(MAX_SENDERS)
        self._looking_up = asyncio.Lock()

    def of_client(self, client_id: str | None) -> Conversation | None:
        """The main conversation of a client, if a request of it was seen."""
        return self._known.get(client_id) if client_id else None

    def likely(self, body: bytes) -> RequestText | None:
        """The earlier request that this body most likely continues, to read less of it."""
        for conversation in reversed(self._known.values()):
            request = conversation.request
            if request is not None:
                first = request.spans[0]
                if body[first.start : first.end] == request.messages[0].raw:
                    return request
        return None

    async def find(self, asked: AskedRequest) -> Conversation | None:
        """The conversation that a request belongs to, perhaps a new one; None for a side call, which offers no tools
        and belongs to none, unless it asks for the summary of a known one, or the API itself to compact. The request is
        in flight there until `asked.ended` is set."""
        request = asked.request
        side = is_side_call(request)
        if not tool_names(request) and not follows_response(request) and not request.compacts:
            return self._compacted(asked) if side else None
        found = self._in_memory(asked) or (self._compacted(asked) if side else None)
        if found is None:
            async with self._looking_up:
                # Another request of the same conversation may have been first.
                found = self._in_memory(asked) or await self._looked_up(asked)
                self._claim(found, asked)
        else:
            self._claim(found, asked)
        return found

    def _claim(self, found: Conversation, asked: AskedRequest) -> None:
        found.sender = asked.sender
        self._senders.set(found.session_id, asked.sender)
        found.flights = [flight for flight in found.flights if not flight.ended]
        if not is_side_call(asked.request):
            for flight in found.flights:
                flight.left_behind |= asked.client is None and flight.is_behind(asked)
            found.flights.append(asked)
        self._known.set(found.session_id, found)

    def _group(self, asked: AskedRequest) -> list[Conversation]:
        """The known conversations that this sender could continue, the newest first."""
        return [
            each
            for each in reversed(self._known.values())
            if each.format == asked.request.format
            and each.state.client_session == asked.client_id
            and asked.may_be_of(each.sender, common_start(each.line, asked.request.messages))
        ]

    def _in_memory(self, asked: AskedRequest) -> Conversation | None:
        group = self._group(asked)
        if follows_response(asked.request):
            newest = next((each for each in group if each.is_followed_by(asked)), None)
            if newest is not None or asked.client is None:
                return newest
            return next((each for each in group if each.answered(asked)), None)
        whole = [each for each in group if each.is_continued_by(asked)]
        if whole:
            return max(whole, key=lambda each: len(each.line))
        if asked.client is None:
            return None
        alike = [each for each in group if each.state.surroundings == asked.surroundings]
        back = [each for each in alike if each.goes_back_to(asked.request)]
        if back:
            # A person goes back in the main conversation, also to a message that a fork beside it has as well.
            return max(
                back,
                key=lambda each: (common_start(each.line, asked.request.messages), each.session_id == asked.client_id),
            )
        return next((each for each in alike if each.compacting or each.is_summarized_by(asked)), None)

    def _compacted(self, asked: AskedRequest) -> Conversation | None:
        """The conversation of which the client wants a summary: the one with most messages in common."""
        best, most = None, 0
        for each in self._group(asked):
            line, messages = each.line, asked.request.messages
            common = common_start(line, messages)
            if common > most and (asked.client is not None or common == len(line)):
                best, most = each, common
        return best

    async def _looked_up(self, asked: AskedRequest) -> Conversation:
        """A conversation that is stored, or a new one. One that could be of two senders is in doubt: a new one. One
        whose session was deleted, perhaps while no proxy ran, is marked so."""
        states = await self._stored(asked)
        continued = [(name, state) for name, state in states.items() if is_continued(state, asked)]
        if len(continued) == 1:
            [(name, state)] = continued
            return Conversation(name, asked.request.format, state)
        if asked.client is None:
            found = _new(f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", asked, None)
            await self._branch(found, asked)
        else:
            found = await self._of_client(asked, asked.client, states)
        previous = asked.request.value("previous_response_id")
        if self._sessions is not None and await self._sessions.was_deleted(found.session_id, asked.marks, previous):
            found.forget()
        return found

    async def _branch(self, found: Conversation, asked: AskedRequest) -> None:
        """Begin a new conversation with what the response that it follows has ended. It is not recorded if that was
        deleted."""
        if not follows_response(asked.request):
            return
        found.origin = next((each for each in self._group(asked) if each.answered(asked)), None)
        origin = found.origin
        if self._sessions is None or origin is None:
            return
        gone = origin.stored_since is not None and await self._sessions.find(origin.session_id) is None
        if origin.deleted or gone:
            found.forget()
            await self._sessions.note_unrecorded(origin.session_id, (), tuple(origin.responses))

    @property
    def in_memory(self) -> list[Conversation]:
        """The newest ones, in the order in which they went on."""
        return list(self._known.values())

    async def note_unrecorded(self, conversation: Conversation, request: RequestText) -> None:
        """Note the responses to the client of a deleted session, so that it is recognized by them after a restart."""
        if self._sessions is None or not conversation.responses:
            return
        follows = follows_response(request)
        marks = [] if follows else prefix_marks(request.format, request.messages)
        responses = [*([request.value("previous_response_id")] if follows else []), *conversation.responses]
        await self._sessions.note_unrecorded(conversation.session_id, marks, responses)

    async def _stored(self, asked: AskedRequest) -> dict[str, ProxiedSession]:
        """The stored sessions that this sender could continue, and that are not in memory."""
        if self._sessions is None:
            return {}
        found = dict(await self._sessions.recent(asked.at - RECENT_SECONDS, RECENT_SESSIONS))
        if asked.client is not None and asked.client.session_id not in found:
            state = await self._sessions.state(asked.client.session_id)
            found |= {asked.client.session_id: state} if state is not None else {}
        return {
            session_id: state
            for session_id, state in found.items()
            if state.client_session == asked.client_id
            and session_id not in self._known
            and asked.may_be_of(self._senders.get(session_id), state.length)
        }

    async def _of_client(
        self, asked: AskedRequest, client: ClientSession, stored: Mapping[str, ProxiedSession]
    ) -> Conversation:
        """The client's main conversation, or one beside it: a sub-agent begins with another message and has another
        system prompt. After a compaction of the main one only its first message is another."""
        name, request = client.session_id, asked.request
        main = stored.get(name)
        if main is not None and await self._is_main(name, main, asked):
            return Conversation(name, request.format, main)
        if main is None and not await self._is_taken(name):
            return _new(name, asked, name, client.parent)
        beside = f"{name}.{head_of(request)[:8]}"
        if await self._is_taken(beside):
            beside = f"{beside}-{secrets.token_hex(3)}"
        return _new(beside, asked, name, name)

    async def _is_main(self, name: str, state: ProxiedSession, asked: AskedRequest) -> bool:
        """Whether a request that is no continuation of a stored session belongs to it all the same. In a loop of calls
        nobody goes back: what differs there is of another agent, unless the client records the session itself, with
        other messages than it sends. After a restart the sender is not known: then who goes back must have results of
        the session's own calls, or the messages are of another user with the same id. A response that is not the newest
        one has ended a line that is not stored."""
        request = asked.request
        if follows_response(request):
            return False
        if state.surroundings != asked.surroundings and head_of(request) not in state.heads:
            return False
        known_sender = self._senders.get(name) == asked.sender
        may_go_back = not request.latest.results or not state.mark or continues_summary(request.messages[0].native)
        if known_sender and may_go_back:
            return True
        assert self._sessions is not None
        session = await self._sessions.find(name)
        if session is None or session.source is not None:
            return True
        common = len(await self._sessions.positions(name, [message.plain for message in request.messages]))
        if not known_sender:
            own = asked.has_random_call(common)
            return (may_go_back and own) or (not state.mark and common >= state.length)
        return common < len(request.messages) and not request.messages[common].is_models and common > 0

    async def _is_taken(self, session_id: str) -> bool:
        """Whether a session of this id belongs to another conversation."""
        if session_id in self._known or self._senders.get(session_id) is not None:
            return True
        return self._sessions is not None and await self._sessions.state(session_id) is not None


def _new(session_id: str, asked: AskedRequest, client: str | None, parent: str | None = None) -> Conversation:
    state = ProxiedSession(client_session=client, surroundings=asked.surroundings)
    return Conversation(session_id, asked.request.format, state, parent=parent)


def with_head(state: ProxiedSession, head: str) -> ProxiedSession:
    """The state, by which requests that begin with this message are recognized too."""
    if state.heads and state.heads[-1] == head:
        return state
    heads = (*(known for known in state.heads if known != head), head)[-MAX_HEADS:]
    return state.model_copy(update={"heads": heads})
