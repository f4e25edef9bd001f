"""The files under edit: what was done to each changed file, and its text as it stands, to go on with the next edit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.files.file_actions import COPY, MOVED, file_uses, is_backup
from contextstash.context.extraction.files.file_steps import (
    Changed,
    Moved,
    Removed,
    Replaced,
    Shown,
    Step,
    Written,
    file_steps,
)
from contextstash.context.extraction.files.known_text import KnownText

MAX_NAMES = 6
"""Names of a changed file in its line, the newest ones: as many as fit one line."""


@dataclass(slots=True)
class EditedFile:
    """A file that the session changed. Positions are those of messages: `changed_at` of its newest change, `read_at` of
    its newest read, None if it was not read; `handle` is of that read's output. `unseen` is whether it was changed
    since in a way that no call shows."""

    path: str
    created: bool = False
    deleted: bool = False
    was: str = ""
    edits: int = 0
    changed_at: int = -1
    read_at: int | None = None
    handle: str | None = None
    unseen: bool = False
    names: list[str] = field(default_factory=list)
    text: KnownText = field(default_factory=KnownText)

    @property
    def changed(self) -> bool:
        return self.changed_at >= 0

    @property
    def changed_since_read(self) -> bool:
        """Whether the newest read shows an older text than the file has."""
        return self.read_at is not None and self.changed_at > self.read_at

    @property
    def affected(self) -> list[str]:
        """The definitions and names that the changes affect, the newest first."""
        return list(dict.fromkeys([*self.text.changed_definitions(), *reversed(self.names)]))[:MAX_NAMES]

    def what_was_done(self) -> str:
        """Such as `created, edited 3 times`."""
        if self.deleted:
            return "deleted"
        times = "" if self.edits < 2 else f" {self.edits} times"
        parts = [
            "created" if self.created else "",
            f"moved from `{self.was}`" if self.was else "",
            f"edited{times}" if self.edits else "",
        ]
        return ", ".join(filter(None, parts))


def files_under_edit(actions: Iterable[Action]) -> list[EditedFile]:
    """Every file that these calls changed, the newest change first."""
    return [file for file in files_of(actions) if file.changed]


def files_of(actions: Iterable[Action]) -> list[EditedFile]:
    """Every file that these calls read or changed, the newest change first, then the newest read; no backups."""
    files = _Files()
    for action in actions:
        files.add(action)
    known = (file for path, file in files.by_path.items() if path not in files.backups)
    return sorted(known, key=lambda file: (-file.changed_at, -(file.read_at or -1)))


class _Files:
    """The files of a session by their paths, up to some call."""

    def __init__(self) -> None:
        self.by_path: dict[str, EditedFile] = {}
        self.backups: set[str] = set()
        self._after: dict[str, int] = {}

    def add(self, action: Action) -> None:
        self._after.clear()
        changed: set[str] = set()
        for step in file_steps(action):
            file = self._file(step)
            edits = isinstance(step, (Replaced, Changed)) or _rewrites(step, file)
            if edits and file.path not in changed:  # several hunks or edits of one call are one change
                changed.add(file.path)
                file.edits += 1
            self._take(file, step, action)
        for use in file_uses(action):
            names = [name for name in use.names if not name.startswith((MOVED, COPY))]
            for file in self._named(use.path) if use.verb in ("edited", "created") else ():
                file.names = [name for name in file.names if name not in names] + names

    def _take(self, file: EditedFile, step: Step, action: Action) -> None:
        if isinstance(step, Shown):
            file.read_at, file.handle, file.unseen = action.seq, action.handle, False
            file.text.show(step.first, step.lines, whole=step.whole)
            return
        match step:
            case Replaced(_, old, new, everywhere, below):
                after = self._after.get(file.path, 0)
                self._after[file.path] = file.text.replace(
                    old, new, action.seq, everywhere=everywhere, after=after, below=below
                )
            case Written(_, text, appended):
                file.created = file.created or not (appended or file.changed or file.read_at is not None)
                (file.text.append if appended else file.text.write)(text, action.seq)
                file.unseen = file.unseen and appended
            case Changed():
                file.unseen = True
            case Removed():
                file.text, file.edits, file.created, file.was = KnownText(), 0, False, ""
            case Moved(_, was, copied):
                self._move(file, was, copied=copied)
        file.deleted = isinstance(step, Removed)
        file.changed_at = action.seq

    def _move(self, file: EditedFile, was: str, *, copied: bool) -> None:
        old = next(iter(self._named(was)), None)
        if old is not None:
            file.text = KnownText([*old.text.runs], old.text.whole)
            file.created, file.edits, file.names = old.created, old.edits, [*old.names]
        if copied and is_backup(file.path, was):
            self.backups.add(file.path)
        elif copied:
            file.created = True
        else:
            file.was = was
            if old is not None and old is not file:
                del self.by_path[old.path]

    def _file(self, step: Step) -> EditedFile:
        known = next(iter(self._named(step.path)), None)
        if known is None:
            known = self.by_path[step.path] = EditedFile(step.path)
        elif step.path.startswith("/") and not known.path.startswith("/"):
            self.by_path[step.path] = self.by_path.pop(known.path)
            known.path = step.path
        return known

    def _named(self, path: str) -> list[EditedFile]:
        """The file at a path; one call may name it by its absolute and another by its relative path."""
        if path in self.by_path:
            return [self.by_path[path]]
        short = path.removeprefix("./")
        return [file for known, file in self.by_path.items() if _same_file(known.removeprefix("./"), short)]


def _same_file(one: str, other: str) -> bool:
    if one.startswith("/") == other.startswith("/"):
        return one == other
    return one.endswith(f"/{other}") or other.endswith(f"/{one}")


def _rewrites(step: Step, file: EditedFile) -> bool:
    """Whether a file is written again that was there before."""
    return isinstance(step, Written) and (step.appended or file.changed or file.read_at is not None)


def change_lines(files: Iterable[EditedFile], base: str = "") -> list[str]:
    """A line for each changed file: what was done to it, the names that this affects, and whether it was read since."""
    return [f"`{path_below(file.path, base)}`: {_change(file)}" for file in files if file.changed]


def _change(file: EditedFile) -> str:
    names = f" ({', '.join(file.affected)})" if file.affected and not file.deleted else ""
    note = "; changed since by a command that does not show how" if file.unseen and file.text.runs else ""
    return f"{file.what_was_done()}{names}{note}"


def path_below(path: str, base: str) -> str:
    """A path relative to a folder, if it is below it."""
    return path.removeprefix(f"{base}/") if base else path
