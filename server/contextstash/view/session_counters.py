"""A session's running counters: each message is added once, and the estimate is computed from the counters alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextstash.window.settings import ContextSettings
from contextstash_storage.records import (
    Block,
    Counters,
    Kind,
    Message,
    NewMessage,
    Part,
    Role,
    SentRequest,
    Session,
    Usage,
)

if TYPE_CHECKING:
    from contextstash.window.token_counters import Counter

MIN_GROWTH = 200
"""Fewer tokens say nothing of how the provider counts: what a host adds to prompts unseen would outweigh them."""

MAX_RATIO = 2.0
"""Largest ratio of a provider's count to ours, and its inverse the smallest: the families' factors are between 1 and
1.55, so that more comes from something other than the counter."""

MAX_SHRINK_STEP = 0.15
"""What leaves the view is taken to be larger or smaller than counted by at most this share. Whole windows of recorded
sessions differ by less; text that was never recorded makes a report differ by more."""

UNSURE_SHARE = 0.08
"""By how much new messages may be larger than they are counted with another family's vocabulary: the median error of
new tool results in recorded sessions of Claude Code was 8 %."""


_PARTS_BY_TYPE: dict[str, Part] = {
    "thinking": Part.THINKING,
    "tool_call": Part.TOOL_CALLS,
    "tool_result": Part.TOOL_RESULTS,
    "image": Part.IMAGES,
    "document": Part.IMAGES,
}
_PARTS_BY_ROLE: dict[str, Part] = {
    "system": Part.SYSTEM,
    "user": Part.USER,
    "assistant": Part.ASSISTANT,
    "tool": Part.TOOL_RESULTS,
}


def part_of(message: Message | NewMessage, block: Block) -> Part:
    """The part of the window that a block's tokens belong to."""
    return part_named(message.role, message.kind, block.type)


def part_named(role: Role, kind: Kind, block_type: str) -> Part:
    """The part of blocks of this type in messages of this role and kind."""
    if kind in ("summary", "tool_summary"):
        return Part.SUMMARIES
    return _PARTS_BY_TYPE.get(block_type) or _PARTS_BY_ROLE[role]


def count_message(counters: Counters, message: NewMessage, seq: int) -> Counters:
    """The counters with one more message."""
    before = counters.view_tokens
    parts = dict(counters.parts)
    if message.agent_visible:
        for block in message.blocks:
            part = part_of(message, block)
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
    if message.usage is None:
        replying = counters.replying + counted.view_tokens - before if message.role == "assistant" else 0
        return counted.model_copy(update={"replying": replying})
    return _anchored(counted, message, message.usage, seq, before)


def _anchored(counters: Counters, message: NewMessage, usage: Usage, seq: int, before: int) -> Counters:
    """The counters anchored on the usage that the provider reported for this reply.

    It belongs to a request, if one was handed out: to what was sent then, not to the view as it is now. If a reply is
    recorded in several messages, each contains the same report: the first anchors, the others add their tokens.
    """
    if counters.reported is not None and message.group is not None and message.group == counters.reported_group:
        reported = counters.reported + message.tokens
        view = counters.reported_view + message.tokens
        return counters.model_copy(update={"reported": reported, "reported_view": view, "reported_seq": seq})
    sent = message.request or counters.request
    asked = before - counters.replying if sent is None else sent.counted
    completion = message.tokens if message.group is not None else max(usage.completion_tokens, message.tokens)
    measured = _with_factor(counters, usage, asked, sent)
    beyond = 0 if sent is None else _beyond(counters, sent)
    return reanchored(measured, usage.prompt_tokens + completion, seq, group=message.group, since=beyond)


def _beyond(counters: Counters, sent: SentRequest) -> int:
    """How many counted tokens of the view were in neither the request nor the messages that came after it."""
    return counters.view_tokens - (sent.counted + counters.appended - sent.appended)


def _with_factor(counters: Counters, usage: Usage, asked: int, sent: SentRequest | None) -> Counters:
    """The counters with the declared parts as large as the first report says; `asked` is the counted prompt without
    them. Unchanged if there was a report before, or if not all that was sent is known."""
    declared = counters.declared
    counted = declared.system_tokens + declared.tools_tokens
    if counters.reported is not None or sent is None or declared.tools is None or counted < MIN_GROWTH:
        return counters
    true = usage.prompt_tokens - asked + declared.replaced_tokens
    factor = min(MAX_RATIO, max(1 / MAX_RATIO, true / counted))
    scaled = {
        "factor": declared.factor * factor,
        "system_tokens": round(declared.system_tokens * factor),
        "tools_tokens": round(declared.tools_tokens * factor),
    }
    return counters.model_copy(update={"declared": declared.model_copy(update=scaled)})


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
            "replying": 0,
            "unsent": 0,
            "request": None,
        }
    )


def refused(counters: Counters, true: int) -> Counters:
    """The counters anchored on the size that a provider named when it refused the newest request."""
    beyond = 0 if counters.request is None else _beyond(counters, counters.request)
    return reanchored(counters, true, counters.messages - 1, since=beyond)


def explains(counters: Counters, settings: ContextSettings, tokens: int) -> bool:
    """Whether the view may be this large: what no report includes may be larger than counted by MAX_RATIO. True if
    nothing was reported, because then the request may hold anything."""
    if counters.reported is None or not settings.anchored:
        return True
    estimated, _ = estimate(counters, settings, "")
    since = max(0, counters.view_tokens - counters.reported_view)
    return estimated + round(since * (MAX_RATIO - 1)) >= tokens


def reported_late(counters: Counters, usage: Usage, seq: int, tokens: int, since: int) -> Counters:
    """The counters anchored on a report that arrived after its reply was counted: message `seq`, of `tokens`. `since`
    are the tokens of the messages after it. Unchanged if a later message has a report already."""
    if counters.reported_seq >= seq:
        return counters
    reported = usage.prompt_tokens + max(usage.completion_tokens, tokens)
    anchored = reanchored(counters, reported, seq, since=since)
    # `replying` are the tokens of a later reply, which has no report yet.
    return anchored.model_copy(update={"replying": counters.replying})


def booked_late(counters: Counters, usage: Usage, sent: SentRequest, reply: int) -> Counters:
    """The counters anchored on a report that arrived after the reply to a request was counted, with `reply` tokens."""
    reported = usage.prompt_tokens + max(usage.completion_tokens, reply)
    since = counters.view_tokens - sent.counted - reply
    return reanchored(_with_factor(counters, usage, sent.counted, sent), reported, sent.messages, since=since)


def shrink_ratio(counters: Counters, settings: ContextSettings) -> float:
    """The ratio of true to counted tokens of what leaves the view. The last report included it: it was larger or
    smaller than counted by about as much as the whole. Whoever declares nothing may send text that was not recorded;
    then it is 1."""
    if not settings.anchored or not counters.reported or not counters.reported_declared or counters.reported_view <= 0:
        return 1.0
    whole = (counters.reported - counters.reported_declared) / counters.reported_view
    return whole if abs(whole - 1) <= MAX_SHRINK_STEP else 1.0


def estimate(counters: Counters, settings: ContextSettings, counter: str, *, followed: bool = False) -> tuple[int, str]:
    """Tokens of the view, and how they were determined. If a client sends its own history (`followed`), what our edits
    removed from the view since the last report is still in the client's window."""
    view = counters.view_tokens + (counters.unsent if followed else 0)
    declared = counters.declared.tokens
    if counters.reported is None or not settings.anchored:
        unreported = "; no usage reported yet" if counters.reported is None else ""
        return view + declared + settings.conversation_overhead, f"counted with {counter}{unreported}"
    change = view - counters.reported_view
    since = round(change * (1.0 if change > 0 else shrink_ratio(counters, settings)))
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


def unsure(counters: Counters, settings: ContextSettings) -> int:
    """By how many tokens an estimate by an approximate counter may be too low: a share of what no report includes. 0
    if nothing was ever reported, because whoever never reports means our count."""
    if counters.reported is None or not settings.anchored:
        return 0
    return round(UNSURE_SHARE * max(0, counters.view_tokens - counters.reported_view))


def fixed_tokens(counters: Counters, settings: ContextSettings) -> int:
    """Tokens of a request that no reduction removes: the system prompt, tool definitions and other unlogged text."""
    estimated, _ = estimate(counters, settings, "")
    return counters.parts.get(Part.SYSTEM, 0) + max(0, estimated - counters.view_tokens)


def breakdown(counters: Counters, tokens: int, *, followed: bool = False) -> dict[str, int]:
    """`tokens` by part. `unrecorded` is reported by the provider but was not recorded: system prompt, tool definitions
    and other unlogged text. If a client sends its own history (`followed`), our edits are ignored: its window still
    contains what they replaced."""
    ours = counters.own if followed else {}
    by_part = {part: counters.parts.get(part, 0) - ours.get(part, 0) for part in {*counters.parts, *ours}}
    by_part[Part.SYSTEM] = (
        by_part.get(Part.SYSTEM, 0) + counters.declared.system_tokens - counters.declared.replaced_tokens
    )
    parts = {str(part): count for part, count in sorted(by_part.items()) if count > 0}
    if counters.declared.tools_tokens:
        parts["tools"] = counters.declared.tools_tokens
    view = sum(parts.values())
    if view <= tokens:
        rest = tokens - view
        return {**parts, "unrecorded": rest} if rest else parts
    scaled = {part: count * tokens // view for part, count in parts.items()}
    largest = max(scaled, key=lambda part: scaled[part])
    scaled[largest] += tokens - sum(scaled.values())
    return {part: count for part, count in scaled.items() if count}


@dataclass(frozen=True)
class RequestBudget:
    """A budget in the provider's tokens, the view's estimate, and by how much that may be too low."""

    tokens: int
    estimated: int
    unsure: int

    def counted(self, view: int) -> int:
        """The number of counted tokens at which the view is within the budget, also if its estimate is too low."""
        excess = self.estimated + self.unsure - self.tokens
        return view if excess <= 0 else view - excess

    def after(self, view: int, fitted: int) -> int:
        """The estimate if the view has `fitted` counted tokens instead of `view`."""
        return max(0, self.estimated - (view - fitted))


def request_budget(
    counters: Counters, settings: ContextSettings, counter: Counter, tokens: int, added: int = 0
) -> RequestBudget:
    """The budget of a request of at most so many `tokens`. `added` are tokens that it has in addition to the view."""
    estimated, _ = estimate(counters, settings, counter.name)
    spare = unsure(counters, settings) if counter.is_approximate else 0
    return RequestBudget(tokens, estimated + added, spare)
