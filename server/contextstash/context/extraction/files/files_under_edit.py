"""The files under edit: the text of each as it stands, to go on with the next edit."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.files.file_actions import is_backup
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


@dataclass(slots=True)
class EditedFile:
    """A file that the session used. Positions are those of messages: `changed_at` of its newest change, `read_at` of
    its newest read, None if it was not read; `handle` is of that read's output. `unseen` is whether it was changed
    since in a way that no call shows."""

    path: str
    deleted: bool = False
    changed_at: int = -1
    read_at: int | None = None
    handle: str | None = None
    unseen: bool = False
    text: KnownText = field(default_factory=KnownText)


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
        for step in file_steps(action):
            self._take(self._file(step), step, action)

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
                (file.text.append if appended else file.text.write)(text, action.seq)
                file.unseen = file.unseen and appended
            case Changed():
                file.unseen = True
            case Removed():
                file.text = KnownText()
            case Moved(_, was, copied):
                self._move(file, was, copied=copied)
        file.deleted = isinstance(step, Removed)
        file.changed_at = action.seq

    def _move(self, file: EditedFile, was: str, *, copied: bool) -> None:
        old = next(iter(self._named(was)), None)
        if old is not None:
            file.text = deepcopy(old.text)  # a copy is edited apart from its original
        if copied and is_backup(file.path, was):
            self.backups.add(file.path)
        elif not copied and old is not None and old is not file:
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


def path_below(path: str, base: str) -> str:
    """A path relative to a folder, if it is below it."""
    return path.removeprefix(f"{base}/") if base else path
