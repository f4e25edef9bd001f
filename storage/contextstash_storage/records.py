"""The records that are stored: sessions, messages, edits, events, calls, and a session's running counters."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from base64 import b32encode
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar
from zlib import crc32

import pydantic_core
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)
from pydantic_core import PydanticSerializationError

from contextstash_storage.errors import BadInputError, DamagedError

Native = dict[str, Any]
"""One message exactly as its provider writes it, key order included."""

Role = Literal["system", "user", "assistant", "tool"]
BlockType = Literal["text", "thinking", "tool_call", "tool_result", "image", "document", "opaque"]
Kind = Literal["message", "host", "tool_result", "tool_result_archived", "tool_summary", "summary"]
"""`host` is what a client put into the user's role itself: a skill, a note, an output that it gives back as words."""


class Part(StrEnum):
    """What a view's tokens are spent on."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    THINKING = "thinking"
    TOOL_CALLS = "tool_calls"
    TOOL_RESULTS = "tool_results"
    IMAGES = "images"
    ARCHIVED = "archived"
    SUMMARIES = "summaries"


class Record(BaseModel):
    """Base of all records: immutable, and strict about misspelt fields."""

    # A record is built when it is first used: building all of them takes as long as all else that a hook does.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


_SHORT = {
    "role": "r", "kind": "k", "blocks": "b", "usage": "u", "group": "g", "agent_visible": "v",
    "type": "t", "tokens": "n", "size": "s", "call_id": "i", "tool": "o", "argument": "a", "is_error": "e",
    "prompt_tokens": "p", "completion_tokens": "c", "reasoning_tokens": "h", "cached_tokens": "x",
    "cache_write_tokens": "w", "cache_write_1h_tokens": "l",
    "purpose": "f", "model": "m", "request_seq": "q", "created_at": "z",
}  # fmt: skip
"""The names of fields in what is stored of each message and model call: whole ones would take a tenth of the file."""


class ShortRecord(Record):
    """Base of the records of which a session has many. They are read with whole names too, as exports have them."""

    model_config = ConfigDict(
        alias_generator=lambda name: _SHORT.get(name, name), validate_by_name=True, validate_by_alias=True
    )


class Block(ShortRecord):
    """One piece of a message. Its text is not stored here but in the message's native JSON.

    `call_id` and `tool` are set on tool calls and tool results, `argument` (the call's main argument,
    at most 120 characters) on tool calls; `size` is the text's length in characters."""

    type: BlockType
    tokens: int = 0
    size: int = 0
    call_id: str | None = None
    tool: str | None = None
    argument: str | None = None
    is_error: bool = False


class Usage(ShortRecord):
    """What the provider reported for the model call that produced an assistant message, in tokens.

    `prompt_tokens` is the whole prompt, cached parts included; `reasoning_tokens` are those of the completion that were
    spent on reasoning, if the provider says so. `cache_write_1h_tokens` are those of the written ones that the
    provider's cache keeps for an hour, at a higher price."""

    prompt_tokens: int
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0


class Output(Record):
    """A tool output that can be archived and retrieved: one tool-result block of one message."""

    handle: str
    seq: int
    block: int
    tool: str
    argument: str = ""
    tokens: int
    characters: int
    lines: int
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    is_error: bool = False

    @classmethod
    def of(cls, tool: str, argument: str, text: str, **more: Any) -> Output:
        """The output with this text. Its handle hashes what it names: the same history always has the same handles."""
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        handle = handle_of("out", "\0".join((tool, argument, text)))
        named = {"handle": handle, "tool": tool, "argument": argument, "sha256": sha256, "seq": 0, "block": 0}
        return cls(**{**named, "characters": len(text), "lines": lines, **more})


class MessageFacts(ShortRecord):
    """What is derived from a message. `group` is the provider's id of the reply that it is a part of."""

    role: Role
    kind: Kind = "message"
    blocks: tuple[Block, ...] = ()
    usage: Usage | None = None
    group: str | None = None
    agent_visible: bool = True

    @cached_property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)


class NewMessage(MessageFacts):
    """A message about to be appended. `key` is the host's own unique id of it, if it has one; `outputs` carry no `seq`
    yet (it is 0); `texts` are what search finds of it, each after the number of its block."""

    body: Native
    model: str | None = None
    key: str | None = None
    outputs: tuple[Output, ...] = ()
    texts: tuple[tuple[int, str], ...] = ()
    created_at: datetime | None = None


class Message(MessageFacts):
    """A recorded message. `body` is None if only the derived part was asked for."""

    session_id: str
    seq: int
    key: str | None = None
    created_at: datetime
    body: Native | None = None


EditKind = Literal["archive", "truncate", "digest", "strip", "summary", "rewind", "restore"]


class EditRecord(Record):
    """What every edit has: an append-only change of the view, laid over the history. `edit_id` and `created_at` are set
    when the edit is stored."""

    kind: EditKind
    edit_id: int = 0
    created_at: datetime | None = None

    @model_serializer(mode="wrap")
    def _with_kind(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The kind is a default, but says which edit this is: it must be there also if defaults are left out."""
        return {"kind": self.kind, **fields(self)}


class BlockEdit(EditRecord):
    """Shows block `block` of message `seq`, the output `handle`, as `text`."""

    seq: int
    block: int
    handle: str
    text: str
    tokens: int


class ArchiveEdit(BlockEdit):
    """Shows a placeholder for a tool output."""

    kind: Literal["archive"] = "archive"


class TruncateEdit(BlockEdit):
    """Shows a part of a tool output."""

    kind: Literal["truncate"] = "truncate"


class DigestEdit(EditRecord):
    """Adds our message `text` after message `after_seq`, which describes the outputs named in `handles`."""

    kind: Literal["digest"] = "digest"
    after_seq: int
    handles: tuple[str, ...]
    text: str
    tokens: int

    @property
    def span(self) -> tuple[int, int]:
        """The position of the message before it."""
        return self.after_seq, self.after_seq


class SpanEdit(EditRecord):
    """Changes what is shown of messages `first_seq..last_seq`, both included."""

    first_seq: int
    last_seq: int

    @property
    def span(self) -> tuple[int, int]:
        return self.first_seq, self.last_seq

    @property
    def messages(self) -> int:
        """How many messages it covers."""
        return self.last_seq - self.first_seq + 1


class StripEdit(SpanEdit):
    """Shows no thinking blocks in its messages. `handles` names the outputs and summaries that made it necessary."""

    kind: Literal["strip"] = "strip"
    handles: tuple[str, ...] = ()


class SummaryEdit(SpanEdit):
    """Shows its messages as `text`; `summary` is the same without the words around it. `strategy` is who wrote it,
    `archived` names the outputs of later messages that the same compaction archived; `seq` is the position of the
    client's message that holds it, if the client wrote it."""

    kind: Literal["summary"] = "summary"
    seq: int | None = None
    summary_id: str
    strategy: str
    archived: tuple[str, ...] = ()
    text: str
    summary: str
    tokens: int


class RewindEdit(SpanEdit):
    """Shows nothing of its messages."""

    kind: Literal["rewind"] = "rewind"


class RestoreEdit(EditRecord):
    """Undoes the edits numbered `undoes`. `strategy` says so if a client did it; `seq` is then the position of the next
    message, if the conversation goes on elsewhere from there."""

    kind: Literal["restore"] = "restore"
    seq: int | None = None
    undoes: tuple[int, ...]
    strategy: str | None = None


Replacement = ArchiveEdit | TruncateEdit
"""An edit that shows something else for one block."""

Cover = SummaryEdit | RewindEdit
"""An edit that hides messages."""

Edit = Annotated[
    ArchiveEdit | TruncateEdit | DigestEdit | StripEdit | SummaryEdit | RewindEdit | RestoreEdit,
    Field(discriminator="kind"),
]

EDIT: TypeAdapter[Edit] = TypeAdapter(Edit)
"""Reads an edit of any kind."""

Level = Literal["ok", "prune", "compact", "critical", "overflow"]
"""How full a window is; see the settings for where each level begins."""


class Declared(Record):
    """The declared parts in force: the versions of system prompt and tool definitions, and their tokens by our count.
    `replaced_tokens` are those of the recorded system messages that the declared system prompt stands for."""

    system: int | None = None
    tools: int | None = None
    system_tokens: int = 0
    tools_tokens: int = 0
    replaced_tokens: int = 0

    @property
    def tokens(self) -> int:
        """By how much the declared parts change what is sent in addition to the view."""
        return self.system_tokens + self.tools_tokens - self.replaced_tokens


class LeftOutSpan(Record):
    """Messages that a request leaves out, from `first_seq` to `last_seq`, and how many there are."""

    first_seq: int
    last_seq: int
    messages: int
    tokens: int


class Request(Record):
    """A message list that was handed out: the view of `messages` messages as the first `edits` edits made it, with the
    declared parts in force, without `left_out`. `shortened` names the outputs that had to be archived or cut for it.
    `counted` are the tokens of its messages by our count, `tokens` is the estimate of the whole, `usage` what the
    provider reported for it. `appended` is the session's counter at that time."""

    number: int = 0
    messages: int
    edits: int
    appended: int
    declared: Declared = Declared()
    left_out: LeftOutSpan | None = None
    shortened: tuple[str, ...] = ()
    budget: int
    counted: int
    tokens: int
    usage: Usage | None = None
    created_at: datetime | None = None


class Counters(Record):
    """Running totals of a session, updated with every append and edit: an estimate never has to read the messages.

    `parts` are the view's tokens by part, in the counter's own units. `reported` is the last prompt total that the
    provider reported, plus that call's completion; `reported_view` what the request that it reports on and its
    reply were by count, `reported_declared` the tokens of its declared parts. `reported_group` is that
    reply's id. `summary_seq` is the last message that a summary covers, -1 for none. `view_results` are the tool
    results in the view that are not archived, `system_messages` the system messages recorded. `own` is by how much
    our edits change each part of the view, since the client's last own compaction: a client that sends its own
    history has not seen them; `reported_own` what that was in all at the last report. `appended` are the tokens of all
    messages ever added to the view, `requests` how many requests were handed out, `request` the newest of them if no
    usage was reported for it yet.
    `host_window` is the window in tokens that the client last said it uses, None if it does not say."""

    messages: int = 0
    view_messages: int = 0
    view_results: int = 0
    system_messages: int = 0
    parts: dict[Part, int] = Field(default_factory=dict)
    edits: int = 0
    summary_seq: int = -1
    reported: int | None = None
    reported_view: int = 0
    reported_declared: int = 0
    reported_seq: int = -1
    reported_group: str | None = None
    own: dict[Part, int] = Field(default_factory=dict)
    reported_own: int = 0
    appended: int = 0
    declared: Declared = Declared()
    requests: int = 0
    request: Request | None = None
    host_window: int | None = None

    @property
    def view_tokens(self) -> int:
        return sum(self.parts.values())


LOCAL_OWNER = "local"
"""The owner on a machine with one user; a server for a team has one for each user."""


class Session(Record):
    """One conversation of one agent. `format` is the form of its messages, by its name. `owner` and
    `last_message_at` are set by the store."""

    session_id: str
    owner: str = LOCAL_OWNER
    agent: str | None = None
    model: str | None = None
    format: str
    title: str | None = None
    source: str | None = None
    settings: Mapping[str, Any] = Field(default_factory=dict)
    parent_session_id: str | None = None
    created_at: datetime
    updated_at: datetime
    counters: Counters = Counters()
    last_message_at: datetime | None = None


def check_session_id(session_id: str) -> None:
    """Raises BadInputError if the id is not safe in a URI and on a command line."""
    if not (0 < len(session_id) <= 200 and all(c.isprintable() and c not in "/?#%\\ " for c in session_id)):
        raise BadInputError(
            "A session_id is 1 to 200 printable characters without spaces, slashes, '?', '#', '%' or backslashes."
        )


class Cursor(Record):
    """How far a transcript file has been read: `offset` bytes, and the reader's own `state`."""

    source: str
    offset: int = 0
    state: dict[str, Any] = Field(default_factory=dict)


class Appended(Record):
    """The result of an append. `messages` are those newly stored; `session` is its state afterwards. `first_seq` is the
    position of the batch's first message, None if the batch was empty or its messages have keys."""

    messages: tuple[Message, ...]
    duplicates: int
    session: Session
    first_seq: int | None = None


class SearchHit(Record):
    """One search result: a message, or a tool's output together with its call. `score` is higher for better; `text` is
    the part that matches best, of an output after its call (for the snippet)."""

    session_id: str
    seq: int
    role: Role
    handles: tuple[str, ...] = ()
    tool: str | None = None
    text: str
    score: float
    created_at: datetime


EventKind = Literal["prune", "compaction", "restore", "recovery", "handoff"]


class Event(Record):
    """One line of a session's log: what happened to its context, and what it did.

    `seq` is how many messages were recorded by then, `parts` what the view held afterwards by part, `strategy` who
    wrote the summary (`client` if the client compacted, `client_window` if contextstash did so in the client's own
    window), `cost` what that took in US dollars if it is known: the model call, or for a prune by the proxy what it is
    expected to take to write the provider's cache again."""

    event_id: int = 0
    kind: EventKind
    tokens_before: int
    tokens_after: int
    messages_before: int = 0
    messages_after: int = 0
    reason: str
    seq: int = 0
    parts: dict[str, int] = Field(default_factory=dict)
    strategy: str | None = None
    cost: float | None = None
    duration_ms: float = 0.0
    created_at: datetime | None = None


class Call(Usage):
    """One model call, the host's or a summarizer's. Message `request_seq` was the last that was sent. `cost` is in US
    dollars if the price is known."""

    call_id: int = 0
    purpose: Literal["agent", "summary", "digest"]
    model: str | None = None
    request_seq: int
    cost: float | None = None
    duration_ms: float | None = None
    error: str | None = None
    created_at: datetime | None = None


DeclaredPart = Literal["system", "head", "tools"]
"""`system` is a system prompt outside the message list, `head` the system messages at the start of it, `tools` the tool
definitions."""


class DeclaredVersion(Record):
    """One version of a part that is sent beside the recorded messages, as its provider writes it; first declared when
    `seq` messages were recorded."""

    version: int = 0
    part: DeclaredPart
    content: Any = None
    tokens: int
    seq: int = 0
    created_at: datetime | None = None


KEPT_BEHIND = "behind"
"""The key of the state that is kept while a session grows, so far behind its end that a compaction can use it."""


class KeptState(Record):
    """What a session came to at its last compaction, as its reader wrote it, and the `rewinds` then in force."""

    text: str
    rewinds: tuple[int, ...] = ()


Copied = NewMessage | Edit | Event | Call | DeclaredVersion | Request
"""What a whole session is made of."""


class ProxiedTotals(Record):
    """What the requests of a session took, and would have taken; all of it only grows.

    `sent` is what was sent and `direct` what would have been sent, in tokens. `priced` counts the requests whose price
    is known: `dollars_paid` is what they cost, replies included, `dollars_direct` what would have been billed without
    contextstash. `faults` are requests that went out unedited because of an error, `unread` those that could not be
    read, so that they are neither recorded nor in the bill."""

    requests: int = 0
    edited: int = 0
    sent: int = 0
    direct: int = 0
    priced: int = 0
    dollars_paid: float = 0.0
    dollars_direct: float = 0.0
    faults: int = 0
    unread: int = 0


class ProxiedSession(ProxiedTotals):
    """What the proxy knows of a session, across restarts, and totals over its requests.

    `project` is the folder in which its client was started, if that is known. `client_session` is the client's own id
    of the conversation, `sender` a hash of the credentials of its requests; `surroundings` is a hash of its
    system prompt. `mark` is a hash of the `length` messages of its last request, empty if the model had not spoken yet.
    `last_at` is when the last reply ended, in seconds since 1970, and `cache_seconds` how long the provider keeps the
    cache of that request, which unedited would have taken `direct_prompt` tokens; `shown` is how many of the session's
    edits were laid over it. `left_alone` is why nothing is edited any more. `days` are the totals at the start of each
    day (UTC) with requests, the newest last."""

    project: str | None = None
    client_session: str | None = None
    sender: str | None = None
    surroundings: str = ""
    mark: str = ""
    length: int = 0
    model: str | None = None
    last_at: float = 0.0
    cache_seconds: int = 300
    direct_prompt: int = 0
    shown: int = 0
    left_alone: str | None = None
    days: dict[str, ProxiedTotals] = Field(default_factory=dict)


class StoredBatch(Record):
    """A batch that was stored under an id: `count` messages from `first_seq` on; the fingerprint is hexadecimal."""

    first_seq: int
    count: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class KnownPart:
    """What a reader knows of a session: its messages before position `first`, and that one, which is read again to see
    that the session is still the same; None for no message. `edits` are the numbers of those that are not read. If more
    than `most` messages are new, only the first is read."""

    first: int | None = None
    edits: int = 0
    most: int = 100


@dataclass(frozen=True, slots=True)
class SessionNews:
    """A session, its newest request, and beyond the known part its edits, and its messages with their outputs."""

    session: Session
    known: KnownPart
    request: Request | None = None
    edits: tuple[Edit, ...] = ()
    messages: tuple[Message, ...] = ()
    outputs: tuple[Output, ...] = ()


Count = Callable[[Counters, NewMessage, int], Counters]
"""`count(counters, message, seq)`: the session's counters with one more message. Pure."""

Edited = tuple[Sequence[Edit], Counters]
"""Edits to append, and the session's counters after them."""

EditsAfter = Callable[[Counters, tuple[Message, ...]], Edited]
"""`edits(counters, messages)`: edits to append together with messages, given the counters after them and the messages
newly stored; not called if none are. Pure."""

EditsBefore = Callable[[Counters], Edited]
"""`before(counters)`: edits to append before messages, given the counters as they are. Raises EditConflictError if they
are not those that the edits were planned for. Pure."""

KnownBy = int | str | EditsBefore | None
"""How what is stored of a batch is known: the position of its first message, its own id, the edits before all of it, or
the key of each message that has one."""


# Handles: the short names of tool outputs (`out_…`) and of summaries (`sum_…`), which hash what they name

HASH_BYTES = 10
"""80 bits, 16 base32 characters: two texts with one handle take about 10^12 hashes to find, a text for a given handle
10^24. (With 40 bits, two were found in 2.9 s.)"""

HANDLE = re.compile(r"(?:out|sum)_[a-z2-7]{16}(?:-\d+)?")
"""A handle; outputs of one session with the same name are numbered."""


def handle_of(kind: str, content: str) -> str:
    """The handle of a text, `kind` being `out` or `sum`; the same text always has the same."""
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
    return f"{kind}_{b32encode(digest[:HASH_BYTES]).decode().lower()}"


if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


_JSON = json.JSONDecoder()
"""Decodes what this program wrote: without looking for the encoding and for white space it takes 60 % of the time."""


def to_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8; lone surrogates, which UTF-8 can't hold, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


_TAB = b"\t"
"""Between the body and the texts of a message: no JSON of this program has one, nor a line break."""


def stored_content(body: bytes, texts: Sequence[tuple[int, str]]) -> bytes:
    """What is stored of a message's content: the JSON of its body and of what search finds in it, each text after the
    number of its block. Most texts stand in the body as JSON, one behind another: of them the place is stored, since to
    decompress them twice takes most of the time of reading."""
    if not texts:
        return body
    stored: list[tuple[int, str | int]] = []
    behind, missing = 0, 0
    for block, text in texts:
        found = to_bytes(text)
        place = body.find(found, behind) if missing < MAX_MISSING else -1
        stored.append((block, text if place < 0 else place))
        behind, missing = (behind, missing + 1) if place < 0 else (place + len(found), missing)
    return body + _TAB + to_bytes(stored)


MAX_MISSING = 100
"""After so many texts that are not in the body no further one is searched: each takes a look at all of the body."""


def body_of(stored: bytes) -> Native:
    """The body in `stored_content`."""
    return _JSON.raw_decode(stored.partition(_TAB)[0].decode())[0]  # type: ignore[no-any-return]


def texts_of(stored: bytes) -> list[tuple[int, str]]:
    """The texts in `stored_content`."""
    body, _, texts = stored.partition(_TAB)
    found = json.loads(texts) if texts else []
    places = [each for _, each in found if isinstance(each, int)]
    within = dict(pairwise([*places, None]))  # each ends before the next one
    return [
        (block, each if isinstance(each, str) else _JSON.raw_decode(body[each : within[each]].decode())[0])
        for block, each in found
    ]


_LEVEL, _CHECKSUM = zstd.CompressionParameter.compression_level, zstd.CompressionParameter.checksum_flag

_COMPRESSOR = zstd.ZstdCompressor(options={_LEVEL: 8, _CHECKSUM: 1})
"""A full segment takes 0.7 ms; with level 5 it takes 0.4 and is 4 % larger, with 12 it takes 2.9 and is 1 % smaller.
Used for each frame again, which takes a sixth of the time of making one for each; it locks itself."""

_FRAME = b"\x28\xb5\x2f\xfd"
"""How a frame begins; no JSON does."""


def compressed(data: bytes) -> bytes:
    """The data as one frame with a checksum."""
    return _COMPRESSOR.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def plain(stored: bytes) -> bytes:
    """The JSON of `compressed`, or JSON that is not compressed."""
    return zstd.decompress(stored) if stored.startswith(_FRAME) else stored


def damaged(what: str) -> DamagedError:
    """The error for a stored value that is not what was stored."""
    return DamagedError(
        f"The database is damaged: {what} cannot be read. Everything else can; contextstash doctor says what is"
        " damaged. Restore a backup, or delete the session."
    )


FACTS = frozenset(MessageFacts.model_fields)


def parsed(text: str | bytes) -> Any:
    """JSON, read by pydantic's parser, which takes less than half of the time of Python's."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:  # escaped lone surrogates
        return json.loads(text)


StoredRecord = TypeVar("StoredRecord", bound=Record)


def to_json(record: Record, only: Set[str] | None = None) -> str:
    """A record's fields, or `only` these, as JSON, without absent and default values."""
    fields = None if only is None else set(only)
    try:
        return record.model_dump_json(exclude_defaults=True, by_alias=True, include=fields)
    except PydanticSerializationError:  # lone surrogates, which UTF-8 can't hold: escape them
        return to_bytes(record.model_dump(mode="json", exclude_defaults=True, by_alias=True, include=fields)).decode()


def from_json(kind: type[StoredRecord], text: str | bytes) -> StoredRecord:
    """The record of `to_json`, of EditRecord the edit of any kind. Raises DamagedError if the text is that of none."""
    is_edit = kind is EditRecord
    try:
        return EDIT.validate_json(text) if is_edit else kind.model_validate_json(text)  # type: ignore[return-value]
    except ValidationError:  # escaped lone surrogates
        with suppress(ValueError):
            value = json.loads(text)
            return EDIT.validate_python(value) if is_edit else kind.model_validate(value)  # type: ignore[return-value]
        raise damaged(f"a record of the kind {kind.__name__}") from None


def checksum(*values: object) -> int:
    """Of a row's values: a damaged row is not read as another one."""
    parts = [each if isinstance(each, bytes) else str(each).encode("utf-8", "surrogatepass") for each in values]
    return crc32(b" ".join(parts))
