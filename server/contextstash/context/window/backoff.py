"""Oscillation: prunes and compactions that come again and again without making room, and when to try again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FEW_MESSAGES = 10
"""An attempt that comes within so many messages of the one before was refilled at once. Claude Code stops at three
refills within three turns each (its message on thrashing says so); a turn with parallel calls is about three
messages."""

TIMES = 3
"""So many bad attempts in a row are an oscillation: one or two can be a large file that was needed."""

NEAR = 0.9
"""From this share of the threshold on an attempt was made for want of room. Those that a count triggered, such as one
prune for each output after the tenth, come often by design and are no sign of anything."""

CLOSE = 0.05
"""An attempt that lands less than this share of usable below the threshold made next to no room."""

CLEAR = 0.10
"""One that lands this far below it, and did not come at once, ends an oscillation. What lies between `CLOSE` and this
ends none and begins none, so that the report does not come and go."""

LITTLE_SAVED = 0.05
"""An attempt that saved less than this share of usable saved too little."""

WELL_SAVED = 0.10
"""An attempt that saved this share of usable resets the back-off."""

FIRST_WAIT, MAX_WAIT = 0.05, 0.40
"""By which share of usable the context has to grow before the next attempt: after one that saved too little, doubled
by each further one, and at most."""


@dataclass(frozen=True, slots=True)
class ReductionAttempt:
    """One prune or compaction; `seq` is how many messages were recorded when it happened."""

    seq: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True)
class _Run:
    """The bad attempts in a row so far: how many came at once after another, and how many landed close."""

    attempts: tuple[ReductionAttempt, ...] = ()
    refilled: int = 0
    landed_close: int = 0

    @property
    def bad(self) -> int:
        return len(self.attempts)


def oscillation(attempts: Sequence[ReductionAttempt], threshold: int, usable: int) -> str | None:
    """A sentence that says so, with what to do, if the context oscillates near `threshold`; else None.

    It does where the last three attempts or more were bad: came within 10 messages of the one before, or landed less
    than 5 % of `usable` below the threshold. It ends with one that did neither and landed 10 % below. A prune and a
    compaction at the same message count as one attempt; those made far below the threshold do not count. Attempts are
    in order, tokens as the trigger counts them.
    """
    run = _Run()
    before: ReductionAttempt | None = None
    for attempt in _joined(attempts):
        if attempt.tokens_before < NEAR * threshold:
            continue
        run = _next(run, attempt, before, threshold, usable)
        before = attempt
    return _sentence(run, threshold) if run.bad >= TIMES else None


def _joined(attempts: Sequence[ReductionAttempt]) -> list[ReductionAttempt]:
    joined: list[ReductionAttempt] = []
    for attempt in attempts:
        if joined and joined[-1].seq == attempt.seq:
            attempt = ReductionAttempt(attempt.seq, joined.pop().tokens_before, attempt.tokens_after)
        joined.append(attempt)
    return joined


def _next(run: _Run, attempt: ReductionAttempt, before: ReductionAttempt | None, threshold: int, usable: int) -> _Run:
    at_once = before is not None and attempt.seq - before.seq <= FEW_MESSAGES
    below = threshold - attempt.tokens_after
    if at_once or below < CLOSE * usable:
        return _Run((*run.attempts, attempt), run.refilled + at_once, run.landed_close + (below < CLOSE * usable))
    return run if run.bad >= TIMES and below < CLEAR * usable else _Run()


def _sentence(run: _Run, threshold: int) -> str:
    span = run.attempts[-1].seq - run.attempts[0].seq
    freed = sum(attempt.tokens_before - attempt.tokens_after for attempt in run.attempts) // run.bad
    told = (
        f"The context oscillates near its threshold of {threshold:,} tokens: made smaller {run.bad} times within"
        f" {span:,} messages, by {freed:,} tokens each on average, it stands at"
        f" {run.attempts[-1].tokens_after:,} after it"
    )
    if run.landed_close * 2 >= run.bad:
        return (
            f"{told}. What is left can hardly be made smaller: keep fewer recent messages, have fewer tools and a"
            " shorter system prompt, take a model with a larger window, or begin a new session with the summary."
        )
    return (
        f"{told}, and fills again at once. Large outputs or files are the likely cause: limit what one output may hold,"
        " or have them read in parts."
    )


def worth_trying(attempts: Sequence[ReductionAttempt], tokens: int, messages: int, usable: int) -> bool:
    """Whether another attempt of the kind that `attempts` are may save enough to be worth it (the back-off).

    After one that saved less than 5 % of `usable`, the context has to grow by 5 % of it from if that one left it;
    after each further such one by twice as much, up to 40 %. One that saved 10 % resets this; one between changes
    nothing. A context that is over `usable` cannot wait for growth: there 10 further messages are enough.
    `tokens` and `messages` are those now. Pass compactions to ask for a compaction, not the prunes among them.
    """
    wait = 0.0
    for attempt in attempts:
        saved = attempt.tokens_before - attempt.tokens_after
        if saved >= WELL_SAVED * usable:
            wait = 0.0
        elif saved < LITTLE_SAVED * usable:
            wait = min(MAX_WAIT, 2 * wait or FIRST_WAIT)
    if not wait:
        return True
    last = attempts[-1]
    if tokens > usable and messages - last.seq >= FEW_MESSAGES:
        return True
    return messages > last.seq and tokens - last.tokens_after >= wait * usable
