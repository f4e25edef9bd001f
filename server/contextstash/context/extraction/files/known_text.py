"""The text of a file as far as a session shows it: lines that were read, with the edits since then applied to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

UNCHANGED = -1

MIN_RECOGNIZED = 8
"""Characters. A changed line that is read again is recognized by its text if it has at least as many: shorter ones,
such as a closing bracket, are everywhere."""


AGREEING = 2
"""Lines next to what was not read again that must be as they were known: one alone can be an edited one's neighbour."""


@dataclass(slots=True)
class Run:
    """Consecutive lines. `first` is the number of the first, 0 if their place in the file is unknown; `changed` is for
    each line the message with its newest change, UNCHANGED if there is none. `moved` is whether the lines may have
    other numbers by now, because lines were added or removed at a place that is not known."""

    first: int
    lines: list[str]
    changed: list[int]
    moved: bool = False

    @property
    def end(self) -> int:
        """The number after that of the last line."""
        return self.first + len(self.lines)


@dataclass(slots=True)
class KnownText:
    """The known lines of a file. `whole` is whether these are all of them."""

    runs: list[Run] = field(default_factory=list)
    whole: bool = False

    def show(self, first: int, lines: Sequence[str], *, whole: bool) -> None:
        """The file was read: these lines stand there now, whatever was known of them before."""
        before = self._changes()
        by_text = {text.strip(): seq for (_, text), seq in before.items() if len(text.strip()) >= MIN_RECOGNIZED}
        changed = [
            before.get((first + place, text), by_text.get(text.strip(), UNCHANGED)) for place, text in enumerate(lines)
        ]
        aligned = [] if whole else [run for run in self.runs if _align(run, first, lines)]
        kept = [part for run in aligned for part in _confirmed(run, first, lines)]
        # What was put in somewhere is somewhere in what was read now, or cannot be told from it.
        self.runs = _joined([*(run for run in kept if run.first), Run(first, list(lines), changed)])
        self.whole = whole or (self.whole and len(self.runs) == 1)

    def write(self, text: str, seq: int) -> None:
        """The file was written as a whole. If its lines were known, those that are new count as changed."""
        known = {line for run in self.runs for line in run.lines}
        lines = text.removesuffix("\n").split("\n")
        changed = [seq if known and line not in known else UNCHANGED for line in lines]
        self.runs, self.whole = [Run(1, lines, changed)], True

    def append(self, text: str, seq: int) -> None:
        """A text was added at the file's end."""
        lines = text.removesuffix("\n").split("\n")
        if self.whole and self.runs:
            self.runs[-1].lines += lines
            self.runs[-1].changed += [seq] * len(lines)
        else:
            self.runs.append(Run(0, lines, [seq] * len(lines)))

    def replace(
        self, old: str, new: str, seq: int, *, everywhere: bool = False, after: int = 0, below: str = ""
    ) -> int:
        """A text was replaced; returns the number of the line after the new one, 0 if that is unknown. The text is
        looked for from line `after` on, below a line that contains `below`; then anywhere. If it is not among the known
        lines, the new one stands at an unknown place."""
        places = [(run, place) for run in self.runs for place in _places(run, old)] if old else []
        if everywhere:
            # From the last one on, so that the places before it stay where they are.
            ends = [self._put(run, place, old, new, seq) for run, place in reversed(places)]
            found = bool(ends)
        else:
            after = max(after, self._line_with(below, after)) if below else after
            later = [(run, place) for run, place in places if run.first and _number(run, place) >= after]
            run, place = next(iter([*later, *places]), (None, 0))
            ends = [] if run is None else [self._put(run, place, old, new, seq)]
            found = run is not None
        if not found and new.strip():
            for run in self.runs:
                run.moved = run.moved or old.count("\n") != new.count("\n")
            lines = new.strip("\n").split("\n")
            self.runs.append(Run(0, lines, [seq] * len(lines)))
            self.whole = False
        return ends[0] if found else 0

    def _line_with(self, text: str, after: int) -> int:
        """The number of the first line from `after` on that contains a text, 0 if there is none."""
        numbers = (
            run.first + place
            for run in self.runs
            for place, line in enumerate(run.lines)
            if run.first and run.first + place >= after and text in line
        )
        return next(numbers, 0)

    def _put(self, run: Run, place: int, old: str, new: str, seq: int) -> int:
        """Put the new text in the place of the old one; returns the number of the line after it, 0 if unknown."""
        text = "\n".join(run.lines)
        start = text.count("\n", 0, place)
        stop = start + old.count("\n") + 1
        begin = text.rfind("\n", 0, place) + 1
        end = text.find("\n", place + len(old))
        tail = text[place + len(old) : len(text) if end < 0 else end]
        lines = f"{text[begin:place]}{new}{tail}".split("\n")
        before = run.lines[start:stop]
        marks = _marks(before, run.changed[start:stop], lines, seq)
        added = len(lines) - (stop - start)
        run.lines[start:stop], run.changed[start:stop] = lines, marks
        for other in self.runs:
            if other is not run and other.first > run.first > 0:
                other.first += added
        return run.first + start + new.count("\n") + 1 if run.first else 0

    def _changes(self) -> dict[tuple[int, str], int]:
        """The changed lines by their numbers and texts."""
        return {
            (run.first + place, text): seq
            for run in self.runs
            for place, (text, seq) in enumerate(zip(run.lines, run.changed, strict=True))
            if seq != UNCHANGED
        }


def _places(run: Run, old: str) -> list[int]:
    """Where a text stands in a run; occurrences do not overlap."""
    text = "\n".join(run.lines)
    places = []
    place = text.find(old)
    while place >= 0:
        places.append(place)
        place = text.find(old, place + len(old))
    return places


def _number(run: Run, place: int) -> int:
    """The number of the line at a place in a run's text."""
    for number, line in enumerate(run.lines, run.first):
        place -= len(line) + 1
        if place < 0:
            return number
    return run.end


def _marks(before: Sequence[str], marked: Sequence[int], after: Sequence[str], seq: int) -> list[int]:
    """The newest changes of lines that replace others: those equal at both ends are not changed."""
    marks = [seq] * len(after)
    most = min(len(before), len(after))
    head = next((place for place in range(most) if before[place] != after[place]), most)
    tail = next((place for place in range(most - head) if before[-1 - place] != after[-1 - place]), most - head)
    marks[:head] = marked[:head]
    if tail:
        marks[-tail:] = marked[-tail:]
    if head + tail >= len(after) and len(before) > len(after):
        # Lines were only removed: the line before them, or else the one after them, stands for the change.
        marks[max(0, head - 1)] = seq
    return marks


def _align(run: Run, first: int, lines: Sequence[str]) -> bool:
    """Give a run that may have moved its numbers by the lines that were read now; returns whether it may stay: not if
    it would overlap them with other lines."""
    if not run.moved or not run.first:
        return True
    numbers = {line: first + place for place, line in enumerate(lines) if len(line.strip()) >= MIN_RECOGNIZED}
    moves = Counter(
        numbers[line] - run.first - place for place, line in enumerate(run.lines) if line in numbers
    ).most_common(1)
    if moves:
        run.first, run.moved = max(1, run.first + moves[0][0]), False
    return bool(moves) or run.end <= first or run.first >= first + len(lines)


def _confirmed(run: Run, first: int, lines: Sequence[str]) -> Iterator[Run]:
    """The parts of a run before and after the lines that were read now, each only if the run agrees with what was read
    next to it: if not, something that the session does not show has moved or changed them."""
    end = first + len(lines)
    shared = [
        run.lines[number - run.first] == lines[number - first]
        for number in range(max(first, run.first), min(end, run.end) if run.first else 0)
        if len(lines[number - first].strip()) >= MIN_RECOGNIZED
    ]
    for part in _without(run, first, end):
        near = shared[:AGREEING] if part.first < first else shared[-AGREEING:]
        if not part.first or all(near):
            yield part


def _without(run: Run, first: int, end: int) -> Iterator[Run]:
    """The parts of a run outside of these line numbers."""
    if not run.first:
        yield run
        return
    head = max(0, min(len(run.lines), first - run.first))
    tail = max(0, min(len(run.lines), end - run.first))
    if head:
        yield Run(run.first, run.lines[:head], run.changed[:head], run.moved)
    if tail < len(run.lines):
        yield Run(run.first + tail, run.lines[tail:], run.changed[tail:], run.moved)


def _joined(runs: Sequence[Run]) -> list[Run]:
    """The runs in order, those that adjoin as one."""
    joined: list[Run] = []
    for run in sorted(runs, key=lambda run: run.first):
        if joined and joined[-1].end == run.first and joined[-1].moved == run.moved:
            joined[-1].lines += run.lines
            joined[-1].changed += run.changed
        else:
            joined.append(Run(run.first, list(run.lines), list(run.changed), run.moved))
    return joined
