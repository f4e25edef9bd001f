"""A session's account: the cost of its requests, and their cost unedited, cache rewrites included."""

from __future__ import annotations

import math

from contextstash.messages.request.text import TextMessage
from contextstash.messages.usage import with_cache
from contextstash.proxy.added_parts import added_by_us
from contextstash.proxy.bills import Bill, bill_of, on_its_day
from contextstash.proxy.conversations import DEFAULT_TOKENS_PER_BYTE
from contextstash.proxy.edits import Prepared, share_hidden_within, size_of
from contextstash.proxy.plan import writes_long
from contextstash.proxy.request_lines import is_side_call
from contextstash.view.session_counters import MIN_GROWTH
from contextstash_storage.records import ProxiedSession, Usage

COMPACTS_AT = 0.92
"""The share of the window at which clients compact, for the estimate of compactions avoided: Claude Code's."""

GUESSED_WINDOW = 200_000
"""Tokens of an unknown model's window, for the same estimate."""

AFTER_COMPACTION = 0.15
"""The share of the window that a conversation takes after a compaction, for the same estimate."""


MAX_STEP = 2.0
"""A request counts as if its bytes had at most so many times the tokens of the ones before, and at least the inverse:
new tool definitions, or reasoning that the provider drops, change a prompt far more than its texts do. If it is too
strict, requests are booked without what they would have taken unedited."""

PRIOR_TOKENS = 20_000
"""What is known weighs as much as so many new tokens: one large output of another kind changes little."""


OWN_COMPACTION = 0.7
"""A compaction is one that `contextstash run --window` has asked for if the window was filled to this share of its
size. Clients count the newest output in another way than the provider, so they may be early; if the share is too low, a
compaction that the user typed is charged too."""

UNSURE_TOKENS = 1_024
"""So few tokens more or less are not looked at: no provider caches a shorter prompt."""

LEAST_SHARE = 0.25
"""A provider that reports less than this share of what the sent texts are estimated at does not count the prompt. Texts
differ by a factor of two in tokens of a byte; if the share is too high, savings of unusual texts are not claimed."""

IMAGE_KEYS = (b'"image"', b'"image_url"', b'"input_image"')
"""What stands in a message with an image, in any of the formats."""

FILE_KEYS = (b'"data"', b'"file_data"', b'"encrypted_content"', *IMAGE_KEYS)
"""Keys of contents that are no text."""


def booked(prepared: Prepared, bill: Bill, unedited: Usage, ended: float, window: int | None) -> ProxiedSession:
    """The conversation's state after a reply, but for the prices of its `bill`; `unedited` is its estimated usage
    without an edit. `window` is the model's, if it is known."""
    state, usage = on_its_day(prepared.conversation.state, ended), bill.usage
    prompt = usage.prompt_tokens
    again = prepared.conversation.rereads.new_reads()
    window = window or GUESSED_WINDOW
    passed, whole = COMPACTS_AT * window, prompt + prepared.saved
    shrunk = whole - state.compactions_avoided * (COMPACTS_AT - AFTER_COMPACTION) * window
    return state.model_copy(
        update={
            "requests": state.requests + 1,
            "edited": state.edited + prepared.edited,
            "prunes": state.prunes + bool(prepared.pruned),
            "sent": state.sent + prompt,
            "direct": state.direct + bill.without.prompt_tokens,
            "refetched": state.refetched + len(again),
            "refetched_tokens": state.refetched_tokens + sum(again),
            "compactions_avoided": state.compactions_avoided + (shrunk > passed > prompt),
            "last_at": ended,
            "cache_seconds": prepared.cache_seconds,
            "prompt": prompt,
            "direct_prompt": unedited.prompt_tokens,
            "tokens_per_byte": _tokens_per_byte(prepared, prompt),
        }
    )


def is_credible(prepared: Prepared, usage: Usage) -> bool:
    """Whether the reported prompt may hold the texts that were sent. What the model wrote is left out, since providers
    drop its reasoning, and so are images and files, of which the bytes are no tokens."""
    rate = min(prepared.conversation.tokens_per_byte, DEFAULT_TOKENS_PER_BYTE)
    if usage.prompt_tokens >= LEAST_SHARE * rate * sent_bytes(prepared):
        return True
    size = sum(
        len(message.raw) for message in prepared.request.messages if not message.is_models and not _has_file(message)
    )
    least = rate * (size - _bytes_saved(prepared))
    return least < UNSURE_TOKENS or usage.prompt_tokens >= LEAST_SHARE * least


def _unedited_usage(prepared: Prepared, usage: Usage, most: float) -> Usage:
    """What the provider would have reported of the request as the client wrote it, of at most so many tokens."""
    prompt = usage.prompt_tokens
    direct = max(prompt, round(min(prompt + prepared.saved, most)))
    read = _unedited_read(prepared, usage, direct)
    plain = max(0, prompt - usage.cached_tokens - usage.cache_write_tokens)
    written = max(0, direct - read - plain) if usage.cache_write_tokens else 0
    whole = with_cache(usage, read, written, long=writes_long(prepared.request))
    return whole.model_copy(update={"prompt_tokens": direct})


def _unedited_read(prepared: Prepared, usage: Usage, direct: int) -> int:
    """The tokens that the unedited request would have read from the cache. What the provider did not find for another
    reason than our edits, such as other tools, a rewind, or an entry that it dropped, it would have missed as well."""
    read, former = usage.cached_tokens, prepared.conversation.state.direct_prompt
    most = min(former, direct) if former else direct
    if prepared.changed and former and not prepared.cold and read:
        return max(read, most)  # without our edit, all of the former request
    hidden = share_hidden_within(prepared, prepared.former, read, usage.prompt_tokens)
    return max(read, min(most, read + round(prepared.saved * hidden)))


def _has_file(message: TextMessage) -> bool:
    """Whether it holds an image, a file or encrypted reasoning, of which the bytes are no tokens."""
    return any(key in message.raw for key in FILE_KEYS)


def billed(prepared: Prepared, usage: Usage, chosen: int | None, window: int | None) -> tuple[Bill, Usage, int]:
    """The bill of a request, its usage if it had not been edited, and the tokens that compactions have taken out of the
    window by now which the client would not have made. `chosen` is the size at which `contextstash run --window` has it
    compact."""
    conversation, request = prepared.conversation, prepared.request
    added = added_by_us(prepared, compacts=chosen is not None)
    # A request longer than the window cannot be sent; without what was fetched again it is that much shorter.
    unedited = _unedited_usage(prepared, usage, math.inf if window is None else window + added.fetched_again)
    state, point = conversation.state, COMPACTS_AT * (window or GUESSED_WINDOW)
    before = state.direct_prompt + state.carried
    carried: int | None = state.carried if chosen else 0
    if is_side_call(request):
        ours = chosen is not None and OWN_COMPACTION * chosen <= state.prompt and before < point
        conversation.lost = max(0, before) if ours else 0
        carried = None if ours else 0
    elif conversation.compacting:
        carried = max(0, conversation.lost - unedited.prompt_tokens)
    if carried and unedited.prompt_tokens + carried > point:
        carried = 0
    if conversation.compacting:
        conversation.rereads.compact(request, by_us=bool(carried))
    elif not carried:
        conversation.rereads.left = {}  # by now the client would have compacted these outputs itself
    bill = bill_of(usage, unedited, prepared.removed, added, carried)
    return bill, unedited, carried or 0


def _tokens_per_byte(prepared: Prepared, prompt: int) -> float:
    """By how many tokens the prompt has grown for each new byte: the mean so far, moved towards what this request says.
    The whole prompt says less: it has tokens that the body does not show, such as how the provider writes tool
    definitions, and images have bytes that are no tokens."""
    conversation = prepared.conversation
    rate = conversation.tokens_per_byte
    tokens, size = prompt - conversation.state.prompt, sent_bytes(prepared) - conversation.sent_bytes
    if not conversation.sent_bytes or tokens < MIN_GROWTH or size < MIN_GROWTH:
        return rate
    new = prepared.request.messages[conversation.same_messages(prepared.request) :]
    if any(key in message.raw for message in new for key in IMAGE_KEYS):
        return rate
    seen = min(max(tokens / size, rate / MAX_STEP), rate * MAX_STEP)
    return rate + (seen - rate) * tokens / (tokens + PRIOR_TOKENS)


def sent_bytes(prepared: Prepared) -> int:
    """The bytes of what was sent of the prompt."""
    return size_of(prepared.request) - _bytes_saved(prepared)


def booked_without_usage(prepared: Prepared, ended: float) -> ProxiedSession:
    """The state after a reply without usage: nothing is known of its cost. The size of the prompt is estimated, so that
    what the next reply reports is compared with this request and not with one before it."""
    conversation = prepared.conversation
    state = on_its_day(conversation.state, ended)
    changes: dict[str, float] = {
        "requests": state.requests + 1,
        "edited": state.edited + prepared.edited,
        "last_at": ended,
    }
    if state.prompt and conversation.sent_bytes:
        grown = sent_bytes(prepared) - conversation.sent_bytes
        prompt = max(0, state.prompt + round(grown * conversation.tokens_per_byte))
        changes |= {"prompt": prompt, "direct_prompt": prompt + prepared.saved}
    return state.model_copy(update={**changes, "cache_seconds": prepared.cache_seconds})


def booked_side_call(state: ProxiedSession, bill: Bill, ended: float) -> ProxiedSession:
    """The state after a request that belongs to no conversation: its tokens count, and no prune depends on it."""
    state, tokens = on_its_day(state, ended), bill.usage.prompt_tokens
    return state.model_copy(update={"sent": state.sent + tokens, "direct": state.direct + tokens})


def _bytes_saved(prepared: Prepared) -> int:
    return len(prepared.request.body) - len(prepared.body)
