"""A session's running counters: each message is added once, and the estimate is computed from the counters alone."""

from __future__ import annotations

from collections.abc import Mapping

from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Counters, Kind, NewMessage, Part, Role, Session, Usage

MAX_SHRINK_STEP = 0.15
"""What leaves the view is taken to be larger or smaller than counted by at most this share. Whole windows of recorded
sessions differ by less; text that was never recorded makes a report differ by more."""

UNSURE_SHARE = 0.08
"""By how much new messages may be larger than they are counted with another family's vocabulary: the median error of
new tool results in recorded sessions of Claude Code was 8 %."""


_PARTS: dict[str, Part] = {
    "thinking": Part.THINKING,
    "tool_call": Part.TOOL_CALLS,
    "tool_result": Part.TOOL_RESULTS,
    "image": Part.IMAGES,
    "document": Part.IMAGES,
    "system": Part.SYSTEM,
    "user": Part.USER,
    "assistant": Part.ASSISTANT,
    "tool": Part.TOOL_RESULTS,
}
"""By the type of a block, else by the role of its message."""


def part_named(role: Role, kind: Kind, block_type: str) -> Part:
    """The part of blocks of this type in messages of this role and kind."""
    if kind in ("summary", "tool_summary"):
        return Part.SUMMARIES
    return _PARTS.get(block_type) or _PARTS[role]


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
    spare = 0
    if (
        counter.family.factor != 1.0 and counters.reported is not None and settings.anchored
    ):  # who never reports means ours
        spare = round(UNSURE_SHARE * max(0, counters.view_tokens - counters.reported_view))
    return estimated + spare - tokens
