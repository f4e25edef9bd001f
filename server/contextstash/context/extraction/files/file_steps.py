"""Steps of files: the text of files that a tool call shows, and its changes of that text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.files.file_actions import (
    COPY,
    MOVED,
    FileUse,
    named_uses,
    patched_files,
    path_in,
    working_folder,
)
from contextstash.context.text.sanitize import MARKER
from contextstash.context.tool_outputs.shell_envelope import without_heredocs

MAX_TEXT = 400_000
"""Characters of one text that are followed. About 10,000 lines; a longer text is not followed."""


MAX_READ = 2_000
"""Lines that Claude Code's Read prints at most if no limit is given. As many lines may not be the whole file."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Consecutive lines of a file. `whole` is whether they are all that the file has."""

    path: str
    first: int
    lines: tuple[str, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Replaced:
    """A text of a file was replaced by another one, once or everywhere. Without `old`, `new` was put in somewhere. It
    stands behind what the same call replaced before, and below the line `below`, if that is not empty."""

    path: str
    old: str
    new: str
    everywhere: bool = False
    below: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A file was written as a whole, or with `appended` at its end."""

    path: str
    text: str
    appended: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """A file was changed in a way that the call does not show, such as by `sed -i` or a formatter."""

    path: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A file has a new path; with `copied`, the file at the old path is still there."""

    path: str
    was: str
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """A file was deleted."""

    path: str


Step = Shown | Replaced | Written | Changed | Moved | Removed


def file_steps(action: Action) -> list[Step]:
    """What a call shows of files and does to them, in order; paths as absolute ones if the call says where it ran."""
    patches = patched_files(action)
    if patches is not None:
        found = [step for patch in patches for step in _of_patch(patch.path, patch.was, patch.verb, patch.hunks)]
    else:
        uses = named_uses(action)
        found = [step for use in uses for step in _of_use(action, use, alone=len(uses) == 1)]
    folder = working_folder(action)
    return [_below(step, folder) for step in found] if folder else found


def _of_patch(path: str, was: str, verb: str, hunks: Sequence[tuple[str, str, str]]) -> Iterator[Step]:
    if verb == "deleted":
        yield Removed(path)
        return
    if verb == "created":
        yield Written(path, "\n".join(new for _, new, _ in hunks))
        return
    if was:
        yield Moved(path, was)
    yield from (Replaced(path, old, new, below=below) for old, new, below in hunks)


def _of_use(action: Action, use: FileUse, *, alone: bool) -> Iterator[Step]:
    match use.verb:
        case "read":
            shown = _shown(action, use.path) if alone else None
            if shown is not None:
                yield shown
        case "deleted":
            yield Removed(use.path)
        case "renamed":
            yield from _moved(use)
        case "created" | "edited":
            if use.names[:1] and use.names[0].startswith(COPY):
                yield Moved(use.path, use.names[0].removeprefix(COPY), copied=True)
            else:
                yield from _texts(action, use)


def _moved(use: FileUse) -> Iterator[Step]:
    was = next((name.removeprefix(MOVED) for name in use.names if name.startswith(MOVED)), "")
    yield Moved(use.path, was) if was else Changed(use.path)


def _texts(action: Action, use: FileUse) -> Iterator[Step]:
    """The texts of a change, None of which may be known."""
    if action.command is not None:
        yield _by_redirect(action.command, use)
        return
    arguments = action.arguments
    edits = arguments.get("edits")
    parts = [item for item in edits if isinstance(item, dict)] if isinstance(edits, list) else [arguments]
    replaced = [found for part in parts if (found := _replacement(use.path, part)) is not None]
    whole = _text(arguments, ("content", "file_text"))
    if replaced:
        yield from replaced
    elif whole is not None:
        yield Written(use.path, whole)
    else:
        new = _text(arguments, ("insert_text", "new_source", "new_str", "new_string", "text"))
        yield Changed(use.path) if new is None else Replaced(use.path, "", new)


def _replacement(path: str, part: Mapping[str, Any]) -> Replaced | None:
    old = _text(part, ("old_string", "old_str", "search", "oldText"))
    new = _text(part, ("new_string", "new_str", "replace", "newText"))
    return Replaced(path, old, new or "", part.get("replace_all") is True) if old else None


def _text(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((value for key in keys if isinstance(value := arguments.get(key), str)), None)


def _by_redirect(command: str, use: FileUse) -> Step:
    """A file that a command writes: known if it is a here-document."""
    shell, bodies = without_heredocs(command[:MAX_TEXT])
    target = re.escape(use.path)
    sign = re.search(rf"(>>?)[ \t]*['\"]?{target}", shell)
    if len(bodies) and command.count("<<") == 1 and (sign or re.search(rf"\btee\b[^|;&\n]*{target}", shell)):
        text = "\n".join(bodies)
        return Written(use.path, text, appended=bool(sign and sign.group(1) == ">>"))
    return Changed(use.path)


_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t)(.*)$", re.DOTALL)
_CUT = re.compile(
    r"…\s*\d[\d,]* (?:tokens|chars|characters) truncated\s*…|\[[^\]\n]*truncated[^\]\n]*\]", re.IGNORECASE
)
"""What a client leaves where it removed the middle of an output. Codex writes the first form."""


def _shown(action: Action, path: str) -> Shown | None:
    """The lines of a file that a call printed; None if the call does not say which ones they are."""
    if action.output is None or len(action.output.text) > MAX_TEXT:
        return None
    cut = _first_cut(action.output.text)
    text = action.output.text if cut is None else action.output.text[:cut]
    numbered = _numbered(text)
    given = _given_range(action)
    if numbered is not None:
        first, lines = numbered
    elif given is None or not text.strip():
        return None
    else:
        first, lines = given[0], tuple(text.split("\n"))
        # The last line of a cut text may be half of one, and a text that ends with a line break has no line after it.
        lines = lines[:-1] if cut is not None or text.endswith("\n") else lines
    whole = cut is None and first == 1 and given is not None and given[0] == 1 and len(lines) < min(given[1], MAX_READ)
    return Shown(path, first, lines, whole)


def _first_cut(text: str) -> int | None:
    found = _CUT.search(text)
    places = [place for place in (text.find(MARKER), found.start() if found else -1) if place >= 0]
    return min(places, default=None)


def _numbered(text: str) -> tuple[int, tuple[str, ...]] | None:
    """The first number and the lines of a text whose lines are numbered, up to a gap; None if they are not."""
    first, lines = 0, list[str]()
    for line in text.lstrip("\n").split("\n"):
        match = _NUMBERED.match(line)
        if match is None or (lines and int(match.group(1)) != first + len(lines)):
            break
        first = first or int(match.group(1))
        lines.append(match.group(2))
    return (first, tuple(lines)) if lines else None


_SED_RANGE = re.compile(r"^sed -n ['\"]?(\d{1,7})(?:,(\d{1,7}|\$))?p['\"]?(?: |$)")
_HEAD = re.compile(r"^head(?: -n)? -?(\d{1,7})\b")
_WHOLE = re.compile(r"^(?:cat(?: -n)?|nl(?: -ba)?|bat(?: -p)?) [^-|]\S*$")

TO_THE_END = 10_000_000
"""A number of lines that no file has."""


def _given_range(action: Action) -> tuple[int, int] | None:
    """The first line that a call asked for, and how many; None if it does not say it."""
    if action.command is not None:
        return _range_of_command(action.command)
    arguments = action.arguments
    if isinstance(pair := arguments.get("view_range"), list) and all(isinstance(value, int) for value in pair):
        first, last = (*pair, -1, -1)[:2]
        return max(1, first), last - first + 1 if last > 0 else TO_THE_END
    first = next((value for key in ("offset", "start_line") if isinstance(value := arguments.get(key), int)), 1)
    limit, last = arguments.get("limit"), arguments.get("end_line")
    count = limit if isinstance(limit, int) else last - first + 1 if isinstance(last, int) else TO_THE_END
    return max(1, first), count


def _range_of_command(command: str) -> tuple[int, int] | None:
    shell = re.sub(r"^\s*(?:cd|pushd) [^&;|\n]{1,200}(?:&&|;|\n)\s*", "", without_heredocs(command)[0].strip())
    if re.search(r"&&|\|\||[;\n]", shell):
        return None
    first, *pipes = [part.strip() for part in shell.split("|")]
    begun = 1
    count = TO_THE_END
    for place, part in enumerate((first, *pipes)):
        if sed := _SED_RANGE.match(part):
            begun = int(sed.group(1))
            last = sed.group(2) or sed.group(1)
            count = TO_THE_END if last == "$" else int(last) - begun + 1
        elif head := _HEAD.match(part):
            count = min(count, int(head.group(1)))
        elif place or not _WHOLE.match(part):
            return None
    return begun, count


def _below(step: Step, folder: str) -> Step:
    if isinstance(step, Moved):
        return replace(step, path=path_in(folder, step.path), was=path_in(folder, step.was))
    return replace(step, path=path_in(folder, step.path))
