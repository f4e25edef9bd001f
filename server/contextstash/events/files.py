"""The files that calls used, and how: read, edited, created, deleted, renamed, run; with the texts that they show of
them or put into them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contextstash.events.calls import Call
from contextstash.events.kinds import FileUse, Replaced, Shown, Verb
from contextstash.events.names import MAX_CHANGED, changed_names
from contextstash.events.patches import is_refused, patch_of, patched_files
from contextstash.events.shell import (
    MAX_TEXT,
    TO_THE_END,
    definitions,
    files_of_command,
    range_of,
    staged_files,
    written_by_script,
)
from contextstash.safety.sanitize import MARKER


def file_uses(call: Call) -> list[FileUse]:
    """The files that a call used, by absolute paths if it says where it ran; empty for a call that failed or was
    refused."""
    if call.refused or (call.is_error and call.failed):
        return []
    patch = patch_of(call)
    if patch is not None:
        uses = [] if call.failed or is_refused(call) else list(patched_files(patch))
    elif call.command is not None:
        uses = list(files_of_command(call.command, MAX_CHANGED))
    else:
        uses = _from_arguments(call)
    if len(uses) == 1 and uses[0].verb == "read":
        uses = [replace(uses[0], shown=_shown(call))]
    return [replace(each, path=path_in(call.folder, each.path), was=path_in(call.folder, each.was)) for each in uses]


def path_in(folder: str, path: str) -> str:
    """The path as an absolute one if a folder is given."""
    return f"{folder}/{path.removeprefix('./')}" if folder and path and not path.startswith(("/", "~", "$")) else path


_NOT_OF_WORK = re.compile(r"(?:^|/)(?:\.git|\.claude/projects)/")
"""Git's own files, such as a stale lock, and the outputs that Claude Code moved into files, are not files of the
work."""


def uses_of(calls: Iterable[Call]) -> Iterator[tuple[Call, FileUse]]:
    """The file uses of the calls. A script that a call runs changes what it opens to write, and a file that is added to
    Git's index by name was changed."""
    scripts: dict[str, list[FileUse]] = {}
    for call in calls:
        uses = [use for use in file_uses(call) if not _NOT_OF_WORK.search(use.path) and not _in_vain(call, use)]
        command = call.command or ""
        targets = [FileUse(path_in(call.folder, path), "edited") for path in written_by_script(command)]
        for use in uses:
            yield call, use
            if use.verb == "created" and targets:
                scripts[use.path] = targets
            if use.verb == "run" and not call.failed:
                yield from ((call, target) for target in scripts.get(use.path, ()))
        if call.failed or call.refused:
            continue
        if not any(use.path in scripts for use in uses):
            yield from ((call, target) for target in targets)
        yield from ((call, FileUse(path_in(call.folder, path), "edited", STAGED)) for path in staged_files(command))


STAGED = ("staged",)
"""The names of a use that only says that a file was changed before: it was added to Git's index."""

MAX_LISTING = 20_000
"""Characters of an output that are searched for files that are not there."""


def _in_vain(call: Call, use: FileUse) -> bool:
    """Whether the command tried to read a file that is not there; it may have read others."""
    if use.verb != "read" or call.output is None or "No such file" not in call.output.text:
        return False
    name = use.path.rpartition("/")[2]
    lines = call.output.text[:MAX_LISTING].split("\n")
    return any("No such file" in line and name in line for line in lines)


_PATH_KEYS = (
    "file_path",
    "path",
    "notebook_path",
    "filename",
    "file",
    "target_file",
    "relative_path",
    "filepath",
)
_WORDS: Mapping[Verb, tuple[str, ...]] = {
    "deleted": ("delete", "remove"),
    "renamed": ("move", "rename"),
    "created": ("write", "create"),
    "edited": ("edit", "replace", "insert", "update", "patch", "append"),
    "read": ("read", "view", "open", "get", "fetch"),
}
"""What the name of a tool begins with, or else contains, the first that fits."""

_OLD_KEYS = ("old_string", "old_str", "search", "oldText")
_NEW_KEYS = ("new_string", "new_str", "replace", "newText", "replacement")
_WHOLE_KEYS = ("content", "file_text")
_INSERTED_KEYS = ("insert_text", "new_source", "new_str", "new_string", "text")


def _from_arguments(call: Call) -> list[FileUse]:
    arguments = call.arguments
    path = _text(arguments, _PATH_KEYS)
    verb = _verb_of(call)
    if not path or verb is None or any(key.startswith("repo") for key in arguments):
        return []  # of a repository on a server, the working folder has no file
    if verb not in ("created", "edited"):
        return [FileUse(path, verb)]
    edits = arguments.get("edits")
    parts = [item for item in edits if isinstance(item, dict)] if isinstance(edits, list) else [arguments]
    replaced = [found for part in parts if (found := _replacement(part)) is not None]
    text = None if replaced else _text(arguments, _WHOLE_KEYS)
    inserted = None if replaced or text is not None else _text(arguments, _INSERTED_KEYS)
    if inserted is not None:
        replaced = [Replaced("", inserted)]
    new = text if text is not None else "\n".join(each.new for each in replaced)
    old = "\n".join(each.old for each in replaced)
    names = definitions(new, MAX_CHANGED) if verb == "created" else changed_names(old, new)
    return [FileUse(path, verb, names, text=text, replaced=tuple(replaced))]


def _verb_of(call: Call) -> Verb | None:
    sub_command = call.arguments.get("command")
    name = f"{sub_command} {call.tool}".lower() if isinstance(sub_command, str) else call.tool.lower()
    first = (verb for verb, words in _WORDS.items() if name.startswith(words))
    within = (verb for verb, words in _WORDS.items() if any(word in name for word in words))
    return next(first, None) or next(within, None)


def _replacement(part: Mapping[str, Any]) -> Replaced | None:
    old = _text(part, _OLD_KEYS)
    return Replaced(old, _text(part, _NEW_KEYS) or "", part.get("replace_all") is True) if old else None


def _text(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((value for key in keys if isinstance(value := arguments.get(key), str)), None)


MAX_READ = 2_000
"""Lines that Claude Code's Read prints at most if no limit is given. As many lines may not be the whole file."""

_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t)(.*)$", re.DOTALL)
_CUT = re.compile(
    rf"{re.escape(MARKER)}|…\s*\d[\d,]* (?:tokens|chars|characters) truncated\s*…|\[[^\]\n]*truncated[^\]\n]*\]",
    re.IGNORECASE,
)
"""What we, or a client, leave where the middle of an output was removed. Codex writes the second form."""


def _shown(call: Call) -> Shown | None:
    """The lines that a read of one file printed; None if the call does not say which ones they are."""
    if call.output is None or len(call.output.text) > MAX_TEXT:
        return None
    cut = _CUT.search(call.output.text)
    text = call.output.text[: cut.start()] if cut else call.output.text
    numbered = _numbered(text)
    given = range_of(call.command) if call.command is not None else _range_of(call.arguments)
    if numbered is not None:
        first, lines = numbered
    elif given is None or not text.strip():
        return None
    else:
        first, lines = given[0], tuple(text.split("\n"))
        # The last line of a cut text may be half of one, and a text that ends with a line break has no line after it.
        lines = lines[:-1] if cut or text.endswith("\n") else lines
    whole = not cut and first == 1 and given is not None and given[0] == 1 and len(lines) < min(given[1], MAX_READ)
    return Shown(lines, first, whole)


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


def _range_of(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """The first line that a reading tool was asked for, and how many."""
    if isinstance(pair := arguments.get("view_range"), list) and all(isinstance(value, int) for value in pair):
        first, last = (*pair, -1, -1)[:2]
        return max(1, first), last - first + 1 if last > 0 else TO_THE_END
    first = next((value for key in ("offset", "start_line") if isinstance(value := arguments.get(key), int)), 1)
    limit, last = arguments.get("limit"), arguments.get("end_line")
    count = limit if isinstance(limit, int) else last - first + 1 if isinstance(last, int) else TO_THE_END
    return max(1, first), count


def base_folder(paths: Iterable[str]) -> str:
    """Of the folders that contain at least 60 % of the absolute paths, two or more levels above them, the one that
    shortens these the most; empty if there is none, or fewer than three paths. So the name of a file stands beside that
    of its folder."""
    absolute = {path for path in paths if path.startswith("/")}
    if len(absolute) < 3:
        return ""
    folders: Counter[str] = Counter()
    for path in absolute:
        parts = path.split("/")[1:-2]
        folders.update("/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    common = [folder for folder, count in folders.items() if count * 10 >= 6 * len(absolute)]
    return max(common, key=lambda folder: (len(folder) * folders[folder], len(folder)), default="")


def full_paths(paths: Iterable[str]) -> Callable[[str], str]:
    """Says what the absolute path of one of these is, some of which are relative: of the file below the base folder,
    or with that end if a folder is part of it and no other file's path has it."""
    named = [path.removeprefix("./") for path in paths]
    base = base_folder(named)
    known: dict[str, str] = {}
    twice: set[str] = set()
    for path in sorted({path for path in named if path.startswith("/")}):
        parts = path.split("/")
        for end in ("/".join(parts[place:]) for place in range(1, len(parts) - 1)):
            twice |= {end} & known.keys()
            known[end] = path
    for end in twice:
        del known[end]
    if base:
        known |= {path[len(base) + 1 :]: path for path in named if path.startswith(f"{base}/")}
    return lambda path: known.get(path.removeprefix("./"), path)
