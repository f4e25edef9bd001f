"""The text of a file as far as a session shows it: lines that were read, with the edits since then applied to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from contextstash.context.tool_outputs.classifiers import DEFINITION

UNCHANGED = -1

MIN_RECOGNIZED = 8
"""Characters. A changed line that is read again is recognized by its text if it has at least as many: shorter ones,
such as a closing bracket, are everywhere. A guess."""


@dataclass(slots=True)
class Run:
    """Consecutive lines. `first` is the number of the first, 0 if their place in the file is unknown; `changed` is for
    each line the message with its newest change, UNCHANGED if there is none."""

    first: int
    lines: list[str]
    changed: list[int]

    @property
    def end(self) -> int:
        """The number after that of the last line."""
        return self.first + len(self.lines)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a file as they stand; `first` is 0 if their place is unknown."""

    first: int
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


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
        kept = [] if whole else [part for run in self.runs for part in _without(run, first, first + len(lines))]
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

    def replace(self, old: str, new: str, seq: int, *, everywhere: bool) -> None:
        """A text was replaced. If it is not among the known lines, the new one stands at an unknown place."""
        found = False
        for run in self.runs if old else ():
            places = _places(run, old)
            # From the last one on, so that the places before it stay where they are.
            for place in reversed(places if everywhere else places[:1]):
                self._put(run, place, old, new, seq)
            found = found or bool(places)
            if found and not everywhere:
                break
        if not found and new.strip():
            lines = new.strip("\n").split("\n")
            self.runs.append(Run(0, lines, [seq] * len(lines)))
            self.whole = False

    def _put(self, run: Run, place: int, old: str, new: str, seq: int) -> None:
        """Put the new text in the place of the old one."""
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

    def excerpts(self, edits: int | None = None, around: int = 0) -> list[Excerpt]:
        """The lines as they stand; of the newest `edits` changes only, with as many lines `around` each."""
        if edits is None:
            return [Excerpt(run.first, tuple(run.lines)) for run in self.runs]
        newest = set(sorted({seq for run in self.runs for seq in run.changed if seq != UNCHANGED})[-edits:])
        return [part for run in self.runs for part in _around(run, newest, around)]

    def changed_definitions(self) -> list[str]:
        """The names of the definitions in which the changes lie, the newest change first."""
        found: dict[str, int] = {}
        for run in self.runs:
            places = [(number, name) for number, line in enumerate(run.lines) for name in DEFINITION.findall(line)]
            numbers = [number for number, _ in places]
            for number, seq in enumerate(run.changed):
                above = bisect_right(numbers, number)
                if seq != UNCHANGED and above:
                    name = places[above - 1][1]
                    found[name] = max(seq, found.get(name, seq))
        return sorted(found, key=lambda name: -found[name])

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


def _without(run: Run, first: int, end: int) -> Iterator[Run]:
    """The parts of a run outside of these line numbers."""
    if not run.first:
        yield run
        return
    head = max(0, min(len(run.lines), first - run.first))
    tail = max(0, min(len(run.lines), end - run.first))
    if head:
        yield Run(run.first, run.lines[:head], run.changed[:head])
    if tail < len(run.lines):
        yield Run(run.first + tail, run.lines[tail:], run.changed[tail:])


def _joined(runs: Sequence[Run]) -> list[Run]:
    """The runs in order, those that adjoin as one."""
    joined: list[Run] = []
    for run in sorted(runs, key=lambda run: run.first):
        if joined and joined[-1].end == run.first:
            joined[-1].lines += run.lines
            joined[-1].changed += run.changed
        else:
            joined.append(Run(run.first, list(run.lines), list(run.changed)))
    return joined


def _around(run: Run, changes: set[int], around: int) -> Iterator[Excerpt]:
    """The lines with these changes and as many lines around them; excerpts that meet are one."""
    start = stop = -1
    for place, seq in enumerate(run.changed):
        if seq not in changes:
            continue
        if start >= 0 and place - around <= stop:
            stop = place + around + 1
            continue
        if start >= 0:
            yield _excerpt(run, start, stop)
        start, stop = max(0, place - around), place + around + 1
    if start >= 0:
        yield _excerpt(run, start, stop)


def _excerpt(run: Run, start: int, stop: int) -> Excerpt:
    return Excerpt(run.first + start if run.first else 0, tuple(run.lines[start:stop]))
