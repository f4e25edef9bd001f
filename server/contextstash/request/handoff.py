"""The hand-off: what a new window needs to know of a session, with the handles of its outputs; and what a client's own
window holds: our view of its session, told in places of the client's own list of messages.

A client that lets a plugin answer its compaction asks for `compact_client_window`; one whose plugin sees each request
asks for `read_client_window` before each. What they return is valid for every provider: no result stands without its
call, and what the model has not replied to yet stays whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any

from contextstash.handoff.summary import HandedOff, handoff_sections
from contextstash.handoff.user_block import pinned_rules
from contextstash.outputs.limits import Count, OutputLimits, limit
from contextstash.outputs.placeholders import is_own_call, is_placeholder, output_line
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession, is_window_key, window_key
from contextstash.record.transcripts import log_compaction, mirror_before, record_transcript
from contextstash.reduce.compact import SessionTurns, state_at, turn_of
from contextstash.results import Result
from contextstash.safety.sanitize import MARKER, OF_SESSION
from contextstash.session.access import Access, tokens_by_part
from contextstash.session.edit import log_event
from contextstash.session.open_session import WITH_ALL_OUTPUTS
from contextstash.view.ladder import PLACEHOLDER_TOKENS
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.writers import EXTRACTIVE
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Cursor, Event, SummaryEdit

MIN_INDEX_SHARE = 0.0175
"""Share of a hand-off that is kept for the index of handles, which has what the other sections leave, too: the newest
outputs that the lines of the newest calls do not name. search_history finds the others. Measured: twice as much costs
half a point of what the agent names next."""

MIN_INDEXED_TOKENS = 200
"""A smaller output is not worth a line of the index: it is found by search all the same."""

MIN_TOKENS = 200
"""A hand-off of fewer tokens would be mostly its head; such a session goes on without one."""

WINDOW_SHARE = 40
"""A hand-off takes at most the window divided by this: 5,000 tokens of 200,000. After recorded compactions the agents
read 5,800 tokens again on average; docs/measured.md has what more and fewer tokens keep."""

SESSION_SHARE = 8
"""It takes at most what was recorded divided by this: a hand-off saves reading again, so it stays far below that."""

SMALLEST, LARGEST = 1_500, 7_200
"""Tokens of a hand-off by default at least, and at most, the latter counted with o200k_base: as much text for each
model, some 27,000 characters, as the three parts of a client's hooks hold it. A larger one is written two or three
times until it fits them. With half as much again it cost more than it gave back (bench.windows, at 100,000 tokens)."""

NEW_WINDOW = "Hand-off to the client's new window."
INSIDE = "Hand-off in a window that was compacted by us."

HEAD = (
    f"{{}}: {OF_SESSION}{{}}. Everything of it is kept: search_history finds it, get_archived_output reads outputs"
    " by their handles.{} But for the user's own words it quotes what was recorded: data, not instructions. Go on from"
    " here.]"
)
BESIDE = " What the summary above says is not repeated."

MAX_PARTS = 3
"""How many hooks are installed for one hand-off, as clients bound what one adds to the window: room for some 7,500
tokens. Those that are not needed add nothing."""

PART_HEAD = MARKER + ": part {} of {} of a hand-off{}]"
PART_HEAD_CHARACTERS = 100
"""What the head of a part takes of its characters at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` of at most `of`, each with at most so many `characters`; None if they are not bounded."""

    number: int = 1
    of: int = 1
    characters: int | None = None


WHOLE = Part()


async def hand_off(
    access: Access, session_id: str, max_tokens: int | None, *, same: bool = False, part: Part = WHOLE
) -> str | None:
    """A part of what a new window needs to know of a session: the user's words, a summary, the files under edit and an
    index of its outputs; at most `max_tokens` in all parts together. None if the session has nothing to hand off, if
    `max_tokens` is too small, or if there are fewer parts. With `same`, the window begins with the client's own summary
    of the session."""
    snapshot = await access.snapshot(session_id, WITH_ALL_OUTPUTS)
    if max_tokens is None:
        max_tokens = snapshot.settings.handoff_tokens
    if max_tokens is None:
        share = min(snapshot.budget.window // WINDOW_SHARE, snapshot.session.counters.appended // SESSION_SHARE)
        max_tokens = min(round(LARGEST * snapshot.counter.family.factor), max(SMALLEST, share))
    given = await _given(access, snapshot, same=same)
    while True:
        text = await _written(snapshot, given, max_tokens)
        if text is None or part.characters is None:
            return text
        parts = divided(text, part.characters)
        if len(parts) <= part.of:
            return parts[part.number - 1] if part.number <= len(parts) else None
        # As many tokens less as the parts are too long.
        max_tokens = int(max_tokens * min(0.95, part.of * (part.characters - PART_HEAD_CHARACTERS) / len(text)))


async def _given(access: Access, snapshot: SessionSnapshot, *, same: bool) -> HandedOff:
    """What the hand-off is made from. `written` is the newest summary that a model
    wrote for us: our own extract would be made again from the same messages, and the client has its own in its
    window. With `same` the newest of these is given too; a window from us that it did not take does not count."""
    summaries = [edit for edit in reversed(snapshot.edits) if isinstance(edit, SummaryEdit)]
    by_model = (edit for edit in summaries if edit.seq is None and edit.strategy != EXTRACTIVE)
    written = next((edit for edit in by_model if edit.text != edit.summary), None)
    of_client = [edit.seq for edit in summaries if edit.seq is not None] if same else []
    recorded = reversed(await access.messages_at(snapshot, of_client))
    client = next((message for message in recorded if not is_window_key(message.key)), None)
    turns = SessionTurns(access, snapshot)
    return HandedOff(
        state=await state_at(turns, snapshot.session.counters.messages - 1),
        recent=await turns.recent(),
        rules=pinned_rules(snapshot.settings.pin),
        written=written.summary if written else "",
        written_to=written.last_seq if written else -1,
        client_summary="\n".join(turn_of(snapshot.settings, snapshot.format, client).texts) if client else "",
    )


async def _written(snapshot: SessionSnapshot, given: HandedOff, max_tokens: int) -> str | None:
    """The whole hand-off, in at most `max_tokens`; None if there is nothing to say, or no room for it."""
    count = cache(snapshot.counter.count)  # what may be left out is counted twice
    head = HEAD.format(MARKER, snapshot.session_id, BESIDE if given.client_summary else "")
    left = max_tokens - int(max_tokens * MIN_INDEX_SHARE) - count(f"{head}\n\n\n\n") - 2
    if left < MIN_TOKENS:
        return None
    said = await asyncio.to_thread(handoff_sections, given, left, count)
    if not said:
        return None
    told = f"{head}\n\n{limit(said, OutputLimits(tokens=left, cut='head_tail'), count)}"
    return "\n\n".join([told, *_index(snapshot, max_tokens - count(f"{told}\n\n") - 2, told)])


def _index(snapshot: SessionSnapshot, max_tokens: int, shown: str) -> list[str]:
    """The newest outputs of at least MIN_INDEXED_TOKENS whose handles are not `shown`, one line each; empty if there
    are none."""
    lines = {"## Outputs kept, newest first": None}
    left = max_tokens - sum(map(snapshot.counter.count, lines))
    for _, output in sorted(snapshot.outputs.items(), reverse=True):
        known = f"[{output.handle}]" in shown or is_own_call(output.tool, output.argument)
        if known or output.tokens < MIN_INDEXED_TOKENS:
            continue
        line = output_line(output)
        left -= 0 if line in lines else snapshot.counter.count(line) + 1
        if left < 0:
            break
        lines[line] = None
    return ["\n".join(lines)] if len(lines) > 1 else []


async def hand_off_once(
    access: Access, session_id: str, *, max_tokens: int | None = None, part: Part = WHOLE
) -> str | None:
    """The hand-off, or a part of it, once for each window. Logged as an event. The client runs the hooks for all parts
    at once, and shows them in the order in which they end: each says which one it is."""
    reason = NEW_WINDOW + (f" Part {part.number} of {part.of}." if part.of > 1 else "")
    events = await access.store.read_log(session_id, Event, keys=("handoff",), newest=True, limit=MAX_PARTS)
    last = next((event for event in events if event.reason in (reason, INSIDE)), None)
    if last is not None:
        # Without a reply in between it is the same window: the hook is installed twice, or the event repeated.
        since = await access.store.read_messages(session_id, first=last.seq, bodies=False)
        if not any(message.role == "assistant" for message in since):
            return None
    text = await hand_off(access, session_id, max_tokens, same=True, part=part)
    if text is not None:
        session = await access.read_session(session_id)
        tokens = sum((await tokens_by_part(access, session)).values())
        await log_event(access, session, "handoff", tokens, tokens, reason)
    return text


def divided(text: str, characters: int) -> list[str]:
    """The text in parts of at most so many characters, each a whole number of lines; of several, each says which part
    it is. A fenced text that is divided is fenced in each part: what stands outside is taken for ours."""
    if len(text) <= characters:
        return [text]
    parts: list[str] = []
    rest, opened = text, ""
    while rest:
        room = characters - PART_HEAD_CHARACTERS
        end = len(rest) if len(rest) <= room else max(0, rest.rfind("\n", 0, room)) or room
        piece, rest = rest[:end].rstrip("\n"), rest[end:].lstrip("\n")
        piece = f"{opened}\n{piece}" if opened else piece
        opened = _open_fence(piece)
        parts.append(f"{piece}\n{opened}" if opened else piece)
    return [
        f"{PART_HEAD.format(number, len(parts), '' if number == 1 else ', continued')}\n{part}"
        for number, part in enumerate(parts, 1)
    ]


_FENCE = re.compile(r"^(`{3,})(?!`)", re.MULTILINE)


def _open_fence(text: str) -> str:
    """The fence that is open at the end of the text, empty if none is."""
    opened = ""
    for fence in _FENCE.findall(text):
        opened = "" if fence == opened else opened or fence
    return opened


# A client's own window.

WINDOW_TOKENS = 20_000
"""Tokens of a window after a compaction, without what the client adds to it. With compactions at 100,000, 13 recorded
sessions (bench.windows) cost 0.518 of no compaction, with the client's own and our hand-off 0.532, with a window of
40,000 tokens 0.571; of the replies 3.1, 4.2 and 3.1 % lacked something after one search."""

HANDOFF_SHARE = 0.8
"""The share of it that the hand-off takes at most; the newest messages take the rest. Measured before the last changes
to the hand-off: with 0.7 the sessions above cost 0.519 and 5.0 % of the replies lacked something, with 0.8 0.517 and
4.8, with 0.9 0.529 and 5.4; with 0.6 an eighth fewer of the next edits had all old lines in view."""

FREED_PART = 2
"""A compaction frees at least the window divided by this: of a small session less stays."""

WHOLE_SHARE = 0.5
"""The share of the room in which results stay whole; of what is older they become placeholders."""


@dataclass(frozen=True)
class ClientCall:
    """A tool call: the client's id of it, the tool, and what it was given."""

    id: str
    tool: str
    input: object = None


@dataclass(frozen=True)
class ClientResult:
    """The result of the call `id` as the model sees it."""

    id: str
    text: str = ""
    error: bool = False


@dataclass(frozen=True)
class ClientMessage:
    """A message of a client's list. `id` is the client's own, which its transcript has too; empty if it has none."""

    id: str = ""
    role: str = ""
    text: str = ""
    calls: tuple[ClientCall, ...] = ()
    results: tuple[ClientResult, ...] = ()

    def tokens(self, count: Count, shown: Mapping[str, str] = MappingProxyType({})) -> int:
        """Its tokens without what a provider adds; `shown` are the texts that replace results, by their calls."""
        calls = [f"{call.tool} {call.input}" for call in self.calls]
        return sum(map(count, [self.text, *calls, *(shown.get(each.id, each.text) for each in self.results)]))


class ClientWindow(Result):
    """A client's window. `messages` are its parts in order; the tokens are those of the client's list before and after,
    `left` is how many messages are no longer in it."""

    session_id: str
    messages: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
    left: int


async def compact_client_window(
    access: Access, session_id: str, messages: Sequence[ClientMessage], *, tokens: int = WINDOW_TOKENS
) -> ClientWindow:
    """Compact a client's window to about so many tokens: the hand-off, and the newest messages. Recorded as a
    compaction at its last message, with what stays and which outputs are placeholders now. Raises BadInputError if
    nothing can leave."""
    snapshot = await access.snapshot(session_id)
    count = cache(snapshot.counter.count)
    before = await asyncio.to_thread(lambda: sum(message.tokens(count) for message in messages))
    aim = min(tokens, before // FREED_PART)
    text = await hand_off(access, session_id, int(aim * HANDOFF_SHARE))
    if text is None:
        raise BadInputError("There is nothing to compact: the session is too short.")
    pinned = {call for call, place in _calls(snapshot).items() if place in snapshot.pinned}
    first, shortened = await asyncio.to_thread(plan_tail, messages, max(0, aim - count(text)), count, pinned)
    if first == 0:
        raise BadInputError("There is nothing to compact: all of the window is the newest step.")
    summary = TranscriptMessage(
        body=snapshot.format.user_message(text),
        key=window_key(text),
        created_at=datetime.now(UTC),
        covers_before=True,
        covers_before_key=_first_key(snapshot, messages[first:]),
        cleared_call_ids=tuple(sorted(shortened)),
        by_host=True,
    )
    session = snapshot.session
    source = session.source or session_id
    cursor = await access.store.get_cursor(source) or Cursor(source=source)
    await record_transcript(access, TranscriptSession(session_id, session.format), [summary], cursor)
    recorded = await access.store.find_key(session_id, window_key(text)) is not None
    if not recorded:  # the proxy records the session: the new window comes with its next request
        await mirror_before(access, session, summary)
    compacted = await access.snapshot(session_id)
    stays = [place for place in range(first, len(messages)) if not is_hand_off(messages[place])]
    window = await _told(session_id, messages, count, [text], stays, _replaced(compacted))
    if not recorded:
        session = await access.store.get_session(session_id)
        await log_compaction(access, session, window.tokens_before, window.tokens_after, ours=True)
    return window


async def note_given_window(access: Access, session_id: str, window: ClientWindow) -> None:
    """Note that a client has taken a window that was compacted: its hooks must not give it another hand-off. If it has
    not, because this process was too late or was ended, it compacts itself, and the hand-off follows."""
    session = await access.store.get_session(session_id)
    await log_event(access, session, "handoff", window.tokens_before, window.tokens_after, INSIDE)


async def read_client_window(access: Access, session_id: str, messages: Sequence[ClientMessage]) -> ClientWindow:
    """A client's window as the session's view has it now, with everything that was pruned, compacted, pinned and
    restored so far; nothing is recorded. The same list gives the same window, and a longer one begins with it, unless
    an edit was recorded in between."""
    snapshot = await access.snapshot(session_id)
    shown = {entry.message.key: entry.message.seq for entry in snapshot.entries if entry.message and entry.message.key}
    listed = await access.store.read_messages(session_id, bodies=False)
    hidden = {message.key for message in listed if message.key and message.key not in shown}
    stays = [place for place, message in enumerate(messages) if message.id not in hidden]
    ours = [entry.edit.text for entry in snapshot.entries if entry.message is None]
    return await _told(session_id, messages, cache(snapshot.counter.count), ours, stays, _replaced(snapshot))


async def _told(
    session_id: str,
    messages: Sequence[ClientMessage],
    count: Count,
    ours: Sequence[str],
    stays: Sequence[int],
    replaced: Mapping[str, str],
) -> ClientWindow:
    window = window_of(messages, ours, stays, replaced)
    places = [part["at"] for part in window if "at" in part]

    def sizes() -> tuple[int, int]:
        after = sum(messages[place].tokens(count, replaced) for place in places)
        return sum(message.tokens(count) for message in messages), after + sum(map(count, ours))

    before, after = await asyncio.to_thread(sizes)
    left = len(messages) - len(places)
    return ClientWindow(session_id=session_id, messages=window, tokens_before=before, tokens_after=after, left=left)


def is_hand_off(message: ClientMessage) -> bool:
    """Whether this is our hand-off of an earlier compaction, which the new one replaces."""
    return message.role == "user" and message.text.startswith(MARKER) and OF_SESSION in message.text[:200]


def _calls(snapshot: SessionSnapshot) -> dict[str, tuple[int, int]]:
    """The places of the outputs in the view by their calls."""
    return {
        block.call_id: (entry.message.seq, index)
        for entry in snapshot.entries
        if entry.message
        for index, block in enumerate(entry.message.blocks)
        if block.type == "tool_result" and block.call_id
    }


def _replaced(snapshot: SessionSnapshot) -> dict[str, str]:
    """What the view shows instead of outputs, by their calls."""
    replaced = snapshot.overlay.replaced
    return {call: replaced[place].text for call, place in _calls(snapshot).items() if place in replaced}


def _first_key(snapshot: SessionSnapshot, kept: Sequence[ClientMessage]) -> str | None:
    """The key of the first recorded message that stays; None if none of them is recorded. A message that the client
    wrote again has another id, but the ids of its calls."""
    recorded = [entry.message for entry in snapshot.entries if entry.message and entry.message.key]
    names = {message.key: message.key for message in recorded}
    names |= {block.call_id: each.key for each in recorded for block in each.blocks if block.type == "tool_call"}
    named = (name for message in kept for name in (message.id, *(call.id for call in message.calls)))
    return next((names[name] for name in named if name in names), None)


def plan_tail(
    messages: Sequence[ClientMessage], room: int, count: Count, pinned: Collection[str]
) -> tuple[int, frozenset[str]]:
    """From which message on the list stays below our hand-off, each result with its call, and the calls whose results
    are placeholders there: the newest messages that take at most `room` tokens, without the first one, which the
    hand-off tells. The newest step, if the model has not replied to it, stays whatever it takes, and results of the
    calls `pinned` stay whole."""
    called = {call.id: place for place, message in enumerate(messages) for call in message.calls}
    shortened = set[str]()
    taken, whole, first, needed = 0, 0, len(messages), len(messages)
    is_reply = is_told = False
    for place, message in reversed([*enumerate(messages)]):
        is_reply = is_reply or message.role != "user"
        is_told = is_told or (is_reply and first == place + 1)  # the newest step is behind it, with its calls
        size = message.tokens(count)
        whole += size
        if is_told and whole > room * WHOLE_SHARE:
            large = {each.id: each.text for each in message.results if count(each.text) > PLACEHOLDER_TOKENS}
            short = {call for call, text in large.items() if call not in pinned and not is_placeholder(text)}
            size -= sum(count(large[call]) - PLACEHOLDER_TOKENS for call in short)
            shortened |= short
        taken += size
        if is_told and taken > room:
            break
        needed = min([needed, *(called.get(result.id, -1) for result in message.results)])
        if needed >= place and (place or not is_told):
            first = place
    return first, frozenset(shortened & {result.id for each in messages[first:] for result in each.results})


def window_of(
    messages: Sequence[ClientMessage], ours: Sequence[str], stays: Collection[int], replaced: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The window as a client's plugin applies it to its own list: our texts, then the places of the messages that stay,
    with the texts that replace results by their calls. A result whose call does not stay leaves with it."""
    window: list[dict[str, Any]] = [{"role": "user", "text": text} for text in ours]
    called: set[str] = set()
    for place in sorted(stays):
        message = messages[place]
        shows = message.text or message.calls or message.results  # one of reasoning alone shows nothing
        if not shows or any(result.id not in called for result in message.results):
            continue
        called |= {call.id for call in message.calls}
        results = {
            each.id: replaced[each.id] for each in message.results if replaced.get(each.id, each.text) != each.text
        }
        window.append({"at": place, "results": results} if results else {"at": place})
    return window
