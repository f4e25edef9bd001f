"""A session's running counters: each message folded in once, and the estimate made from them alone."""

from __future__ import annotations

from contextstash.context.view.view import part_of
from contextstash.context.window.settings import ContextSettings
from contextstash_storage.records import Counters, NewMessage, Usage

MIN_GROWTH = 200
"""Growth below this, in tokens, says nothing about how well the counter counts."""

PRIOR_GROWTH = 5_000
"""With how many tokens' weight a session's calibration starts at 1."""

MAX_RATIO = 2.0


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
        }
    )
    if message.usage is None:
        replying = counters.replying + counted.view_tokens - before if message.role == "assistant" else 0
        return counted.model_copy(update={"replying": replying})
    return _anchored(counted, message, message.usage, seq, before)


def _anchored(counters: Counters, message: NewMessage, usage: Usage, seq: int, before: int) -> Counters:
    """The counters anchored on what the provider reported for the reply that this message is (a part of).

    A reply that is recorded in several messages carries the same report in each.
    """
    if counters.reported is not None and message.group is not None and message.group == counters.reported_group:
        reported = counters.reported + message.tokens
        return counters.model_copy(
            update={"reported": reported, "reported_view": counters.view_tokens, "reported_seq": seq}
        )
    growth = {}
    if counters.reported is not None:
        true = usage.prompt_tokens - counters.reported
        counted = before - counters.replying - counters.reported_view
        if true > MIN_GROWTH and counted > MIN_GROWTH and true < 4 * counted:
            growth = {
                "true_growth": counters.true_growth + true,
                "counted_growth": counters.counted_growth + counted,
            }
    completion = message.tokens if message.group is not None else max(usage.completion_tokens, message.tokens)
    return reanchored(counters.model_copy(update=growth), usage.prompt_tokens + completion, seq, group=message.group)


def reanchored(counters: Counters, reported: int, seq: int, *, since: int = 0, group: str | None = None) -> Counters:
    """The counters anchored on a window of `reported` tokens at message `seq`, the reply `group` if it is one; `since`
    are the tokens of the messages that came after it."""
    return counters.model_copy(
        update={
            "reported": reported,
            "reported_view": counters.view_tokens - since,
            "reported_seq": seq,
            "reported_group": group,
            "replying": 0,
            "unsent": 0,
        }
    )


def reported_late(counters: Counters, usage: Usage, seq: int, tokens: int, since: int) -> Counters:
    """The counters anchored on the report of a reply that was counted without it: message `seq`, of `tokens`.
    `since` are the tokens of the messages that came after it. Nothing changes if a later one has reported."""
    if counters.reported_seq >= seq:
        return counters
    reported = usage.prompt_tokens + max(usage.completion_tokens, tokens)
    anchored = reanchored(counters, reported, seq, since=since)
    return anchored.model_copy(update={"replying": counters.replying})  # those of a later reply, still without report


def growth_ratio(counters: Counters, settings: ContextSettings) -> float:
    """True tokens for a counted one, by what this session's reports showed; 1 if they are not used."""
    if not (settings.anchored and settings.calibrated):
        return 1.0
    ratio = (counters.true_growth + PRIOR_GROWTH) / (counters.counted_growth + PRIOR_GROWTH)
    return min(MAX_RATIO, max(1 / MAX_RATIO, ratio))


def estimate(counters: Counters, settings: ContextSettings, counter: str, *, followed: bool = False) -> tuple[int, str]:
    """Tokens of the view, and by what method. For a client that sends its own history (`followed`), what our edits
    took from the view since the last report is still in its window."""
    ratio = growth_ratio(counters, settings)
    view = counters.view_tokens + (counters.unsent if followed else 0)
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
    """`tokens` by part. `unrecorded` is what was reported but never recorded: system prompt, tool definitions. For a
    client that sends its own history (`followed`) our edits are left out: its window holds what was there before."""
    ours = counters.own if followed else {}
    held = {part: counters.parts.get(part, 0) - ours.get(part, 0) for part in {*counters.parts, *ours}}
    parts = {str(part): count for part, count in sorted(held.items()) if count > 0}
    view = sum(parts.values())
    if view <= tokens:
        rest = tokens - view
        return {**parts, "unrecorded": rest} if rest else parts
    scaled = {part: count * tokens // view for part, count in parts.items()}
    largest = max(scaled, key=lambda part: scaled[part])
    scaled[largest] += tokens - sum(scaled.values())
    return {part: count for part, count in scaled.items() if count}
