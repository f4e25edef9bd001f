"""A session at one moment: its edits, its view, its outputs, which of these are in use, and the numbers in force; the
edits made of it: a placeholder or a part of an output, a summary, a message that is added; and its running counters, to
which each message is added once, and from which alone the estimate is computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from contextstash.messages.base import Format
from contextstash.outputs.limits import OutputLimits, limit
from contextstash.outputs.placeholders import filled_placeholder, is_own_retrieval, placeholder
from contextstash.safety.sanitize import MARKER, counted, one_line, unforged
from contextstash.view.view import Entry, Overlay, part_named, parts_of, results_of, rewinds_in_force, total_tokens
from contextstash.window.settings import DESCRIBED, ContextSettings
from contextstash.window.thresholds import WindowBudget
from contextstash.window.token_counters import Counter
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import (
    Counters,
    DigestEdit,
    Edit,
    Event,
    EventKind,
    Message,
    NewMessage,
    Output,
    Part,
    Session,
    SummaryEdit,
    TruncateEdit,
    Usage,
    handle_of,
)

if TYPE_CHECKING:
    from contextstash.events.turns import FileUse

Place = tuple[int, int]
"""The place of an output: the position of its message, and the index of its block."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """Messages of the view beyond the reach, `first_seq..last_seq`, by default none: how many they are, how many tool
    results they show, and their tokens by part."""

    first_seq: int = 2**63
    last_seq: int = -1
    messages: int = 0
    results: int = 0
    parts: Mapping[Part, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class SessionSnapshot:
    """The session at one moment, from which every use case that changes a view starts. `proxied` says of a followed
    client that our proxy makes the edits in what it sends. `entries` are those within the reach of a request, if that
    was enough to read; `beyond` are then the older ones, after the system messages at the head."""

    session: Session
    settings: ContextSettings
    find_budget: Callable[[], WindowBudget]
    counter: Counter
    format: Format
    edits: tuple[Edit, ...]
    overlay: Overlay
    entries: tuple[Entry, ...]
    outputs: Mapping[Place, Output]
    proxied: bool = False
    beyond: Beyond = Beyond()

    @cached_property
    def budget(self) -> WindowBudget:
        """The window and the numbers that follow from it. Found when it is first asked for: the table of models and
        their windows takes a twentieth of a client's compaction to load."""
        return self.find_budget()

    @property
    def session_id(self) -> str:
        return self.session.session_id

    @cached_property
    def view_tokens(self) -> int:
        """Tokens of the whole view by our count."""
        return total_tokens(self.entries) + self.beyond.tokens

    @cached_property
    def estimate(self) -> tuple[int, str]:
        """The tokens of our view as a request with it would take them, and how they were determined."""
        return estimate(self.session.counters, self.settings, self.counter.name)

    @cached_property
    def messages_with_bodies(self) -> Mapping[int, Message]:
        """The messages of the view that were read with their bodies, by position."""
        messages = [entry.message for entry in self.entries if entry.message is not None]
        return {message.seq: message for message in messages if message.body is not None}

    def changed_since(self, output: Output) -> int | None:
        """The message of the newest change of the file that an output shows, if that came after it; None if it shows no
        file, or if no call changed it by its name."""
        newest = max((self._changes.get(path, -1) for path in paths_read(output)), default=-1)
        return newest if newest > output.seq else None

    @cached_property
    def _changes(self) -> Mapping[str, int]:
        """The message of the newest change of each file, by the paths that calls name it with."""
        newest: dict[str, int] = {}
        for output in self.outputs.values():
            for path in () if output.is_error else paths_changed(output):
                newest[path] = max(output.seq, newest.get(path, -1))
        return newest

    @cached_property
    def pinned(self) -> Mapping[Place, Output]:
        """The pinned outputs of the session; without those of a branch that the conversation has left. They are neither
        archived nor cut as long as anything else can be; if a summary replaces their message, they follow it."""
        pins = self.settings.pin
        found = outputs_of_pins(pins, self.current_outputs) if pins else []
        return {(output.seq, output.block): output for output in found}

    @cached_property
    def unpinned(self) -> Mapping[Place, Output]:
        """The outputs that a reduction may replace."""
        return {place: output for place, output in self.outputs.items() if place not in self.pinned}

    def totals_of(self, entries: Sequence[Entry]) -> Counters:
        """What a view with these entries adds up to, with what is beyond the reach, unless one of its summaries covers
        that."""
        beyond, summaries = self.beyond, [entry.edit.span for entry in entries if entry.summary]
        if any(first <= beyond.first_seq and beyond.last_seq <= last for first, last in summaries):
            beyond = Beyond()
        return Counters(
            parts=sums(parts_of(entries), beyond.parts),
            view_messages=len(entries) + beyond.messages,
            view_results=results_of(entries) + beyond.results,
            summary_seq=max((last for _, last in summaries), default=-1),
        )

    def counters_after(self, entries: Sequence[Entry], *, own: bool = True) -> Callable[[Counters], Counters]:
        """What edits make of the counters after which the view has these entries: what the entries add up to, and what
        was recorded since the snapshot. `own` edits are ours, others follow the client's."""
        planned, after = self.session.counters, self.totals_of(entries)
        return lambda counters: edited(counters, planned, after, own=own)

    @property
    def current_outputs(self) -> list[Output]:
        """The outputs in order, without those of branches that the conversation has left."""
        left = [edit.span for edit in rewinds_in_force(self.edits)]
        return [
            output
            for _, output in sorted(self.outputs.items())
            if not any(first <= output.seq <= last for first, last in left)
        ]

    @property
    def client_tokens(self) -> int | None:
        """What the followed client sends, None if it sends our view."""
        if self.session.source is None or self.proxied:
            return None
        return estimate(self.session.counters, self.settings, self.counter.name, followed=True)[0]


def event_of(
    snapshot: SessionSnapshot, entries: Sequence[Entry], kind: EventKind, reason: str, *, seconds: float = 0.0
) -> Event:
    """An event for the session's log: what was done to the view. `entries` are those of the view afterwards; what is
    beyond the snapshot's reach is unchanged, unless a summary covers it."""
    after = snapshot.totals_of(entries)
    return Event(
        kind=kind,
        tokens_before=snapshot.view_tokens,
        tokens_after=after.view_tokens,
        messages_before=len(snapshot.entries) + snapshot.beyond.messages,
        messages_after=after.view_messages,
        reason=reason,
        seq=snapshot.session.counters.messages,
        parts={str(part): tokens for part, tokens in sorted(after.parts.items())},
        duration_ms=round(1000 * seconds, 2),
    )


PINNED_SHARE = 4
"""Pinned outputs behind summaries take at most the usable window divided by this; beyond, each is cut. With
the summaries they leave more than half of the window to the work."""


def placeholder_of(snapshot: SessionSnapshot, output: Output, digest: str) -> str:
    """The placeholder of an output, in the words that the settings choose."""
    if snapshot.settings.placeholder == DESCRIBED:
        return placeholder(output, digest, snapshot.changed_since(output))
    return filled_placeholder(snapshot.settings.placeholder, output)


def truncate_edit(snapshot: SessionSnapshot, output: Output, text: str, limits: OutputLimits) -> TruncateEdit:
    """The edit that cuts an output to limits."""
    shown = limit(text, limits, snapshot.counter.count_result, output.handle)
    return TruncateEdit(**replacing(snapshot, output, shown, snapshot.counter.count_result(shown)))


def replacing(snapshot: SessionSnapshot, output: Output, shown: str, tokens: int) -> dict[str, Any]:
    """The fields of an edit that shows a text instead of an output. What the provider counts for the result and the
    message around it stays."""
    tokens += snapshot.counter.family.result_overhead
    tokens += snapshot.settings.message_overhead if output.block == 0 else 0
    return {"seq": output.seq, "block": output.block, "handle": output.handle, "text": shown, "tokens": tokens}


def summary_id(first_seq: int, last_seq: int, text: str) -> str:
    """The id of a summary, derived from what it covers and from its text."""
    return handle_of("sum", f"{first_seq}\0{last_seq}\0{text}")


def summary_edit(
    snapshot: SessionSnapshot,
    text: str,
    first_seq: int,
    last_seq: int,
    *,
    strategy: str,
    pinned: str = "",
    files: str = "",
) -> SummaryEdit:
    """The edit that shows `first_seq` to `last_seq` as this text, after it the texts of `files`, and then the `pinned`
    outputs among them."""
    marker = snapshot.settings.summary_marker
    if marker is None:
        later = any(entry.summary and entry.last_seq < first_seq for entry in snapshot.entries)
        shown = summary_text(text, first_seq, last_seq, later=later)
    else:
        shown = f"{marker}\n{unforged(text)}"
    shown = "\n\n".join(filter(None, (shown, files, pinned)))
    return SummaryEdit(
        first_seq=first_seq,
        last_seq=last_seq,
        summary_id=summary_id(first_seq, last_seq, text),
        strategy=strategy,
        text=shown,
        summary=text,
        tokens=snapshot.counter.count(shown) + snapshot.settings.message_overhead,
    )


def summary_text(text: str, first_seq: int, last_seq: int, *, later: bool = False) -> str:
    """A summary as the view shows it: what it replaces, and how to retrieve the originals.

    It covers messages `first_seq` to `last_seq`. With `later`, another summary stays before it. The text of a summary
    was true when it was written, and is not written again: it says up to when.
    """
    older = " What a summary above says is open, failed or the last state is out of date." if later else ""
    count = counted(last_seq - first_seq + 1, "earlier message")
    return (
        f"{MARKER} summary: this replaces {count} ({first_seq} to {last_seq}) of this same session: what"
        " they did need not be done again. The originals are kept: search_history finds them, get_archived_output"
        f" reads tool outputs by handle. The state is as of message {last_seq}.{older}]\n\n{unforged(text)}"
    )


def digest_edit(snapshot: SessionSnapshot, anchor: int, text: str, handles: tuple[str, ...]) -> DigestEdit:
    """The edit that adds this message after the position `anchor`."""
    tokens = snapshot.counter.count(text) + snapshot.settings.message_overhead
    return DigestEdit(after_seq=anchor, handles=handles, text=text, tokens=tokens)


def pinned_text(snapshot: SessionSnapshot, texts: Sequence[tuple[Output, str]]) -> str:
    """The text that shows pinned outputs of messages that are not shown, each word for word between two lines that name
    it; empty if there are none. If all pinned outputs exceed their share of the window, each is cut to an equal
    part."""
    pinned, room = snapshot.pinned, snapshot.budget.usable // PINNED_SHARE
    whole = sum(output.tokens for output in pinned.values()) <= room
    limits = OutputLimits(tokens=None if whole else room // len(pinned), cut=snapshot.settings.output_cut)
    shown = []
    for output, original in texts:
        text = limit(original, limits, snapshot.counter.count, output.handle)
        call = one_line(f"{output.tool} {output.argument}", 160)
        shown.append(
            f"{MARKER} pinned output {output.handle} of {call}, message {output.seq}:]\n{unforged(text)}\n"
            f"{MARKER} end of {output.handle}]"
        )
    return "\n\n".join(shown)


# Outputs in use: those that are not old, whatever their age, since the model is working on them or they are pinned.

RECENT_CALLS = 60
"""A file is under edit if it was changed in so many newest calls, about one task; with more, old reads stay in the
view."""

_LOOKS = re.compile(r"grep|search|glob|find|list|ls", re.IGNORECASE)
"""Tools whose main argument is neither a command nor a file that they show."""

_HEREDOC = re.compile(r"<<-?\s*['\"]?\w+['\"]?(\s*>{1,2} *[\w./~-]+)?.*", re.DOTALL)
"""A here-document in a call's main argument, which is one line: its end is not told from its text."""

_PATCHED = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (\S+)")


def paths_read(output: Output) -> set[str]:
    """The files whose text the call reads."""
    return {use.path for use in _uses_of(output.tool, output.argument) if use.verb == "read"}


def paths_changed(output: Output) -> set[str]:
    """The files that the call changes."""
    return {use.path for use in _uses_of(output.tool, output.argument) if use.changes}


@lru_cache(maxsize=4_096)
def _uses_of(tool: str, argument: str) -> Sequence[FileUse]:
    """The files that a call uses, by its tool's name and its main argument, a path or a command."""
    from contextstash.events.calls import Call  # a hook, which has no view, needs no events
    from contextstash.events.files import file_uses
    from contextstash.events.turns import FileUse

    if patched := _PATCHED.findall(argument):
        return [FileUse(path, "edited") for path in patched]
    uses = file_uses(Call(0, tool, argument, "", {"path": argument}))
    if uses or _LOOKS.search(tool):
        return uses
    return file_uses(Call(0, "", argument, "", {"command": _HEREDOC.sub(r"\1", argument)}))


def outputs_in_use(outputs: Sequence[Output]) -> set[str]:
    """The handles of those of the outputs, which are in order, that stay: the newest read of each file under edit, and
    our own retrievals."""
    edited = {path for output in outputs[-RECENT_CALLS:] for path in paths_changed(output)}
    newest: dict[str, str] = {}
    for output in outputs:
        if not paths_changed(output):
            newest.update(dict.fromkeys(paths_read(output) & edited, output.handle))
    own = {output.handle for output in outputs if is_own_retrieval(output.tool, output.argument)}
    return own | set(newest.values())


def is_handle(pin: str) -> bool:
    """Whether a pin is the handle of an output, and not a path that begins like one."""
    return pin.startswith("out_") and "/" not in pin and "." not in pin


def outputs_of_pins(pins: Sequence[str], recorded: Sequence[Output]) -> list[Output]:
    """The outputs that the pins stand for among these, which are in order. A pin is a handle, or the path of a file,
    which stands for the newest output that shows it."""
    from contextstash.events.files import is_same_file

    def is_meant(output: Output, pin: str) -> bool:
        if is_handle(pin) or output.argument.startswith("wc "):  # it reads the file, and shows nothing of it
            return output.handle == pin
        return any(is_same_file(normpath(each), normpath(pin)) for each in paths_read(output))

    found = (next((output for output in reversed(recorded) if is_meant(output, pin)), None) for pin in pins)
    return [output for output in found if output is not None]


# Running counters.

MAX_SHRINK_STEP = 0.15
"""What leaves the view is taken to be larger or smaller than counted by at most this share. Whole windows of recorded
sessions differ by less; text that was never recorded makes a report differ by more."""

UNSURE_SHARE = 0.08
"""By how much new messages may be larger than they are counted with another family's vocabulary: the median error of
new tool results in recorded sessions of Claude Code was 8 %."""


def edited(counters: Counters, planned: Counters, after: Counters, *, own: bool) -> Counters:
    """The counters after edits of a view that was as `planned`, and that they have made as `after`, which has only what
    the view adds up to. What was recorded in between is added. By how much our `own` edits changed the view is also
    kept apart: a client that sends its own history has not seen that, until it compacts itself."""
    change = sums(after.parts, planned.parts, -1)
    by_us = sums(counters.own, change) if own else counters.own
    if not own and after.summary_seq > planned.summary_seq:
        by_us = {}
    return counters.model_copy(
        update={
            "parts": sums(counters.parts, change),
            "view_messages": counters.view_messages + after.view_messages - planned.view_messages,
            "view_results": counters.view_results + after.view_results - planned.view_results,
            "summary_seq": after.summary_seq,
            "own": by_us,
        }
    )


def sums(parts: Mapping[Part, int], others: Mapping[Part, int], sign: int = 1) -> dict[Part, int]:
    """The sums, or with the sign -1 the differences, of the tokens by part; parts of none are left out."""
    sums = {part: parts.get(part, 0) + sign * others.get(part, 0) for part in (*parts, *others)}
    return {part: tokens for part, tokens in sums.items() if tokens}


def count_message(counters: Counters, message: NewMessage, seq: int) -> Counters:
    """The counters with one more message."""
    parts = dict(counters.parts)
    for block in message.blocks if message.agent_visible else ():
        part = part_named(message.role, message.kind, block.type)
        parts[part] = parts.get(part, 0) + block.tokens
    counted = counters.model_copy(
        update={
            "messages": seq + 1,
            "view_messages": counters.view_messages + message.agent_visible,
            "view_results": counters.view_results + (len(message.outputs) if message.agent_visible else 0),
            "system_messages": counters.system_messages + (message.role == "system"),
            "parts": {part: tokens for part, tokens in parts.items() if tokens},
            "appended": counters.appended + (message.tokens if message.agent_visible else 0),
        }
    )
    return counted if message.usage is None else _anchored(counted, message, message.usage, seq)


def _anchored(counters: Counters, message: NewMessage, usage: Usage, seq: int) -> Counters:
    """The counters anchored on the usage that the provider reported for this reply.

    It belongs to a request, if one was handed out: to what was sent then, not to the view as it is now. If a reply is
    recorded in several messages, each contains the same report: the first anchors, the others add their tokens.
    """
    if counters.reported is not None and message.group is not None and message.group == counters.reported_group:
        reported = counters.reported + message.tokens
        view = counters.reported_view + message.tokens
        return counters.model_copy(update={"reported": reported, "reported_view": view, "reported_seq": seq})
    completion = message.tokens if message.group is not None else max(usage.completion_tokens, message.tokens)
    reported = usage.prompt_tokens + completion
    return reanchored(counters, reported, seq, group=message.group, since=_beyond(counters))


def _beyond(counters: Counters) -> int:
    """How many counted tokens of the view were in neither the newest request, if it has no report yet, nor the messages
    that came after it."""
    sent = counters.request
    return 0 if sent is None else counters.view_tokens - (sent.counted + counters.appended - sent.appended)


def reanchored(counters: Counters, reported: int, seq: int, *, since: int = 0, group: str | None = None) -> Counters:
    """The counters anchored on a window of `reported` tokens at message `seq`. `group` identifies the reply if several
    messages make up one; `since` are the tokens of what the report does not include: the messages after `seq`, or what
    was left out of the request."""
    return counters.model_copy(
        update={
            "reported": reported,
            "reported_view": counters.view_tokens - since,
            "reported_declared": counters.declared.tokens,
            "reported_seq": seq,
            "reported_group": group,
            "reported_own": sum(counters.own.values()),
            "request": None,
        }
    )


def refused(counters: Counters, true: int) -> Counters:
    """The counters anchored on the size that a provider named when it refused the newest request."""
    return reanchored(counters, true, counters.messages - 1, since=_beyond(counters))


def reported_late(counters: Counters, usage: Usage, seq: int, tokens: int, *, since: int) -> Counters:
    """The counters anchored on a report that arrived after its reply was counted: message `seq`, of `tokens`. `since`
    are the tokens of the view that the report does not include. Raises EditConflictError if it, or a later message, has
    a report already."""
    if counters.reported_seq >= seq:
        raise EditConflictError("This usage was reported meanwhile.")
    return reanchored(counters, usage.prompt_tokens + max(usage.completion_tokens, tokens), seq, since=since)


def estimate(counters: Counters, settings: ContextSettings, counter: str, *, followed: bool = False) -> tuple[int, str]:
    """Tokens of the view, and how they were determined; of a client that sends its own history (`followed`), those of
    its window, which our edits have not changed."""
    view, reported_view = counters.view_tokens, counters.reported_view
    if followed:
        view, reported_view = view - sum(counters.own.values()), reported_view - counters.reported_own
    declared = counters.declared.tokens
    if counters.reported is None or not settings.anchored:
        unreported = "; no usage reported yet" if counters.reported is None else ""
        return view + declared + settings.conversation_overhead, f"counted with {counter}{unreported}"
    change, ratio = view - reported_view, 1.0
    if change < 0 and counters.reported and counters.reported_declared and counters.reported_view > 0:
        # What leaves the view was in the last report, which was larger or smaller than counted by about as much as the
        # whole. Who declares nothing may send text that was not recorded.
        whole = (counters.reported - counters.reported_declared) / counters.reported_view
        ratio = whole if abs(whole - 1) <= MAX_SHRINK_STEP else 1.0
    since = round(change * ratio)
    since += declared - counters.reported_declared
    method = (
        f"reported usage ({counters.reported:,} tokens at message {counters.reported_seq})"
        f" {'+' if since >= 0 else '-'} {abs(since):,} counted since with {counter}"
    )
    return max(0, counters.reported + since), method


def own_tokens(session: Session, settings: ContextSettings) -> int:
    """Tokens of our view, as thresholds look at it: if a client sends its own history, which our edits do not change,
    they are counted, and not taken from the usage that the client reports."""
    if session.source is not None:
        return session.counters.view_tokens + session.counters.declared.tokens
    return estimate(session.counters, settings, "")[0]


def fixed_tokens(counters: Counters, settings: ContextSettings) -> int:
    """Tokens of a request that no reduction removes: the system prompt, tool definitions and other unlogged text."""
    estimated, _ = estimate(counters, settings, "")
    return counters.parts.get(Part.SYSTEM, 0) + max(0, estimated - counters.view_tokens)


def breakdown(counters: Counters, tokens: int, *, followed: bool = False) -> dict[str, int]:
    """`tokens` by part. `unrecorded` is reported by the provider but was not recorded: system prompt, tool definitions
    and other unlogged text. If a client sends its own history (`followed`), our edits are ignored: its window still
    contains what they replaced."""
    by_part, declared = sums(counters.parts, counters.own if followed else {}, -1), counters.declared
    by_part[Part.SYSTEM] = by_part.get(Part.SYSTEM, 0) + declared.system_tokens - declared.replaced_tokens
    parts = {str(part): count for part, count in sorted(by_part.items()) if count > 0}
    if declared.tools_tokens:
        parts["tools"] = declared.tools_tokens
    view = sum(parts.values())
    if view <= tokens:
        return {**parts, "unrecorded": tokens - view} if view < tokens else parts
    scaled = {part: count * tokens // view for part, count in parts.items()}
    largest = max(scaled, key=lambda part: scaled[part])
    scaled[largest] += tokens - sum(scaled.values())
    return {part: count for part, count in scaled.items() if count}


def request_excess(counters: Counters, settings: ContextSettings, counter: Counter, tokens: int) -> int:
    """How many counted tokens must leave the view for a request of at most so many `tokens`, also if its estimate is
    too low; below 0, how many more have room."""
    estimated, _ = estimate(counters, settings, counter.name)
    if counter.family.factor == 1.0 or counters.reported is None or not settings.anchored:  # it means our own count
        return estimated - tokens
    return estimated + round(UNSURE_SHARE * max(0, counters.view_tokens - counters.reported_view)) - tokens
