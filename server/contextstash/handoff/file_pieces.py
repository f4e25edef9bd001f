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

from contextstash.events.calls import Call, calls_of, moves_of
from contextstash.events.files import TO_THE_END, KnownPaths, file_uses
from contextstash.events.names import names_of
from contextstash.events.sentences import GAP
from contextstash.events.turns import FileUse, Replaced, Shown, Turn
from contextstash.handoff.fill import Count
from contextstash.outputs.digest import DEFINITION
from contextstash.safety.secret_masks import has_mask

FOCUS_TURNS = 48
"""How many of the newest turns say what the work is about, the newest most. After 41 compactions of 13 recorded
sessions all old lines of 65.9 % of the next edits were in a window of 20,000 tokens, with 16 turns of 62.0 and with 140
of 65.9; in a hand-off of 5,000 of 29.5 and 26.4 %."""

OUTPUT_WEIGHT, UNUSED = 0.2, 0.01
"""What a name in an output says about the work, compared with 1 for one that the agent or the user wrote; and the
weight of a piece that neither was edited nor contains a name of the focus: it fills what room is left."""

NAMED, DEFINED = 0.3, 0.9
"""What a name of the focus counts if a piece contains it, and in addition if the piece defines it; an edit in the piece
counts up to 1. Measured with bench/fidelity: a third of it finds a tenth fewer of the next edits."""

DECAY = 0.3
"""An edit or read counts less with its age, in messages, to this power: as for names in use."""

MAX_PIECE_LINES, MIN_PIECE_LINES, MIN_SAME_LINES, MIN_TELLING = 30, 2, 2, 6
"""A longer function is divided: 15 and 60 find a little less. Telling lines that a piece has: a shorter one, such as
the head of a class, stays with what is next to it. So many in a row that a newer read shows, too, are the same place of
the file. Characters of a telling line: shorter ones, such as a bracket, are everywhere."""

MAX_CHUNKS = 60
"""Parts that are known of one file, the newest: it bounds the work on a file that is edited thousands of times."""

_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)

HEAD_TOKENS = 6
"""What a piece costs in addition to its text: its part of the head line and the fences."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive lines of a file as they stood at message `seq`. `first` is the number of the first one when it was
    read, 0 if it is not known."""

    lines: Sequence[str]
    seq: int
    first: int = 0

    def without(self, gone: Sequence[bool]) -> Iterator[Chunk]:
        """The parts of it whose lines are not gone."""
        for start, stop in _kept(gone):
            yield Chunk(self.lines[start:stop], self.seq, self.first + start if self.first else 0)


@dataclass(slots=True)
class KnownFile:
    """What a session shows of a file, in messages up to `changed_at` and `read_at`; -1 if there is none. `edited` are
    the lines that calls put in, each with the newest message that did. `whole` is whether the one chunk is all of it,
    `moved` the message and the newest command of Git that took other versions of many files."""

    path: str
    chunks: list[Chunk] = field(default_factory=list)
    edited: dict[str, int] = field(default_factory=dict)
    whole: bool = False
    changed_at: int = -1
    read_at: int = -1
    moved: tuple[int, str] = (-1, "")

    def show(self, shown: Shown, seq: int) -> None:
        """Take over what a read printed: newer than all that is known of these lines."""
        known, end = {line.strip() for line in shown.lines}, shown.first + len(shown.lines)
        older: list[Chunk] = []
        for chunk in () if shown.whole else self.chunks:
            numbers = range(chunk.first, chunk.first + len(chunk.lines))
            gone = [bool(chunk.first and shown.first <= number < end) for number in numbers]
            # Elsewhere, some lines in a row are the same place; one alone, such as `return nil`, is in many places.
            for start, stop in _kept([line.strip() not in known for line in chunk.lines]):
                if len(_telling(chunk.lines[start:stop])) >= MIN_SAME_LINES:
                    gone[start:stop] = [True] * (stop - start)
            older += chunk.without(gone)
        self.chunks = [*older, Chunk(shown.lines, seq, shown.first)][-MAX_CHUNKS:]
        self.whole, self.read_at = shown.whole, seq

    def write(self, text: str, seq: int, *, appended: bool = False) -> None:
        """Take over what was written, as the whole file or at its end."""
        lines = text.removesuffix("\n").split("\n")
        self.edited |= dict.fromkeys(_telling(lines), seq)
        self.chunks = [*(self.chunks if appended else []), Chunk(lines, seq, 0 if appended else 1)]
        self.whole = not appended

    def replace(self, change: Replaced, seq: int) -> None:
        """Put the new text in the place of the old one. If that is not certain, what may be the place is not known any
        more, and the new text stands alone."""
        before = {line for chunk in self.chunks for line in chunk.lines}
        old, new = change.old.split("\n"), change.new.split("\n")
        telling = {*_telling(old)}
        # The old lines of a patch do not always say where they are: `}` alone does not.
        sure = not change.patched or len(_telling(old)) >= MIN_SAME_LINES or bool(DEFINITION.search(change.old))
        end = "\n" if change.patched else ""  # of which whole lines are replaced
        texts = [f"{end}{chr(10).join(chunk.lines)}{end}" for chunk in self.chunks]
        wanted = f"{end}{change.old}{end}"
        known = [*zip(self.chunks, texts, strict=True)]
        starts = [chunk.first for chunk, text in known for _ in range(text.count(wanted) if change.old else 0)]
        if starts and (change.everywhere or (len(starts) == 1 and sure)):
            changed: list[Chunk] = []
            for chunk, text in known:
                # What stands below it in the file has other numbers from now on.
                moved = sum(0 < start < chunk.first for start in starts) * (len(new) - len(old))
                lines = text.replace(wanted, f"{end}{change.new}{end}")
                seen = seq if wanted in text else chunk.seq
                changed.append(Chunk((lines[1:-1] if end else lines).split("\n"), seen, chunk.first + moved))
            self.chunks = changed
        elif change.new != change.old:
            stays: list[Chunk] = []
            for chunk, text in known:
                # Where several of the old lines stand, it may be the place: what stays of it the new text shows.
                is_near = len(telling.intersection(map(str.strip, chunk.lines))) >= MIN_SAME_LINES
                gone = telling if is_near else telling - {*map(str.strip, new)}
                gone |= {line.strip() for line in old if line.strip()} if change.old and wanted in text else set()
                stays += chunk.without([line.strip() in gone for line in chunk.lines])
            added = [Chunk(change.new.strip("\n").split("\n"), seq)] if change.new.strip() else []
            self.chunks, self.whole = [*stays, *added][-MAX_CHUNKS:], False
        put_in = [line for chunk in self.chunks for line in chunk.lines if line not in before]
        self.edited |= dict.fromkeys(_telling(put_in or new), seq)  # if lines were only removed, what is beside them


def _kept(gone: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The stretches that are not gone."""
    start = 0
    for place in range(len(gone) + 1):
        if place == len(gone) or gone[place]:
            if place > start:
                yield start, place
            start = place + 1


def known_files(turns: Sequence[Turn]) -> list[KnownFile]:
    """The files that these turns read or changed and that are there, the newest change first, then the newest read."""
    files: dict[str, KnownFile] = {}
    paths = KnownPaths(files)
    for call in calls_of(turns):
        pending = call.output is None and not call.ended  # what it changes is not there yet
        uses = [] if pending else file_uses(call)
        for use in uses:
            path, was = paths.of(use.path), paths.of(use.was) if use.was else ""
            _use(files, path, was, use, call)
        moved = [each for each in moves_of(call) if each not in ("push", "reset", "commit")]
        for file in files.values() if moved and not any(use.changes for use in uses) else ():
            file.moved = (call.seq, f"git {moved[0]}")
    return sorted(files.values(), key=lambda file: (-file.changed_at, -file.read_at))


def _use(files: dict[str, KnownFile], path: str, was: str, use: FileUse, call: Call) -> None:
    if not use.changes and use.shown is None:
        return
    if use.shown is None and use.text is None and not use.replaced and not was:
        files.pop(path, None)  # deleted, put back, or changed in a way that no call shows
        return
    if was:
        old = files.pop(was, None)
        files[path] = KnownFile(path, [*old.chunks], {**old.edited}, old.whole) if old else KnownFile(path)
    file = files.setdefault(path, KnownFile(path))
    if use.shown is not None:
        file.show(use.shown, call.seq)
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


_BEFORE_LINE = re.compile(r"^(?:\d{1,7}[→\t:|-]|[+>])")
"""What stands before a line of a file in a read, a search or a diff."""


def lines_shown(turns: Iterable[Turn]) -> set[str]:
    """The lines that these turns show, without the spaces around them: as they are, without their numbers, and those
    that a diff or an edit, whose arguments are JSON, adds."""
    texts = (text.replace("\\n", "\n").replace('\\"', '"') for turn in turns for text in turn.texts)
    lines = {line.strip() for text in texts for line in text.split("\n")}
    return lines | {_BEFORE_LINE.sub("", line).strip() for line in lines}


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines of a chunk of a file. `place` orders the pieces of a file: by the number that their first line had."""

    place: tuple[int, int]
    file: KnownFile
    chunk: Chunk
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
        places = Counter(line.strip() for chunk in file.chunks for line in chunk.lines)
        alone = {line: seq for line, seq in file.edited.items() if places[line] == 1}
        for chunk in file.chunks:
            for start, stop in _parts(chunk, file.edited):
                text = "\n".join(chunk.lines[start:stop])
                told = _telling(chunk.lines[start:stop])
                edited = max((alone.get(line, -1) for line in told), default=-1)
                weight = UNUSED + ((1 + newest - edited) ** -DECAY if edited >= 0 else 0.0)
                weight += NAMED * sum(focus[word] for word in {*_WORD.findall(text)} if word in focus)
                weight += DEFINED * sum(focus.get(name, 0.0) for name in {*DEFINITION.findall(text)})
                new = sum(line not in seen for line in told) / len(told) if seen and told else 1.0
                place = (chunk.first + start if chunk.first else TO_THE_END, number)
                yield _Piece(place, file, chunk, start, stop, used * weight * new, count(text) + HEAD_TOKENS)
                number += 1


_WORD = re.compile(r"\w+")


def _telling(lines: Iterable[str]) -> list[str]:
    return [line for line in map(str.strip, lines) if len(line) >= MIN_TELLING]


_ABOVE = re.compile(r"\s*(?://|#|@|\*|/\*|--)")
"""How a line begins that belongs to the definition below it: a comment, a decorator."""


def _parts(chunk: Chunk, edited: Collection[str]) -> Iterator[tuple[int, int]]:
    """The pieces of a chunk: each definition with the comments above it, long ones divided; without empty lines around
    them, without what tells nothing, and without the lines in which a secret is masked: a model that edits them, or
    writes the file as it is shown, would put the mask in the place of the secret."""
    starts = [0]
    for place, line in enumerate(chunk.lines):
        if DEFINITION.match(line) and place:
            start = place
            while start > starts[-1] and _ABOVE.match(chunk.lines[start - 1]):
                start -= 1
            if len(_telling(chunk.lines[starts[-1] : start])) >= MIN_PIECE_LINES:
                starts.append(start)
    for start, stop in zip(starts, [*starts[1:], len(chunk.lines)], strict=True):
        for first, last in _divided(chunk.lines, start, stop):
            for low, high in _kept([has_mask(line) for line in chunk.lines[first:last]]):
                filled = [place for place in range(first + low, first + high) if chunk.lines[place].strip()]
                told = _telling(chunk.lines[place] for place in filled)
                tells = len(told) >= MIN_PIECE_LINES or any(line in edited for line in told)
                if filled and (tells or chunk.first + first <= 1):
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
        own = sorted((each for each in pieces if each.file is file), key=lambda each: each.place)
        if not own:
            continue
        first, last, text = own[0], own[-1], ""
        whole = file.whole and not any(
            map(str.strip, [*first.chunk.lines[: first.start], *last.chunk.lines[last.stop :]])
        )
        for before, piece in zip([None, *own], own, strict=False):
            lines = piece.chunk.lines
            between = lines[before.stop : piece.start] if before and before.chunk is piece.chunk else ["?"]
            if before and any(map(str.strip, between)):
                # Those whose place in the file is not known stand last.
                elsewhere = "" if piece.chunk.first else "elsewhere in it, "
                same = before.chunk is piece.chunk
                between, whole = [GAP if same else f"[… {elsewhere}{_when(piece.chunk, file)}]"], False
            text += "\n".join(["", *(between if before else ()), *lines[piece.start : piece.stop]])
        place = f"{'whole, ' * whole}{_when(first.chunk, file)}"
        fence = "`" * (1 + max(map(len, _FENCE.findall(text)), default=2))
        parts.append(f"`{file.path.removeprefix(folder)}`, {place}:\n{fence}{text}\n{fence}")
    return "\n".join(parts)


def _when(chunk: Chunk, file: KnownFile) -> str:
    """When a piece was seen, and that Git may have taken another version of the file since."""
    at, moved = file.moved
    return f"message {chunk.seq}{f', before `{moved}` in {at}' if chunk.seq < at else ''}"
