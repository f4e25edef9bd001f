"""What a session's requests took, and what they would have taken unedited, cache rewrites included."""

from __future__ import annotations

from contextstash.context.view.protected_outputs import fetched_again
from contextstash.context.window.estimate import MIN_GROWTH
from contextstash.proxy.preparation import Prepared, made_calls, pruned_at
from contextstash.proxy.shown_sizes import size_of
from contextstash_storage.records import ProxiedSession, Usage

COMPACTS_AT = 0.92
"""The share of the window at which clients compact, for the estimate of compactions avoided: Claude Code's."""

AFTER_COMPACTION = 0.15
"""The share of the window that a conversation takes after a compaction. A guess, for the same estimate."""


MAX_STEP = 2.0
"""A request counts as if its bytes had at most so many times the tokens of the ones before, and at least the inverse:
new tool definitions, or reasoning that the provider drops, change a prompt far more than its texts do. A guess."""

PRIOR_TOKENS = 20_000
"""What is known weighs as much as so many new tokens: one large output of another kind changes little. A guess."""


def booked(prepared: Prepared, usage: Usage, ended: float, window: int) -> ProxiedSession:
    """The conversation's state after a reply, whose usage the provider reported."""
    conversation, prices = prepared.conversation, prepared.prices
    state, prompt = conversation.state, usage.prompt_tokens
    direct = prompt + prepared.saved
    paid = _cost(prepared, usage.cached_tokens, usage.cache_write_tokens, prompt)
    read = usage.cached_tokens
    if not prepared.cold and state.direct_prompt:
        # Unedited, a warm request would have read all of the former one. A cold one reads what others keep warm.
        read = max(read, min(state.direct_prompt, direct))
    rest = direct - read
    written = rest if usage.cache_write_tokens or not prices.write > 1 else 0
    again = _fetched_again(prepared)
    passed = COMPACTS_AT * window
    shrunk = direct - state.compactions_avoided * (COMPACTS_AT - AFTER_COMPACTION) * window
    return state.model_copy(
        update={
            "requests": state.requests + 1,
            "edited": state.edited + prepared.edited,
            "prunes": state.prunes + bool(prepared.pruned),
            "sent": state.sent + prompt,
            "direct": state.direct + direct,
            "paid": state.paid + paid,
            "direct_cost": state.direct_cost + _cost(prepared, read, written, direct),
            "refetched": state.refetched + len(again),
            "refetched_tokens": state.refetched_tokens + sum(again.values()),
            "compactions_avoided": state.compactions_avoided + (shrunk > passed > prompt),
            "last_at": ended,
            "cache_seconds": prices.seconds,
            "prompt": prompt,
            "direct_prompt": direct,
            "tokens_per_byte": _tokens_per_byte(prepared, prompt),
        }
    )


def _tokens_per_byte(prepared: Prepared, prompt: int) -> float:
    """By how many tokens the prompt has grown for each new byte: the mean so far, moved towards what this request says.
    The whole prompt says less: it has tokens that the body does not show, such as how the provider writes tool
    definitions, and images have bytes that are no tokens."""
    conversation = prepared.conversation
    rate = conversation.tokens_per_byte
    tokens, size = prompt - conversation.state.prompt, sent_bytes(prepared) - conversation.sent_bytes
    if not conversation.sent_bytes or tokens < MIN_GROWTH or size < MIN_GROWTH:
        return rate
    if any(message.images for message in prepared.request.messages[conversation.same_messages(prepared.request) :]):
        return rate
    seen = min(max(tokens / size, rate / MAX_STEP), rate * MAX_STEP)
    return rate + (seen - rate) * tokens / (tokens + PRIOR_TOKENS)


def sent_bytes(prepared: Prepared) -> int:
    """The bytes of what was sent of the prompt."""
    return size_of(prepared.request) - _bytes_saved(prepared)


def booked_without_usage(prepared: Prepared, ended: float) -> ProxiedSession:
    """The state after a reply without usage: nothing is known of its cost."""
    state = prepared.conversation.state
    changes = {"requests": state.requests + 1, "edited": state.edited + prepared.edited, "last_at": ended}
    return state.model_copy(update={**changes, "cache_seconds": prepared.prices.seconds})


def _cost(prepared: Prepared, read: int, written: int, prompt: int) -> float:
    prices = prepared.prices
    return read * prices.read + written * prices.write + max(0, prompt - read - written)


def _bytes_saved(prepared: Prepared) -> int:
    return len(prepared.request.body) - len(prepared.body)


def _fetched_again(prepared: Prepared) -> dict[str, int]:
    """The tokens of outputs of this request that were fetched again after a prune, and were not counted before."""
    conversation = prepared.conversation
    if not conversation.edits.pins:
        return {}
    again = fetched_again(made_calls(conversation, prepared.request), pruned_at(conversation)) - conversation.counted
    conversation.counted = conversation.counted | again
    return {call_id: conversation.catalog.outputs[call_id].output.tokens for call_id in again}
