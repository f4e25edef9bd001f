"""The texts of the files in use, for the next edit: the functions that were changed or are spoken of, as they stand.

    pieces_of_files(known_files(turns), 2_000, count, focus_of(turns))

Measured on recorded compactions (docs/measured.md): the functions that the newest messages speak of hold the old lines
of the next edit more often than the surroundings of the newest edits do, and those of files that were only read too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from contextstash.events.calls import Call, calls_of
from contextstash.events.files import KnownPaths, uses_of
from contextstash.events.kinds import FileUse, Replaced, Shown
from contextstash.events.names import names_of
from contextstash.events.turns import Turn
from contextstash.handoff.fill import Count
from contextstash.outputs.digest import DEFINITION
from contextstash.safety.secret_masks import has_mask

FOCUS_TURNS = 48
"""How many of the newest turns say what the work is about, the newest most. After 41 compactions of 13 recorded
sessions all old lines of 65.9 % of the next edits were in a window of 20,000 tokens, with 16 turns of 62.0 and with 140
of 65.9; in a hand-off of 5,000 of 29.5 and 26.4 %."""

OUTPUT_WEIGHT = 0.2
"""What a name in an output says about the work, compared with 1 for one that the agent or the user wrote."""

NAMED, DEFINED = 0.3, 0.9
"""What a name of the focus counts if a piece contains it, and in addition if the piece defines it; an edit in the piece
counts up to 1. Measured with bench/fidelity: a third of it finds a tenth fewer of the next edits."""

UNUSED = 0.01
"""The weight of a piece that neither was edited nor contains a name of the focus: it fills what room is left."""

DECAY = 0.3
"""An edit or read counts less with its age, in messages, to this power: as for names in use."""

MAX_PIECE_LINES = 30
"""A longer function is divided, at an empty line if there is one. Measured: 15 and 60 find a little less."""

MIN_PIECE_LINES = 2
"""Telling lines that a piece has. A shorter one, such as the head of a class, stays with what is next to it."""

MIN_SAME_LINES = 2
"""So many telling lines in a row that a newer read shows, too, are the same place of the file."""

MIN_TELLING = 6
"""Characters of a line that tells something: shorter ones, such as a bracket, are everywhere."""

MAX_RUNS, MAX_CHARACTERS = 60, 400_000
"""Parts that are known of one file, the newest, and characters of all: it bounds the work on a file that is edited
thousands of times."""

MAX_BETWEEN = 4
"""Lines between two pieces that are shown as well: they take less room than a new head, and read as one text."""

GAP = "[…]"
"""Between two pieces of a file."""

HEAD_TOKENS = 6
"""What a piece costs in addition to its text: its part of the head line and the fences."""

UNCHANGED = -1
"""In place of the message with the newest change of a line that no call changed."""


@dataclass(slots=True)
class Run:
    """Consecutive lines of a file, each with the message of its newest change. `first` is the number that the first
    one had when it was read in message `read_at`, 0 if it is not known."""

    lines: list[str]
    changed: list[int]
    first: int = 0
    read_at: int = -1

    @property
    def at(self) -> int:
        """The message up to which the lines are known."""
        return max(self.read_at, *self.changed)


@dataclass(slots=True)
class KnownFile:
    """What a session shows of a file, in messages up to `changed_at` and `read_at`; -1 if there is none. `whole` is
    whether the one run is all of it. `handle` is that of the newest read's output."""

    path: str
    runs: list[Run] = field(default_factory=list)
    whole: bool = False
    changed_at: int = -1
    read_at: int = -1
    handle: str | None = None

    def show(self, shown: Shown, seq: int) -> None:
        """Take over what a read printed: newer than all that is known of these lines."""
        new = Run([*shown.lines], [UNCHANGED] * len(shown.lines), shown.first, seq)
        marks = {line: seq for run in self.runs for line, seq in zip(run.lines, run.changed, strict=True) if seq >= 0}
        new.changed = [marks.get(line, UNCHANGED) for line in new.lines]
        older = [] if shown.whole else [*self._around(new)]
        self.runs = [*older, new][-MAX_RUNS:]
        self.whole, self.read_at = shown.whole, seq

    def _around(self, new: Run) -> Iterator[Run]:
        """The parts of the known runs that a newer read does not show, by their numbers or by their lines."""
        known = {line.strip() for line in new.lines}
        end = new.first + len(new.lines)
        for run in self.runs:
            gone = [
                bool(run.first and new.first and new.first <= run.first + place < end)
                for place, line in enumerate(run.lines)
            ]
            # Elsewhere, some lines in a row are the same place; one alone, such as `return nil`, is in many places.
            for start, stop in _kept([line.strip() not in known for line in run.lines]):
                if len(_telling(run.lines[start:stop])) >= MIN_SAME_LINES:
                    gone[start:stop] = [True] * (stop - start)
            yield from _without(run, gone)

    def write(self, text: str, seq: int, *, appended: bool = False) -> None:
        """Take over what was written, as the whole file or at its end."""
        lines = text.removesuffix("\n").split("\n")
        if appended and self.whole and self.runs:
            self.runs[0].lines += lines
            self.runs[0].changed += [seq] * len(lines)
        else:
            older = self.runs if appended else []
            self.runs = [*older, Run(lines, [seq] * len(lines), 0 if appended else 1)]
            self.whole = not appended

    def replace(self, change: Replaced, seq: int) -> None:
        """Put the new text in the place of the old one. If that is not certain, what may be the place is not known any
        more, and the new text stands alone."""
        places = [(run, place) for run in self.runs for place in _places(run, change)]
        sure = not change.patched or _tells_place(change.old)
        if places and (change.everywhere or (len(places) == 1 and sure)):
            for run, place in reversed(places):
                _put(run, place, change, seq)
        elif change.new != change.old:
            self._put_aside(change, seq)

    def forget(self, number: int, line: str) -> None:
        """Leave out what a search or diff contradicts: a `line` that is gone, or the run that has another one at this
        number and this one nowhere."""
        if not _telling([line]):
            return
        if not number:
            self.runs = [part for run in self.runs for part in _without(run, [each == line for each in run.lines])]
        elif not any(line in run.lines for run in self.runs):
            read = [
                run for run in self.runs if run.first and run.read_at > self.changed_at
            ]  # a change moves the numbers
            stale = [run for run in read if run.first <= number < run.first + len(run.lines)]
            self.runs = [run for run in self.runs if run not in stale]
        self.whole = self.whole and len(self.runs) == 1

    def _put_aside(self, change: Replaced, seq: int) -> None:
        new, old = change.new.strip("\n").split("\n"), change.old.split("\n")
        known, stays = {*_telling(old)}, {line.strip() for line in new}
        runs: list[Run] = []
        for run in self.runs:
            # Where several stand, it may be the place: what stays of it the new text shows, with what came in between.
            is_near = len(known.intersection(map(str.strip, run.lines))) >= MIN_SAME_LINES
            gone = known if is_near else known - stays
            leaves = [line.strip() in gone for line in run.lines]
            for place in _places(run, change):
                start = "\n".join(run.lines).count("\n", 0, place)
                leaves[start : start + len(old)] = [True] * len(old)
            runs += _without(run, leaves)
        added = [Run(new, [seq] * len(new))] if change.new.strip() else []
        self.runs, self.whole = [*runs, *added][-MAX_RUNS:], False


def _tells_place(old: str) -> bool:
    """Whether the old lines of a patch say where they are: `}` alone does not."""
    return len(_telling(old.split("\n"))) >= MIN_SAME_LINES or bool(DEFINITION.search(old))


def _without(run: Run, gone: Sequence[bool]) -> Iterator[Run]:
    """The parts of a run that are not gone."""
    for start, stop in _kept(gone):
        first = run.first + start if run.first else 0
        yield Run(run.lines[start:stop], run.changed[start:stop], first, run.read_at)


def _kept(gone: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The stretches that are not gone."""
    start = 0
    for place in range(len(gone) + 1):
        if place == len(gone) or gone[place]:
            if place > start:
                yield start, place
            start = place + 1


def _places(run: Run, change: Replaced) -> list[int]:
    """Where an old text stands in a run, of a patch as whole lines; occurrences do not overlap."""
    end = "\n" if change.patched else ""
    text, old = end + "\n".join(run.lines) + end, end + change.old + end
    places = []
    place = text.find(old) if change.old else -1
    while place >= 0:
        places.append(place)
        place = text.find(old, place + len(change.old))
    return places


def _put(run: Run, place: int, change: Replaced, seq: int) -> None:
    text, old = "\n".join(run.lines), change.old
    start = text.count("\n", 0, place)
    stop = start + old.count("\n") + 1
    begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place + len(old))
    tail = text[place + len(old) : len(text) if end < 0 else end]
    lines = f"{text[begin:place]}{change.new}{tail}".split("\n")
    before = dict(zip(run.lines[start:stop], run.changed[start:stop], strict=True))
    marks = [before.get(line, seq) for line in lines]
    if seq not in marks and marks:  # lines were only removed: the first that is left stands for the change
        marks[0] = seq
    run.lines[start:stop], run.changed[start:stop] = lines, marks


def known_files(turns: Sequence[Turn]) -> list[KnownFile]:
    """The files that these turns read or changed and that are there, the newest change first, then the newest read."""
    files: dict[str, KnownFile] = {}
    paths = KnownPaths(files)
    calls = calls_of(turns)
    for call, uses in zip(calls, uses_of(calls), strict=True):
        for use in uses:
            path, was = paths.of(use.path), paths.of(use.was) if use.was else ""
            _use(files, path, was, use, call)
        for named, number, line in _told_otherwise(call):
            if (file := files.get(paths.of(named))) is not None:
                file.forget(number, line)
    return sorted(files.values(), key=lambda file: (-file.changed_at, -file.read_at))


_DIFF_LINE = re.compile(
    r"^(?:\+\+\+ (?:b/)?(?P<path>[^\t\n]{1,300})|-(?!--)(?P<line>.*)|(?P<stays>[+ ].*))$", re.MULTILINE
)
_FOUND_LINE = re.compile(r"^(?P<path>[\w./@+-]{1,200}\.\w{1,10}):(?P<number>\d{1,7}):(?P<line>.*)$", re.MULTILINE)


def _told_otherwise(call: Call) -> Iterator[tuple[str, int, str]]:
    """What the output of a search or of a diff says of files: the path, a number and the line that stands there; or 0
    and a line that no longer stands."""
    if call.command is None or call.output is None or len(call.output.text) > MAX_CHARACTERS:
        return
    if "diff" in call.command:
        path, stays = "", {found["stays"][1:] for found in _DIFF_LINE.finditer(call.output.text) if found["stays"]}
        for found in _DIFF_LINE.finditer(call.output.text):
            path = found["path"] or path
            if path and found["line"] and found["line"] not in stays:
                yield path, 0, found["line"]
        return
    for found in _FOUND_LINE.finditer(call.output.text):
        yield found["path"], int(found["number"]), found["line"]


def _use(files: dict[str, KnownFile], path: str, was: str, use: FileUse, call: Call) -> None:
    if use.staged or (not use.changes and use.shown is None):
        return
    shows = use.shown is not None or use.text is not None or use.replaced or was
    if not shows:  # deleted, put back, or changed in a way that no call shows
        files.pop(path, None)
        return
    if was:
        old = files.get(was) if use.verb == "created" else files.pop(was, None)
        runs = [replace(run, lines=[*run.lines], changed=[*run.changed]) for run in old.runs] if old else []
        files[path] = KnownFile(path, runs, bool(old and old.whole))
    file = files.setdefault(path, KnownFile(path))
    if use.shown is not None:
        file.show(use.shown, call.seq)
        file.handle = call.handle
        return
    if use.text is not None:
        file.write(use.text, call.seq, appended=use.appended)
    for change in use.replaced:
        file.replace(change, call.seq)
    file.changed_at = call.seq


def focus_of(turns: Sequence[Turn]) -> dict[str, float]:
    """The names in code that the newest turns speak of, each with its weight."""
    weights: Counter[str] = Counter()
    for age, turn in enumerate(reversed(turns[-FOCUS_TURNS:]), 1):
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            weight = 1.0 if block.type in ("text", "tool_call") else OUTPUT_WEIGHT
            for name in names_of(text) if turn.role != "system" and turn.kind == "message" else ():
                weights[name] += weight * age**-0.5
    return dict(weights)


_BEFORE_LINE = re.compile(r"^\s*(?:\d{1,7}[→\t:|-]|[+>])")
"""What stands before a line of a file in a read, a search or a diff."""

_JSON_STRING_END = re.compile(r"(?<!\\)\"\s*[:,}]\s*\"?")


def lines_shown(turns: Iterable[Turn]) -> set[str]:
    """The lines that these turns show, without the spaces around them: as they are, without their numbers, and those
    that a diff or an edit adds."""
    found: set[str] = set()
    for turn in turns:
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if block.type == "tool_call":
                # The arguments are written as JSON: a line of its own for each of its strings.
                text = _JSON_STRING_END.sub("\n", text).replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
            for line in text.split("\n"):
                found |= {line.strip(), _BEFORE_LINE.sub("", line).strip()}
    return found


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines of a run of a file. `place` orders the pieces of all files."""

    place: int
    file: KnownFile
    run: Run
    start: int
    stop: int
    weight: float
    tokens: int


def pieces_of_files(
    files: Sequence[KnownFile],
    max_tokens: int,
    count: Count,
    focus: Mapping[str, float] | None = None,
    seen: Collection[str] = (),
    folder: str = "",
) -> str:
    """The known texts of files as they stand, in at most `max_tokens`: the functions that were edited lately, and those
    that contain or define names in `focus`. Empty if nothing fits. A piece counts less the more of its lines are in
    `seen`, which the view shows anyway. Paths are told from `folder`, if they are in it."""
    pieces = [piece for piece in _weighted(files, focus or {}, count, seen) if piece.weight > 0]
    chosen: list[_Piece] = []
    left = max_tokens
    for piece in sorted(pieces, key=lambda each: -each.weight / each.tokens**0.5):
        if piece.tokens <= left:
            chosen.append(piece)
            left -= piece.tokens
    text = _written(files, chosen, folder)
    while chosen and count(text) > max_tokens:  # the paths are longer than estimated
        del chosen[-max(1, len(chosen) // 8) :]
        text = _written(files, chosen, folder)
    return text


def _weighted(
    files: Sequence[KnownFile], focus: Mapping[str, float], count: Count, seen: Collection[str]
) -> Iterator[_Piece]:
    newest = max((max(file.changed_at, file.read_at) for file in files), default=0)
    number = 0
    for file in files:
        used = (1 + newest - max(file.changed_at, file.read_at)) ** -DECAY
        for run in _bounded(file.runs):
            for start, stop in _parts(run):
                text = "\n".join(run.lines[start:stop])
                weight = used * _weight(text, run.changed[start:stop], newest, focus)
                weight *= _unseen(run.lines[start:stop], seen)
                yield _Piece(number, file, run, start, stop, weight, count(text) + HEAD_TOKENS)
                number += 1


def _bounded(runs: Sequence[Run]) -> list[Run]:
    """The newest runs up to MAX_CHARACTERS."""
    kept: list[Run] = []
    size = 0
    for run in reversed(runs):
        size += sum(map(len, run.lines))
        if kept and size > MAX_CHARACTERS:
            break
        kept.insert(0, run)
    return kept


_WORD = re.compile(r"\w+")


def _weight(text: str, changed: Sequence[int], newest: int, focus: Mapping[str, float]) -> float:
    edited = [(1 + max(0, newest - seq)) ** -DECAY for seq in changed if seq != UNCHANGED]
    named = sum(focus[word] for word in set(_WORD.findall(text)) if word in focus)
    defined = sum(focus.get(name, 0.0) for name in set(DEFINITION.findall(text)))
    return max(edited, default=0.0) + NAMED * named + DEFINED * defined + UNUSED


def _unseen(lines: Sequence[str], seen: Collection[str]) -> float:
    told = _telling(lines)
    return sum(line not in seen for line in told) / len(told) if seen and told else 1.0


def _telling(lines: Iterable[str]) -> list[str]:
    return [line for line in map(str.strip, lines) if len(line) >= MIN_TELLING]


_ABOVE = re.compile(r"\s*(?://|#|@|\*|/\*|--)")
"""How a line begins that belongs to the definition below it: a comment, a decorator."""


def _parts(run: Run) -> Iterator[tuple[int, int]]:
    """The pieces of a run: each definition with the comments above it, long ones divided; without empty lines around
    them, without what tells nothing, and without the lines in which a secret is masked: a model that edits them, or
    writes the file as it is shown, would put the mask in the place of the secret."""
    starts = [0]
    for place, line in enumerate(run.lines):
        if DEFINITION.match(line) and place:
            start = place
            while start > starts[-1] and _ABOVE.match(run.lines[start - 1]):
                start -= 1
            if len(_telling(run.lines[starts[-1] : start])) >= MIN_PIECE_LINES:
                starts.append(start)
    for start, stop in zip(starts, [*starts[1:], len(run.lines)], strict=True):
        for first, last in _divided(run.lines, start, stop):
            for low, high in _kept([has_mask(line) for line in run.lines[first:last]]):
                filled = [place for place in range(first + low, first + high) if run.lines[place].strip()]
                told = _telling(run.lines[place] for place in filled)
                own = run.changed[first + low : first + high]
                if len(told) >= MIN_PIECE_LINES or (filled and (run.first + first <= 1 or max(own) >= 0)):
                    yield filled[0], filled[-1] + 1


def _divided(lines: Sequence[str], start: int, stop: int) -> Iterator[tuple[int, int]]:
    # A rest of a few lines stays with what precedes it.
    while stop - start > MAX_PIECE_LINES * 4 // 3:
        ends = range(start + MAX_PIECE_LINES, start + MAX_PIECE_LINES // 3, -1)
        end = next((place for place in ends if not lines[place - 1].strip()), start + MAX_PIECE_LINES)
        yield start, end
        start = end
    yield start, stop


def _written(files: Sequence[KnownFile], pieces: Sequence[_Piece], folder: str) -> str:
    """The pieces by file, each file's in one fence, with a mark in the places of what is not shown."""
    parts = []
    for file in files:
        own = _joined(sorted((each for each in pieces if each.file is file), key=_in_file))
        if own:
            run, start, stop = own[0]
            rest = "".join([*run.lines[:start], *run.lines[stop:]])
            whole = "whole, " if file.whole and len(own) == 1 and not rest.strip() else ""
            text = "\n".join(run.lines[start:stop])
            for (before, *_), (each, first, last) in pairwise(own):
                gap = GAP if each is before else f"[… message {each.at}]"
                text += "\n".join(["", gap, *each.lines[first:last]])
            parts.append(_fenced(f"`{file.path.removeprefix(folder)}`, {whole}message {run.at}:", text))
    return "\n".join(parts)


def _in_file(piece: _Piece) -> tuple[int, int]:
    """By what pieces are ordered: the number that their first line had, those without one behind all others."""
    return piece.run.first + piece.start if piece.run.first else UNKNOWN, piece.place


UNKNOWN = 10_000_000
"""In place of a line's number. No file has as many lines."""


def _joined(pieces: Iterable[_Piece]) -> list[tuple[Run, int, int]]:
    parts: list[tuple[Run, int, int]] = []
    for piece in pieces:
        last = parts[-1] if parts else None
        between = piece.run.lines[last[2] : piece.start] if last and last[0] is piece.run else []
        near = len(between) <= MAX_BETWEEN and not any(map(has_mask, between))
        if last and last[0] is piece.run and (near or not any(map(str.strip, between))):
            parts[-1] = (last[0], last[1], piece.stop)
        else:
            parts.append((piece.run, piece.start, piece.stop))
    return parts


_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)


def _fenced(head: str, text: str) -> str:
    fence = "`" * (1 + max(map(len, _FENCE.findall(text)), default=2))
    return f"{head}\n{fence}\n{text}\n{fence}"
