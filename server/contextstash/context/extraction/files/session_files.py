"""The files of a session: how each was used, and which names the changes affect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.files.file_actions import (
    FileUse,
    Verb,
    file_uses,
    is_backup,
    path_in,
    staged_files,
    working_folder,
)

VERBS: tuple[Verb, ...] = ("created", "edited", "renamed", "deleted", "run", "read")
"""In the order in which they are written."""

MAX_NAMES = 6
"""Names of a changed file, the newest ones: as many as fit one line."""

LATELY_CHANGED = 12
"""Changed files that get a line with what was done; of older ones the path is listed, so that in a summary of 1,000
tokens a hundred changed files are named."""

PER_LINE = 6
"""Paths in a line that lists them. A line is the unit that is left out if the summary is too long."""

_BASE = re.compile(r"^Below `(/[^`]*)/`:?$")
_CHANGED = re.compile(r"^`([^`]+)`: ([a-z, ]+?)(?: \((.*)\))?$")
_LISTED = re.compile(r"^(Also changed|Created and run|Only read): (.+)$")
_VERBS_OF_LIST: dict[str, tuple[Verb, ...]] = {
    "Also changed": ("edited",),
    "Created and run": ("created", "run"),
    "Only read": ("read",),
}
MIN_SCRIPTS = 3
"""Files that were created and run, such as the agent's own scripts, are listed in one line if there are so many: a
line each would hide the files of the work between them."""


@dataclass(slots=True)
class _Record:
    verbs: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    count: int = 0
    last: int = 0

    def touch(self, use: FileUse, when: int) -> None:
        """Count a use of the file."""
        if use.verb == "deleted":
            self.verbs, self.names = [], []
        elif "deleted" in self.verbs:
            self.verbs.remove("deleted")
        # A file that was used before was there before: writing it as a whole is a change of it.
        verb = "edited" if use.verb == "created" and self.verbs and "created" not in self.verbs else use.verb
        if verb not in self.verbs:
            self.verbs.append(verb)
        names = (f"{'was' if use.verb == 'renamed' else 'copy of'} {use.was}",) if use.was else use.names
        self.names = [name for name in self.names if name not in names] + list(names)
        self.count += 1
        self.last = when


def changes_by_message(actions: Iterable[Action]) -> dict[int, list[str]]:
    """The changed paths by the message with the call's result."""
    changed: dict[int, list[str]] = {}
    for action, use in uses_of(actions):
        if use.verb not in ("read", "run"):
            changed.setdefault(action.seq, []).append(use.path)
    return changed


_OPENED = re.compile(
    r"""open\(\s*(?:["']([^"'\n]{1,200})["']|([A-Za-z_]\w{0,60}))\s*,\s*["'][wa]"""
    r"""|Path\(\s*["']([^"'\n]{1,200})["']\s*\)\.write_text"""
)
_ASSIGNED = re.compile(r"""^[ \t]*(\w{1,60})\s*=\s*["']([^"'\n]{1,200})["']\s*$""", re.MULTILINE)
MAX_SCRIPT = 20_000
"""Characters of a script that are searched; a longer one is data."""


_NOT_OF_WORK = re.compile(r"(?:^|/)(?:\.git|\.claude/projects)/")
"""Git's own files, such as a stale lock, and the outputs that Claude Code moved into files, are not files of the
work."""


def uses_of(actions: Iterable[Action]) -> Iterator[tuple[Action, FileUse]]:
    """The file uses of the calls; a script that a call runs changes what it opens to write."""
    scripts: dict[str, list[FileUse]] = {}
    for action in actions:
        uses = [use for use in file_uses(action) if not _NOT_OF_WORK.search(use.path) and not _in_vain(action, use)]
        folder = working_folder(action)
        targets = [FileUse(path_in(folder, path), "edited") for path in _written_by(action.command or "")]
        for use in uses:
            yield action, use
            if use.verb == "created" and targets:
                scripts[use.path] = targets
            if use.verb == "run" and not action.failed:
                yield from ((action, target) for target in scripts.get(use.path, ()))
        if not action.failed and not any(use.path in scripts for use in uses):
            yield from ((action, target) for target in targets)


def _in_vain(action: Action, use: FileUse) -> bool:
    """Whether the command tried to read a file that is not there; it may have read others."""
    if use.verb != "read" or action.output is None or "No such file" not in action.output.text:
        return False
    name = use.path.rpartition("/")[2]
    lines = action.output.text[:MAX_SCRIPT].split("\n")
    return any("No such file" in line and name in line for line in lines)


def _written_by(command: str) -> list[str]:
    """The files that the script in a command opens to write, or that it writes into a file."""
    script = command[:MAX_SCRIPT]
    found = [match.groups() for match in _OPENED.finditer(script)]
    names = dict(_ASSIGNED.findall(script)) if any(name for _, name, _ in found) else {}
    paths = [path or names.get(name or "", "") or other or "" for path, name, other in found]
    return [path for path in dict.fromkeys(paths) if path and not path.startswith(("/tmp/", "/dev/"))]


def file_lines(actions: Sequence[Action], *before: Iterable[str]) -> list[tuple[float, str]]:
    """Lines that list the files, each with its weight: the base folder, then a line for each changed file, newest
    change first and deleted ones last, then lines with older changed files, and with those that were only read.
    `before` are such lines of earlier summaries, oldest first."""
    uses: list[tuple[int, FileUse]] = []
    for lines_before in reversed(before):
        oldest = uses[0][0] if uses else 0
        uses[:0] = [(when + oldest, use) for when, use in _uses_of_lines(lines_before)]
    uses += [(action.seq, use) for action, use in uses_of(actions)]
    staged = [(action.seq, path) for action in actions for path in staged_files(action)]
    paths = [use.path for _, use in uses]
    base, full = base_folder(paths), full_paths([*paths, *(path for _, path in staged)])
    records: dict[str, _Record] = {}
    for when, use in _without_backups(uses):
        records.setdefault(_below(full(use.path), base), _Record()).touch(use, when)
    for when, path in staged:
        record = records.setdefault(_below(full(path), base), _Record())
        if not set(record.verbs) - {"read"}:
            record.touch(FileUse(path, "edited"), when)
    lines = [(1e9, f"Below `{base}/`:")] if base else []
    changed = [(path, record) for path, record in records.items() if set(record.verbs) - {"read"}]
    newest_first = sorted(changed, key=lambda entry: ("deleted" in entry[1].verbs, -entry[1].last, -entry[1].count))
    scripts = [path for path, record in newest_first if {"created", "run"} <= set(record.verbs)]
    scripts = scripts if len(scripts) >= MIN_SCRIPTS else []
    others = [entry for entry in newest_first if entry[0] not in scripts]
    older = [path for path, record in others[LATELY_CHANGED:] if "deleted" not in record.verbs]
    told = [entry for entry in others if entry[0] not in set(older)]
    lines += [(1e6 - place, _changed_line(path, record)) for place, (path, record) in enumerate(told)]
    lines += _listed("Also changed", older, 1e6 - len(told))
    lines += _listed("Created and run", scripts, 1e5)
    reads = [(path, record) for path, record in records.items() if record.verbs == ["read"]]
    reads.sort(key=lambda entry: (-min(3, entry[1].count), -entry[1].last))
    return lines + _listed("Only read", [path for path, _ in reads], 0.0)


def _listed(label: str, paths: Sequence[str], weight: float) -> list[tuple[float, str]]:
    """Lines of paths, the first ones with the highest weight."""
    return [
        (weight - place, f"{label}: {', '.join(f'`{path}`' for path in paths[place : place + PER_LINE])}")
        for place in range(0, len(paths), PER_LINE)
    ]


BACKUP, RESTORED = "backup in ", "restored from its backup"


def _without_backups(uses: Iterable[tuple[int, FileUse]]) -> Iterator[tuple[int, FileUse]]:
    """The uses of the files of the work: a copy beside a file, such as `a.py.bak`, is a note on that file, and so is
    that the file was written again from it."""
    backups: set[str] = set()
    for when, use in uses:
        if use.was and is_backup(use.was, use.path):
            yield when, FileUse(use.path, "edited", (RESTORED,))
        elif use.was and use.verb == "created" and is_backup(use.path, use.was):
            backups.add(use.path)
            yield when, FileUse(use.was, "read", (f"{BACKUP}{use.path}",))
        elif use.path not in backups:
            yield when, use


def _changed_line(path: str, record: _Record) -> str:
    verbs = ", ".join(verb for verb in VERBS if verb in record.verbs)
    names = f" ({', '.join(record.names[-MAX_NAMES:])})" if record.names else ""
    return f"`{path}`: {verbs}{names}"


def without_names(line: str) -> str:
    """A line of `file_lines` without the names that a change affects: so short, more files have room."""
    match = _CHANGED.match(line)
    return f"`{match.group(1)}`: {match.group(2)}" if match else line


def base_of(line: str) -> str:
    """The base folder that a line of `file_lines` names, empty if it names none."""
    match = _BASE.match(line)
    return match.group(1) if match else ""


def _uses_of_lines(lines: Iterable[str]) -> list[tuple[int, FileUse]]:
    """The file uses in lines of an earlier summary, newest last, with negative ages because they precede message 0."""
    known = list(lines)
    base = next(filter(None, map(base_of, known)), "")
    uses: list[FileUse] = []
    for line in known:
        if match := _LISTED.match(line):
            paths = [path.strip("` ") for path in match.group(2).split(", ")]
            uses += [FileUse(path, verb) for path in paths for verb in reversed(_VERBS_OF_LIST[match.group(1)])]
        elif match := _CHANGED.match(line):
            names = tuple(match.group(3).split(", ")) if match.group(3) else ()
            verbs = match.group(2).split(", ")
            uses += [FileUse(match.group(1), verb, names) for verb in reversed(VERBS) if verb in verbs]
    return [(-age, _absolute(use, base)) for age, use in reversed(list(enumerate(uses, 1)))]


def _absolute(use: FileUse, base: str) -> FileUse:
    if not base or use.path.startswith(("/", "~", "./")):
        return use
    return FileUse(f"{base}/{use.path}", use.verb, use.names)


def base_folder(paths: Iterable[str]) -> str:
    """Of the folders that contain at least 60 % of the absolute paths, the one that shortens these the most; empty if
    there is none, or fewer than three paths."""
    absolute = {path for path in paths if path.startswith("/")}
    if len(absolute) < 3:
        return ""
    folders: Counter[str] = Counter()
    for path in absolute:
        parts = path.split("/")[1:-1]
        folders.update("/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    common = [folder for folder, count in folders.items() if count * 10 >= 6 * len(absolute)]
    return max(common, key=lambda folder: (len(folder) * folders[folder], len(folder)), default="")


def full_paths(paths: Iterable[str]) -> Callable[[str], str]:
    """Says what the absolute path of one of these is, some of which are relative: of the file below the base folder,
    or with that end if a folder is part of it and no other file's path has it, or in the folder in which most calls ran
    that name their files so."""
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
    folders = Counter(known[path].removesuffix(path).rstrip("/") for path in named if path in known)
    folder = folders.most_common(1)[0][0] if folders else ""
    return lambda path: known.get(path.removeprefix("./")) or path_in(folder, path)


def _below(path: str, base: str) -> str:
    """The path as it is shown. Next to a base folder, a path relative to the working folder, which may be another one,
    begins with `./`."""
    if base and path.startswith(f"{base}/"):
        return path[len(base) + 1 :]
    path = path.removeprefix("./")
    return f"./{path}" if base and not path.startswith(("/", "~")) else path
