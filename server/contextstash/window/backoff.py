"""Back-off: detects prunes and compactions that repeat without freeing enough, and says when to try again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FEW_MESSAGES = 10
"""If an attempt follows the previous one within this many messages, the window was refilled at once. Claude Code stops
after three refills within three turns each (its message on thrashing says so); a turn with parallel calls is about
three messages."""

MIN_BAD_ATTEMPTS = 3
"""This many bad attempts in a row are an oscillation, as in Claude Code: one or two can be a large file that the agent
needed."""

MIN_THRESHOLD_SHARE = 0.9
"""An attempt counts only if the context had reached this share of the threshold. Attempts that a count
triggers, such as one prune for each output after the tenth, are frequent by design and do not mean that the window is
full."""

LITTLE = 0.05
"""An attempt freed almost nothing if it ends less than this share of the usable window below the threshold, and too
little to try again at once if it saved less than this share."""

CLEARLY = 0.10
"""An attempt that ends this far below the threshold, and did not follow at once, ends an oscillation; one that saved as
much resets the back-off. One in between changes nothing, so that the report does not appear and disappear. Twice
`LITTLE`."""

MIN_WAIT, MAX_WAIT = 0.05, 0.40
"""By which share of the usable window the context has to grow before the next attempt: after one attempt that saved too
little, doubled by each further one, and at most. A longer wait lets the context grow further before it is reduced."""


@dataclass(frozen=True, slots=True)
class ReductionAttempt:
    """One prune or compaction; `seq` is how many messages were recorded when it happened."""

    seq: int
    tokens_before: int
    tokens_after: int


def oscillation(attempts: Sequence[ReductionAttempt], threshold: int, usable: int) -> str | None:
    """A sentence with the cause and the remedy if the context oscillates near `threshold`; else None.

    It oscillates if at least the last three attempts were bad: if they followed the previous one within 10 messages,
    or ended less than 5 % of `usable` below the threshold. An attempt that did neither and ended 10 % below it ends
    the oscillation. A prune and a compaction at the same message count as one attempt; attempts far below the
    threshold do not count. `attempts` are in order, with tokens as the trigger counts them.
    """
    run: list[ReductionAttempt] = []
    ended_close = 0
    before: ReductionAttempt | None = None
    for attempt in _joined(attempts):
        if attempt.tokens_before < MIN_THRESHOLD_SHARE * threshold:
            continue
        at_once = before is not None and attempt.seq - before.seq <= FEW_MESSAGES
        below, before = threshold - attempt.tokens_after, attempt
        if at_once or below < LITTLE * usable:
            run.append(attempt)
            ended_close += below < LITTLE * usable
        elif len(run) < MIN_BAD_ATTEMPTS or below >= CLEARLY * usable:
            run, ended_close = [], 0
    return _sentence(run, ended_close, threshold) if len(run) >= MIN_BAD_ATTEMPTS else None


def _joined(attempts: Sequence[ReductionAttempt]) -> list[ReductionAttempt]:
    joined: list[ReductionAttempt] = []
    for attempt in attempts:
        if joined and joined[-1].seq == attempt.seq:
            attempt = ReductionAttempt(attempt.seq, joined.pop().tokens_before, attempt.tokens_after)
        joined.append(attempt)
    return joined


def _sentence(run: Sequence[ReductionAttempt], ended_close: int, threshold: int) -> str:
    freed = sum(attempt.tokens_before - attempt.tokens_after for attempt in run) // len(run)
    finding = (
        f"The context oscillates near its threshold of {threshold:,} tokens: {len(run)} reductions within"
        f" {run[-1].seq - run[0].seq:,} messages freed {freed:,} tokens each on average, and"
        f" {run[-1].tokens_after:,} tokens are left"
    )
    if ended_close * 2 >= len(run):
        return (
            f"{finding}. These can hardly be reduced further: keep fewer recent messages, offer fewer tools, shorten"
            " the system prompt, use a model with a larger window, or start a new session with the summary."
        )
    return (
        f"{finding}, but the window fills again at once. Large outputs or files are the likely cause: limit the size of"
        " one output, or read files in parts."
    )


def worth_trying(attempts: Sequence[ReductionAttempt], tokens: int, messages: int, usable: int) -> bool:
    """Whether another attempt of the same kind as `attempts` may save enough to be worth it (the back-off).

    After an attempt that saved less than 5 % of `usable`, the context has to grow by 5 % of it, counted from what that
    attempt left; after each further one by twice as much, up to 40 %. An attempt that saved 10 % resets this; one
    between the two changes nothing. A context that exceeds `usable` cannot wait for growth: then 10 further messages
    are enough. `tokens` and `messages` are the present numbers. `attempts` must be of one kind: compactions, without
    the prunes among them, if the question is about a compaction.
    """
    wait = 0.0
    for attempt in attempts:
        saved = attempt.tokens_before - attempt.tokens_after
        if saved >= CLEARLY * usable:
            wait = 0.0
        elif saved < LITTLE * usable:
            wait = min(MAX_WAIT, 2 * wait or MIN_WAIT)
    if not wait:
        return True
    last = attempts[-1]
    if tokens > usable and messages - last.seq >= FEW_MESSAGES:
        return True
    return messages > last.seq and tokens - last.tokens_after >= wait * usable
