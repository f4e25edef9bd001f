"""Layouts: how the excerpt of an output that was cut is composed, and made as large as its limits allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextstash.outputs.measures import Split, UnitLimit, ends, head_and_tail
from contextstash.outputs.notices import Limited, NoticeWriter
from contextstash.outputs.salient_lines import rendered, salient_lines, select

MIDDLE_NOTICE_RESERVE = {"lines": 3, "characters": 50, "bytes": 50, "tokens": 0}
"""Characters that the middle-out cut leaves free on each side for its notice. The 50 come from the designs that the
presets `staged` and `token-budget` reproduce. They count a token as four characters, so tokens need no reserve."""

SLACK = 12
"""How much a notice may grow once its numbers are known, in characters, bytes and tokens. A few more digits
than in the sample notice; `fitted` measures the result anyway."""

SALIENT_SHARE = 0.3
"""Largest share of the budget that the salient lines take. The head and the tail keep the larger part."""

MAX_SNAP_SHARE = 0.25
"""Up to this share of an end is given up so that it consists of whole lines."""

SAMPLE = "x\n"

MAX_ATTEMPTS = 6
"""How often an excerpt is made smaller before a shorter notice is used. Each attempt removes the excess and a quarter
more, so that two are usually enough."""

Layout = Callable[[Sequence[UnitLimit], Sequence[int]], Limited | None]
"""`layout(limits, budgets)`: an excerpt of about that size, each budget in its limit's unit; None if the budgets are
too small for the notice and any text."""

Compose = Callable[[str, str], Limited]
"""`compose(first, last)`: the head and the tail of a text, with the notice."""


def fitted(limits: Sequence[UnitLimit], layout: Layout) -> Limited | None:
    """The layout's excerpt within every limit, None if there is none.

    The excerpt is measured as a whole, because the tokens of its pieces do not add up to its own.
    """
    budgets = [limit.maximum for limit in limits]
    for _ in range(MAX_ATTEMPTS):
        shown = layout(limits, budgets)
        if shown is None:
            return None
        excess = [limit.measure(shown.text) - limit.maximum for limit in limits]
        if max(excess) <= 0:
            return shown
        budgets = [budget - (over + over // 4 + 1) * (over > 0) for budget, over in zip(budgets, excess, strict=True)]
    return None


def plain(text: str, split: Split, compose: Compose) -> Layout:
    """The ends that `split` leaves, less the room for the notice that `compose` adds."""
    sample = compose(SAMPLE, "").text

    def layout(limits: Sequence[UnitLimit], budgets: Sequence[int]) -> Limited | None:
        inner = _budgets_for_text(limits, budgets, sample)
        return compose(*ends(text, limits, inner, split)) if inner else None

    return layout


def middle_out(writer: NoticeWriter) -> Layout:
    """Half of the limit from each end, less 50 characters."""

    def split(limit: UnitLimit, budget: int) -> tuple[int, int]:
        keep = budget // 2 - MIDDLE_NOTICE_RESERVE[limit.unit]
        return keep, keep

    def layout(limits: Sequence[UnitLimit], budgets: Sequence[int]) -> Limited | None:
        if any(split(limit, budget)[0] <= 0 for limit, budget in zip(limits, budgets, strict=True)):
            return None
        return writer.middle(*ends(writer.text, limits, budgets, split))

    return layout


def smart(writer: NoticeWriter) -> Layout:
    """Head and tail, and between them the salient lines with their numbers."""
    text = writer.text
    found = salient_lines(text)
    sample = writer.smart("…" if found else "", SAMPLE, "").text

    def layout(limits: Sequence[UnitLimit], budgets: Sequence[int]) -> Limited | None:
        inner = _budgets_for_text(limits, budgets, sample)
        if not inner:
            return None
        shares = [int(budget * SALIENT_SHARE) for budget in inner]
        first, last = _whole_lines(*ends(text, limits, _less(inner, shares), head_and_tail))
        selected = select(found, limits, shares, len(first), len(text) - len(last))
        # What the selected lines leave of their share goes to head and tail, which may then include some of them.
        used = [limit.measure(rendered(selected, 0)) for limit in limits]
        first, last = _whole_lines(*ends(text, limits, _less(inner, used), head_and_tail))
        shown = [line for line in selected if line.start >= len(first) and line.end <= len(text) - len(last)]
        return writer.smart(rendered(shown, first.count("\n")), first, last)

    return layout


def _budgets_for_text(limits: Sequence[UnitLimit], budgets: Sequence[int], sample: str) -> list[int]:
    """The budgets less the notice, whose size is that in the sample; an empty list if nothing is left of one."""
    inner = []
    for limit, budget in zip(limits, budgets, strict=True):
        notice = limit.measure(sample) - limit.measure(SAMPLE)
        left = budget - notice - SLACK * (limit.unit != "lines")
        if left <= 0:
            return []
        inner.append(left)
    return inner


def _less(budgets: Sequence[int], used: Sequence[int]) -> list[int]:
    return [budget - less for budget, less in zip(budgets, used, strict=True)]


def _whole_lines(first: str, last: str) -> tuple[str, str]:
    """Both ends without the partial line at the cut, unless it is a large part of the end."""
    end = first.rfind("\n") + 1
    start = last.find("\n") + 1
    if end < len(first) * (1 - MAX_SNAP_SHARE):
        end = len(first)
    if start > len(last) * MAX_SNAP_SHARE:
        start = 0
    return first[:end], last[start:]
