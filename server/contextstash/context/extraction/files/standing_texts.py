"""The texts of files as they stand, for the next edit: the functions that are in use, as many as there is room for.

Measured on recorded compactions (docs/fidelity.md): the functions that the newest messages speak of hold the old lines
of the next edit more often than the surroundings of the newest edits do, and those of files that were only read too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from contextstash.context.extraction.files.files_under_edit import EditedFile, path_below
from contextstash.context.extraction.files.known_text import MIN_RECOGNIZED, UNCHANGED, Run
from contextstash.context.extraction.files.names_in_use import names_of
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.secret_masks import has_mask
from contextstash.context.tool_outputs.classifiers import DEFINITION

Count = Callable[[str], int]

FOCUS_TURNS = 16
"""How many of the newest turns say what the work is about. Measured with bench/fidelity: 6 and 40 find less."""

OUTPUT_WEIGHT = 0.2
"""What a name in an output says about the work, compared with 1 for one that the agent or the user wrote:
higher, functions that were only listed displace those that are being edited."""

NAMED, DEFINED = 0.3, 0.9
"""What a name of the focus counts if a piece contains it, and in addition if the piece defines it; an edit in the piece
counts up to 1. Measured with bench/fidelity: a third of it finds a tenth fewer of the next edits."""

UNUSED = 0.01
"""The weight of a piece that neither was edited nor contains a name of the focus: it fills what room is left."""

DECAY = 0.3
"""An edit or read counts less with its age, in messages, to this power: as for names in use."""

NEWEST_FILES = 2
"""Of how many files, those changed last, the newest change is shown before all else: often code and its test."""

SCRIPT_SHARE = 0.2
"""What the pieces of a script count that the session created and ran: the next edit is seldom in one, and a test that
was thrown away would take the room of the code."""

MIN_PIECE_LINES = 2
"""Lines with some text that a piece has. A shorter one, such as the head of a class, stays with what is next to it, and
the end of a function of which nothing else is known is left out."""

MAX_PIECE_LINES = 30
"""A longer function is divided, at an empty line if there is one. Measured: 15 and 60 find a little less."""

HEAD_TOKENS = 12
"""What a piece costs in addition to its text: its part of the head line and the fences."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines `start` to `stop` of a run of a file's known text. `place` orders the pieces of all files."""

    place: int
    file: EditedFile
    run: Run
    start: int
    stop: int
    weight: float
    tokens: int

    @property
    def text(self) -> str:
        """The lines."""
        return "\n".join(self.run.lines[self.start : self.stop])

    @property
    def has_newest_change(self) -> bool:
        """Whether lines of it were changed by the newest change of the file."""
        return self.file.changed_at >= 0 and self.file.changed_at in self.run.changed[self.start : self.stop]


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


def standing_texts(
    files: Sequence[EditedFile],
    max_tokens: int,
    count: Count,
    base: str = "",
    focus: Mapping[str, float] | None = None,
    seen: Collection[str] = (),
) -> str:
    """The known texts of files as they stand, in at most `max_tokens`: all if there is room, else the functions with
    the newest edits and those that contain or define names in `focus`. Empty if nothing fits. Of `seen`, the lines that
    the view shows anyway, nothing is shown again but what stands between other lines."""
    known = [file for file in files if not file.deleted and file.text.runs]
    pieces = [piece for piece in _weighted(known, focus or {}, count, seen) if piece.weight > 0]
    chosen: list[_Piece] = []
    left = max_tokens
    newest = sorted((file for file in known if not file.is_script), key=lambda file: -file.changed_at)[:NEWEST_FILES]
    first = {piece.place for piece in pieces if piece.file in newest and piece.has_newest_change}
    for piece in sorted(pieces, key=lambda piece: (piece.place not in first, -piece.weight / piece.tokens**0.5)):
        if piece.tokens <= left:
            chosen.append(piece)
            left -= piece.tokens
    if count(text := _written(known, chosen, base)) <= max_tokens:
        return text
    # The heads are longer than estimated, such as by long paths: what matters least is left out.
    chosen.sort(key=lambda piece: (piece.place not in first, -piece.weight))
    sizes = range(1, len(chosen))
    fitting = bisect_left(sizes, True, key=lambda size: count(_written(known, chosen[:size], base)) > max_tokens)
    return _written(known, chosen[:fitting], base)


def _weighted(
    files: Sequence[EditedFile], focus: Mapping[str, float], count: Count, seen: Collection[str]
) -> list[_Piece]:
    """The pieces of the files in order, with their weights: less by the share of a piece that is in `seen`."""
    newest = max((max(file.changed_at, file.read_at or 0) for file in files), default=0)
    pieces: list[_Piece] = []
    for file in files:
        used = (1 + newest - max(file.changed_at, file.read_at or 0)) ** -DECAY
        used *= SCRIPT_SHARE if file.is_script else 1.0
        for run in file.text.runs:
            for start, stop in _without_masks(run):
                filled = [place for place in range(start, stop) if run.lines[place].strip()]
                if not filled:
                    continue
                start, stop = filled[0], filled[-1] + 1
                text = "\n".join(run.lines[start:stop])
                weight = used * _weight(text, run.changed[start:stop], newest, focus)
                weight *= _unseen(run.lines[start:stop], seen)
                pieces.append(_Piece(len(pieces), file, run, start, stop, weight, count(text) + HEAD_TOKENS))
    return pieces


def _without_masks(run: Run) -> Iterator[tuple[int, int]]:
    """The parts of a run, without the lines in which a secret is masked: a model that edits them, or writes the file
    as it is shown, would put the mask in the place of the secret. The line numbers show that lines are missing."""
    for start, stop in _pieces(run):
        for line in range(start, stop):
            if has_mask(run.lines[line]):
                yield start, line
                start = line + 1
        yield start, stop


_WORD = re.compile(r"\w+")


def _weight(text: str, changed: Sequence[int], newest: int, focus: Mapping[str, float]) -> float:
    edited = [(1 + max(0, newest - seq)) ** -DECAY for seq in changed if seq != UNCHANGED]
    named = sum(focus[word] for word in set(_WORD.findall(text)) if word in focus)
    defined = sum(focus.get(name, 0.0) for name in set(DEFINITION.findall(text)))
    return max(edited, default=0.0) + NAMED * named + DEFINED * defined + UNUSED


def _unseen(lines: Sequence[str], seen: Collection[str]) -> float:
    """The share of the lines with some text that are not in `seen`."""
    told = _telling(lines)
    if not seen or not told:
        return 1.0
    return sum(line not in seen for line in told) / len(told)


def _telling(lines: Sequence[str]) -> list[str]:
    """The lines without those that are everywhere, such as a bracket."""
    return [line for line in map(str.strip, lines) if len(line) >= MIN_RECOGNIZED]


_ABOVE = re.compile(r"\s*(?://|#|@|\*|/\*|--)")
"""How a line begins that belongs to the definition below it: a comment, a decorator."""


def _pieces(run: Run) -> Iterator[tuple[int, int]]:
    """The parts of a run: each definition with the comments above it, and what precedes the first one."""
    starts = {0, len(run.lines)}
    for place, line in enumerate(run.lines):
        if DEFINITION.match(line):
            start = place
            while start and _ABOVE.match(run.lines[start - 1]):
                start -= 1
            starts.add(start)
    parts: list[tuple[int, int]] = []
    for start, stop in pairwise(sorted(starts)):
        if parts and (_is_short(run, *parts[-1]) or (stop == len(run.lines) and _is_short(run, start, stop))):
            parts[-1] = (parts[-1][0], stop)
        else:
            parts.append((start, stop))
    if len(parts) > 1 or run.first <= 1 or set(run.changed) != {UNCHANGED} or not _is_short(run, *parts[0]):
        for start, stop in parts:
            yield from _divided(run.lines, start, stop)


def _is_short(run: Run, start: int, stop: int) -> bool:
    return len(_telling(run.lines[start:stop])) < MIN_PIECE_LINES


def _divided(lines: Sequence[str], start: int, stop: int) -> Iterator[tuple[int, int]]:
    # A rest of a few lines stays with what precedes it.
    while stop - start > MAX_PIECE_LINES * 4 // 3:
        ends = range(start + MAX_PIECE_LINES, start + MAX_PIECE_LINES // 3, -1)
        end = next((place for place in ends if not lines[place - 1].strip()), start + MAX_PIECE_LINES)
        yield from _divided(lines, start, end)
        start = end
    yield start, stop


def _written(files: Sequence[EditedFile], pieces: Sequence[_Piece], base: str) -> str:
    """The pieces by file, those that adjoin as one; before each a line that says which lines it is."""
    parts = []
    for file in files:
        name = f"`{path_below(file.path, base)}`"
        for piece in _joined(sorted((each for each in pieces if each.file is file), key=lambda each: each.place)):
            parts.append(_fenced(f"{name}, {_place_of(piece)}:", piece.text))
            name = "the same file"
    return "\n".join(parts)


def _joined(pieces: Iterable[_Piece]) -> list[_Piece]:
    """The pieces of a file, those between which nothing is left out as one."""
    parts: list[_Piece] = []
    for piece in pieces:
        last = parts[-1] if parts else None
        if last and last.run is piece.run and not any(map(str.strip, piece.run.lines[last.stop : piece.start])):
            parts[-1] = replace(last, stop=piece.stop)
        else:
            parts.append(piece)
    return parts


def _place_of(piece: _Piece) -> str:
    """Such as "lines 40 to 52"."""
    file, run = piece.file, piece.run
    if file.text.whole and piece.text == "\n".join(run.lines).strip("\n"):
        place = "whole"
    elif not run.first:
        place = "an edited place"
    else:
        place = f"{'about ' * run.moved}lines {run.first + piece.start} to {run.first + piece.stop - 1}"
    return f"{place} (a command changed it since: read it again before an edit)" if file.unseen else place


_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)


def _fenced(head: str, text: str) -> str:
    fence = "`" * (1 + max(map(len, _FENCE.findall(text)), default=2))
    return f"{head}\n{fence}\n{text}\n{fence}"
