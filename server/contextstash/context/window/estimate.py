"""A session's running counters: each message is added once, and the estimate is computed from the counters alone."""

from __future__ import annotations

from contextstash.context.view.view import part_of
from contextstash.context.window.settings import ContextSettings
from contextstash_storage.records import Counters, NewMessage, Part, SentRequest, Usage

MIN_GROWTH = 200
"""Smaller growth, in tokens, does not calibrate: what a host adds to prompts unseen would outweigh it.
bench/estimation.py leaves out increments below this size as well."""

PRIOR_GROWTH = 5_000
"""The calibration starts at a ratio of 1 with the weight of this many tokens, so that one odd report changes little. A
guess."""

MAX_RATIO = 2.0
"""Largest calibration, and its inverse the smallest. A guess: the families' factors are between 1 and 1.55, so that a
ratio beyond 2 comes from something other than the counter."""

MAX_GROWTH_RATIO = 4
"""Reported growth of more than this many times the counted one is not used: something unrecorded was added, such as new
tool definitions. A guess."""


def count_message(counters: Counters, message: NewMessage, seq: int) -> Counters:
    """The counters with one more message."""
    before = counters.sent_tokens
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
        replying = counters.replying + counted.sent_tokens - before if message.role == "assistant" else 0
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
    beyond = 0 if sent is None else counters.sent_tokens - (sent.counted + counters.appended - sent.appended)
    completion = message.tokens if message.group is not None else max(usage.completion_tokens, message.tokens)
    calibrated = counters.model_copy(update=_growth(counters, usage, asked))
    return reanchored(calibrated, usage.prompt_tokens + completion, seq, group=message.group, since=beyond)


def _growth(counters: Counters, usage: Usage, asked: int) -> dict[str, int]:
    """The calibration's sums with the growth of the prompt since the last report. `asked` is the counted prompt."""
    if counters.reported is None:
        return {}
    true, counted = usage.prompt_tokens - counters.reported, asked - counters.reported_view
    if not (true > MIN_GROWTH and counted > MIN_GROWTH and true < MAX_GROWTH_RATIO * counted):
        return {}
    return {"true_growth": counters.true_growth + true, "counted_growth": counters.counted_growth + counted}


def reanchored(counters: Counters, reported: int, seq: int, *, since: int = 0, group: str | None = None) -> Counters:
    """The counters anchored on a window of `reported` tokens at message `seq`. `group` identifies the reply if several
    messages make up one; `since` are the tokens of what the report does not include: the messages after `seq`, or what
    was left out of the request."""
    return counters.model_copy(
        update={
            "reported": reported,
            "reported_view": counters.sent_tokens - since,
            "reported_seq": seq,
            "reported_group": group,
            "replying": 0,
            "unsent": 0,
            "request": None,
        }
    )


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
    calibrated = counters.model_copy(update=_growth(counters, usage, sent.counted))
    return reanchored(calibrated, reported, sent.messages, since=counters.sent_tokens - sent.counted - reply)


def growth_ratio(counters: Counters, settings: ContextSettings) -> float:
    """The ratio of reported to counted tokens in this session; 1 if the settings do not use reports."""
    if not (settings.anchored and settings.calibrated):
        return 1.0
    ratio = (counters.true_growth + PRIOR_GROWTH) / (counters.counted_growth + PRIOR_GROWTH)
    return min(MAX_RATIO, max(1 / MAX_RATIO, ratio))


def estimate(counters: Counters, settings: ContextSettings, counter: str, *, followed: bool = False) -> tuple[int, str]:
    """Tokens of the view, and how they were determined. If a client sends its own history (`followed`), what our edits
    removed from the view since the last report is still in the client's window."""
    ratio = growth_ratio(counters, settings)
    view = counters.sent_tokens + (counters.unsent if followed else 0)
    calibrated = f", calibrated × {ratio:.2f}" if abs(ratio - 1) >= 0.005 else ""
    if counters.reported is None or not settings.anchored:
        return round(view * ratio) + settings.conversation_overhead, f"counted with {counter}{calibrated}"
    since = round((view - counters.reported_view) * ratio)
    method = (
        f"reported usage ({counters.reported:,} tokens at message {counters.reported_seq})"
        f" {'+' if since >= 0 else '-'} {abs(since):,} counted since with {counter}{calibrated}"
    )
    return max(0, counters.reported + since), method


def breakdown(counters: Counters, tokens: int, *, followed: bool = False) -> dict[str, int]:
    """`tokens` by part. `unrecorded` is what the provider reported but nobody recorded: system prompt, tool definitions
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
