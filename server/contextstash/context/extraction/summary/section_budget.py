"""Divides a summary's token budget among its sections, so that no verbose section displaces an important one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.context.extraction.summary.headed_text import cut_at_headings
from contextstash.context.extraction.summary_format import Section, heading, write_item, write_summary
from contextstash.context.text.sanitize import encodable, one_line

Count = Callable[[str], int]

MIN_CUT = 12
"""An item is not cut to fewer tokens than this, but left out: a short sentence has more."""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry that may be part of a summary. The items of a section with the highest `weight` are added first; they
    are shown in the given order. So that it fits, the middle of an item with `cut` may be removed, whole paragraphs of
    one that is also `headed`, and the last names of one that is `listed`; an item without `cut` is shown as one line.
    `whole` is the text before it was shortened, which is shown instead if there is room for all of it."""

    text: str
    weight: float = 0.0
    cut: bool = False
    listed: bool = False
    headed: bool = False
    whole: str = ""


SHARES: Mapping[Section, float] = {
    Section.TASK: 0.20,
    Section.EARLIER: 0.30,
    Section.DECISIONS: 0.14,
    Section.DONE: 0.08,
    Section.TRIED: 0.30,
    Section.NAMES: 0.35,
    Section.ERRORS: 0.09,
    Section.FINDINGS: 0.22,
    Section.ARCHIVED: 0.06,
    Section.POINTERS: 0.06,
}
"""The share of the budget that each section gets at first, relative to the sum of the sections that exist. The
task, the findings and an earlier summary have the most text. What a section does not use goes to others, see REFILL."""

RESERVED: Mapping[Section, float] = {Section.OPEN: 0.25, Section.STATE: 0.16, Section.FILES: 0.30}
"""The share of the budget up to which these sections are filled before all others: a plan without some of its entries,
or a state without the last message, would be wrong. Both sections are usually much shorter."""

REFILL = (
    Section.OPEN,
    Section.TASK,
    Section.DECISIONS,
    Section.STATE,
    Section.FILES,
    Section.TRIED,
    Section.DONE,
    Section.NAMES,
    Section.ERRORS,
    Section.FINDINGS,
    Section.EARLIER,
    Section.ARCHIVED,
    Section.POINTERS,
)
"""The order in which the sections get unused budget: what cannot be found out again comes first."""


def fill(sections: Mapping[Section, Sequence[Item]], max_tokens: int, count: Count) -> str:
    """The text of the summary with as many items as fit into `max_tokens`; never longer."""
    present = {
        section: [replace(item, text=_shown(item)) for item in items] for section, items in sections.items() if items
    }
    chosen = _Chosen(present, count)
    heads = sum(count(f"\n\n{heading(section)}\n") for section in present)
    budget = max(0, max_tokens - heads)
    for section, share in RESERVED.items():
        if section in present:
            chosen.take(section, int(budget * share))
    others = [section for section in present if section not in RESERVED]
    left = budget - sum(chosen.spent.values())
    whole = sum(SHARES[section] for section in others)
    for section in others:
        chosen.take(section, int(left * SHARES[section] / whole))
    for section in REFILL:
        if section in present:
            chosen.take(section, chosen.spent[section] + budget - sum(chosen.spent.values()))
            if section is not Section.FILES:
                chosen.uncut(section, budget - sum(chosen.spent.values()))
    if Section.FILES in present:  # the names in changed files can be found out again, what follows in REFILL cannot
        chosen.uncut(Section.FILES, budget - sum(chosen.spent.values()))
    return chosen.text_within(max_tokens)


def _shown(item: Item) -> str:
    """The item's text; if it is no text of several lines, without line breaks: a file's name may hold a heading."""
    return encodable(item.text) if item.cut else one_line(item.text, len(item.text))


class _Chosen:
    """The items that are included, as they will be shown, and the tokens that each section has spent."""

    def __init__(self, sections: Mapping[Section, Sequence[Item]], count: Count) -> None:
        self._sections = sections
        self._count = count
        self._texts: dict[tuple[Section, int], str] = {}
        self._costs: dict[tuple[Section, int], int] = {}
        self.spent: dict[Section, int] = dict.fromkeys(sections, 0)

    def take(self, section: Section, share: int) -> None:
        """Add the section's items, highest weight first, until `share` tokens are spent on it."""
        items = self._sections[section]
        for index in sorted(range(len(items)), key=lambda index: -items[index].weight):
            place, item = (section, index), items[index]
            left = share - self.spent[section] + self._spent_on(place)
            text = self._texts.get(place, "")
            if text != item.text and left > self._spent_on(place):
                self._put(place, item, left)

    def uncut(self, section: Section, room: int) -> None:
        """Show the items of the section whole that were shortened, highest weight first, as far as `room` allows."""
        items = self._sections[section]
        for index in sorted(range(len(items)), key=lambda index: -items[index].weight):
            whole, place = encodable(items[index].whole), (section, index)
            more = self._cost(whole) - self._spent_on(place) if whole else 0
            if 0 < more <= room:
                room -= more
                self.spent[section] += more
                self._texts[place], self._costs[place] = whole, self._cost(whole)

    def _spent_on(self, place: tuple[Section, int]) -> int:
        return self._costs.get(place, 0) if place in self._texts else 0

    def _put(self, place: tuple[Section, int], item: Item, left: int) -> None:
        cost = self._cost(item.text)
        text = item.text
        if cost > left:
            text = _cut(item, left, self._cost) if left >= MIN_CUT else ""
            cost = self._cost(text)
        if text and cost <= left:
            self.spent[place[0]] += cost - self._spent_on(place)
            self._texts[place], self._costs[place] = text, cost

    def _cost(self, text: str) -> int:
        return self._count(write_item(text)) + 1

    def text_within(self, max_tokens: int) -> str:
        """The text. If it is too long when counted as a whole, items with the lowest weights are removed."""
        order = sorted(self._texts, key=lambda place: (-_rank(place[0]), self._sections[place[0]][place[1]].weight))
        text = self._text()
        for place in order:
            if self._count(text) <= max_tokens:
                return text
            del self._texts[place]
            text = self._text()
        return text if self._count(text) <= max_tokens else ""

    def _text(self) -> str:
        return write_summary(
            {
                section: [self._texts[section, index] for index in range(len(items)) if (section, index) in self._texts]
                for section, items in self._sections.items()
            }
        )


def _rank(section: Section) -> int:
    return REFILL.index(section)


def _cut(item: Item, max_tokens: int, count: Count) -> str:
    """The item's text in at most `max_tokens`; empty if it must not be cut so far."""
    if item.listed:
        return cut_list(item.text, max_tokens, count)
    if item.headed:
        return cut_at_headings(item.text, max_tokens, count, cut_middle)
    return cut_middle(item.text, max_tokens, count) if item.cut else ""


def cut_list(text: str, max_tokens: int, count: Count) -> str:
    """As many of the names as fit, which the text lists after a colon; empty if not even one fits."""
    head, _, listed = text.partition(": ")
    names = listed.split(", ")
    most = _most(len(names), lambda number: count(f"{head}: {', '.join(names[:number])}") <= max_tokens)
    return f"{head}: {', '.join(names[:most])}" if most else ""


def cut_middle(text: str, max_tokens: int, count: Count) -> str:
    """The start and the end of the text with `[…]` between them, at most `max_tokens`; two thirds are the start."""
    if count(text) <= max_tokens:
        return text
    bound = min(len(text), 16 * max(0, max_tokens))
    keep = _most(bound, lambda number: count(_without_middle(text, number)) <= max_tokens)
    shown = _without_middle(text, keep)
    return shown if keep and count(shown) <= max_tokens else ""


def _most(bound: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to a bound that fits, if smaller ones do too."""
    return bisect_left(range(1, bound + 1), True, key=lambda number: not fits(number))


_ENDS = re.compile(r"\n|[.!?][\"'”’)*`]*\s|[。！？]")
"""Where a sentence or a line ends."""


def _without_middle(text: str, keep: int) -> str:
    """About `keep` characters of the text, cut between sentences if one ends near, else between words."""
    tail = keep // 3
    start, end = text[: keep - tail], text[len(text) - tail :] if tail else ""
    stops = [match.end() for match in _ENDS.finditer(start, len(start) // 2)]
    start = start[: stops[-1] if stops else max(start.rfind(" "), len(start) - 40)]
    begins = [match.end() for match in _ENDS.finditer(end, 0, len(end) // 2)]
    spaces = [place for mark in " \n" if 0 <= (place := end.find(mark)) < 40]
    end = end[begins[0] if begins else min(spaces, default=0) :]
    return f"{start.rstrip()} […] {end.lstrip()}".rstrip()
