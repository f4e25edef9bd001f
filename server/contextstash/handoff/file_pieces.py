"""The texts of the files in use, for the next edit: the functions that were changed or are spoken of, as they stand.

    pieces_of_files(known_files(turns), 2_000, count, focus_of(turns))

Measured on recorded compactions (docs/measured.md): the functions that the newest messages speak of hold the old lines
of the next edit more often than the surroundings of the newest edits do, and those of files that were only read too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from contextstash.events.calls import calls_of
from contextstash.events.files import KnownPaths, uses_of
from contextstash.events.kinds import FileUse, Replaced, Shown, Told
from contextstash.events.names import names_of
from contextstash.events.shell import as_run, sweep_of
from contextstash.events.turns import Turn
from contextstash.handoff.fill import Count
from contextstash.outputs.digest import DEFINITION
from contextstash.safety.sanitize import one_line
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

NEWEST_FILES = 2
"""Of how many files, those changed last, the newest change is shown before all else: often code and its test."""

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

REPEATED_SHARE = 0.3
"""A piece of whose lines no more than this share are new is left out: another part of the file shows them."""

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
    one had when it was read, 0 if it is not known."""

    lines: list[str]
    changed: list[int]
    first: int = 0


@dataclass(slots=True)
class KnownFile:
    """What a session shows of a file, in messages up to `changed_at` and `read_at`; -1 if there is none. `whole` is
    whether the one run is all of it. `unseen` is the command that changed it since, or may have, in a way that no call
    shows, and no read since.
    `handle` is that of the newest read's output."""

    path: str
    runs: list[Run] = field(default_factory=list)
    whole: bool = False
    unseen: Told | None = None
    changed_at: int = -1
    read_at: int = -1
    handle: str | None = None

    def show(self, shown: Shown, seq: int) -> None:
        """Take over what a read printed: newer than all that is known of these lines."""
        new = Run([*shown.lines], [UNCHANGED] * len(shown.lines), shown.first)
        marks = {line: seq for run in self.runs for line, seq in zip(run.lines, run.changed, strict=True) if seq >= 0}
        new.changed = [marks.get(line, UNCHANGED) for line in new.lines]
        older = [] if shown.whole or self.unseen else [*self._around(new)]
        self.runs = [*older, new][-MAX_RUNS:]
        self.whole, self.unseen, self.read_at = shown.whole, None, seq

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
            self.whole, self.unseen = not appended, self.unseen if appended else None

    def replace(self, changes: Iterable[Replaced], seq: int) -> None:
        """Put new texts in the places of the old ones. Where that is not certain, what may be the place is not known
        any more, and the new text stands alone."""
        below = (self.runs[0], 0) if self.whole and self.runs else None
        for change in changes:
            places = self._places(change, below)
            for run, place in reversed(places):
                _put(run, place, change, seq)
            if not places and change.new != change.old:
                self._put_aside(change, seq)
            below = (places[0][0], places[0][1] + len(change.new)) if len(places) == 1 else None

    def _places(self, change: Replaced, below: tuple[Run, int] | None) -> list[tuple[Run, int]]:
        """Where a change was made, as far as it is certain. A patch is applied downwards, so that it is the first place
        behind the last certain one, `below`, in the same run: no unknown lines are between."""
        found = [(run, place) for run in self.runs for place in _places(run, change)]
        if not change.patched:
            return found if change.everywhere or len(found) == 1 else []
        after = [(run, place) for run, place in found if below and run is below[0] and place >= below[1]]
        lines = _telling(change.old.split("\n"))
        sure = len(found) == 1 and (len(lines) >= MIN_SAME_LINES or DEFINITION.search(change.old))
        return after[:1] or (found if sure else [])

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


def _without(run: Run, gone: Sequence[bool]) -> Iterator[Run]:
    """The parts of a run that are not gone."""
    for start, stop in _kept(gone):
        yield Run(run.lines[start:stop], run.changed[start:stop], run.first + start if run.first else 0)


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
        by = Told(call.seq, one_line(as_run(call.command or call.tool), 24).replace("`", "'"))
        _sweep(files, "" if call.refused else call.command or "", call.seq)
        for use in uses:
            path, was = paths.of(use.path), paths.of(use.was) if use.was else ""
            _use(files, path, was, use, by)
            if use.shown is not None:
                files[path].handle = call.handle
    return sorted(files.values(), key=lambda file: (-file.changed_at, -file.read_at))


def _sweep(files: Mapping[str, KnownFile], command: str, seq: int) -> None:
    """What a command may have changed is known as it was before; what was stashed comes back as it was."""
    by, named = sweep_of(command) or ("", ())
    for path, file in files.items() if by else ():
        if "git stash pop" in command or "git stash apply" in command:
            file.unseen = None if file.unseen and file.unseen.text == "git stash" else file.unseen
        elif not named or path.endswith(named):
            file.unseen = file.unseen or Told(seq, one_line(by, 24))


def _use(files: dict[str, KnownFile], path: str, was: str, use: FileUse, by: Told) -> None:
    if use.staged or (not use.changes and use.shown is None):
        return
    if use.verb in ("deleted", "restored", "stashed"):
        files.pop(path, None)
        return
    if was:
        old = files.get(was) if use.verb == "created" else files.pop(was, None)
        runs = [Run([*run.lines], [*run.changed], run.first) for run in old.runs] if old else []
        files[path] = KnownFile(path, runs, bool(old and old.whole), old.unseen if old else None)
    file = files.setdefault(path, KnownFile(path))
    if use.shown is not None:
        file.show(use.shown, by.seq)
        return
    if use.text is not None:
        file.write(use.text, by.seq, appended=use.appended)
    elif not use.replaced and not was:
        file.unseen = by
    file.replace(use.replaced, by.seq)
    file.changed_at = by.seq


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
    """The known texts of files as they stand, in at most `max_tokens`: the newest edits, then the functions that were
    edited lately and those that contain or define names in `focus`. Empty if nothing fits. A piece counts less the more
    of its lines are in `seen`, which the view shows anyway. Paths are told from `folder`, if they are in it."""
    pieces = [piece for piece in _weighted(files, focus or {}, count, seen) if piece.weight > 0]
    changed = [file for file in files if file.changed_at >= 0][:NEWEST_FILES]
    first = {
        each.place
        for each in pieces
        if each.file in changed and each.file.changed_at in each.run.changed[each.start : each.stop]
    }
    chosen: list[_Piece] = []
    left = max_tokens
    told: dict[str, set[str]] = {}
    for piece in sorted(pieces, key=lambda each: (each.place not in first, -each.weight / each.tokens**0.5)):
        lines = set(_telling(piece.run.lines[piece.start : piece.stop]))
        shown = told.setdefault(piece.file.path, set())
        if piece.tokens <= left and (not lines or len(lines - shown) > len(lines) * REPEATED_SHARE):
            chosen.append(piece)
            left -= piece.tokens
            shown |= lines
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
        own = _joined(sorted((each for each in pieces if each.file is file), key=lambda each: each.place))
        if own:
            run, start, stop = own[0]
            rest = "".join([*run.lines[:start], *run.lines[stop:]])
            note = ", whole" if file.whole and len(own) == 1 and not rest.strip() else ""
            note += f" (perhaps changed since, by `{file.unseen.text}` in {file.unseen.seq})" if file.unseen else ""
            text = f"\n{GAP}\n".join("\n".join(run.lines[start:stop]) for run, start, stop in own)
            parts.append(_fenced(f"`{file.path.removeprefix(folder)}`{note}:", text))
    return "\n".join(parts)


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
