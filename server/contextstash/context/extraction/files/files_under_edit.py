"""The files under edit: the text of each as it stands, to go on with the next edit."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.files.file_actions import FileUse, file_uses, is_backup
from contextstash.context.extraction.files.known_text import KnownText


@dataclass(slots=True)
class EditedFile:
    """A file that the session used. Positions are those of messages: `changed_at` of its newest change, `read_at` of
    its newest read, None if it was not read; `handle` is of that read's output. `unseen` is whether it was changed
    since in a way that no call shows, `is_script` whether the session created it and ran it."""

    path: str
    deleted: bool = False
    changed_at: int = -1
    read_at: int | None = None
    handle: str | None = None
    unseen: bool = False
    is_script: bool = False
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
        self._created: set[str] = set()

    def add(self, action: Action) -> None:
        for use in file_uses(action):
            if use.shown is not None:
                file = self._file(use.path)
                file.read_at, file.handle, file.unseen = action.seq, action.handle, False
                file.text.show(use.shown.first, use.shown.lines, whole=use.shown.whole)
            elif use.verb == "run" and (run := self._named(use.path)):
                run.is_script = run.path in self._created
            elif use.verb not in ("read", "run"):
                if use.verb == "created" and not use.was and self._named(use.path) is None:
                    self._created.add(use.path)
                self._change(self._file(use.path), use, action.seq)

    def _change(self, file: EditedFile, use: FileUse, seq: int) -> None:
        if use.verb == "deleted":
            file.text = KnownText()
        elif use.text is not None:
            (file.text.append if use.appended else file.text.write)(use.text, seq)
            file.unseen = file.unseen and use.appended
        elif use.was:
            self._move(file, use.was, copied=use.verb == "created")
        elif not use.replaced:
            file.unseen = True
        after = 0
        for each in use.replaced:
            after = file.text.replace(
                each.old, each.new, seq, everywhere=each.everywhere, after=after, below=each.below
            )
        file.deleted, file.changed_at = use.verb == "deleted", seq

    def _move(self, file: EditedFile, was: str, *, copied: bool) -> None:
        old = self._named(was)
        if old is not None:
            file.text = deepcopy(old.text)  # a copy is edited apart from its original
        if copied and is_backup(file.path, was):
            self.backups.add(file.path)
        elif not copied and old is not None and old is not file:
            del self.by_path[old.path]

    def _file(self, path: str) -> EditedFile:
        known = self._named(path)
        if known is None:
            known = self.by_path[path] = EditedFile(path)
        elif path.startswith("/") and not known.path.startswith("/"):
            self.by_path[path] = self.by_path.pop(known.path)
            known.path = path
        return known

    def _named(self, path: str) -> EditedFile | None:
        """The file at a path; one call may name it by its absolute and another by its relative path."""
        short = path.removeprefix("./")
        same = (file for known, file in self.by_path.items() if _same_file(known.removeprefix("./"), short))
        return self.by_path.get(path) or next(same, None)


def _same_file(one: str, other: str) -> bool:
    if one.startswith("/") == other.startswith("/"):
        return one == other
    return one.endswith(f"/{other}") or other.endswith(f"/{one}")


def path_below(path: str, base: str) -> str:
    """A path relative to a folder, if it is below it."""
    return path.removeprefix(f"{base}/") if base else path
