"""The files under edit: the text of each as it stands, to go on with the next edit."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.files.file_actions import FileUse, is_backup
from contextstash.context.extraction.files.known_text import KnownText
from contextstash.context.extraction.files.session_files import full_paths, uses_of
from contextstash.context.extraction.files.shown_lines import lines_shown_by


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
    uses = list(uses_of(actions))
    full = full_paths(use.path for _, use in uses)
    files = _Files()
    for action, use in uses:
        files.add(action, replace(use, path=full(use.path), was=use.was and full(use.was)))
    known = (file for path, file in files.by_path.items() if path not in files.backups)
    return sorted(known, key=lambda file: (-file.changed_at, -(file.read_at or -1)))


class _Files:
    """The files of a session by their paths, up to some call."""

    def __init__(self) -> None:
        self.by_path: dict[str, EditedFile] = {}
        self.backups: set[str] = set()
        self._created: set[str] = set()

    def add(self, action: Action, use: FileUse) -> None:
        known = self.by_path.get(use.path)
        if use.verb == "run":
            if known is not None:
                known.is_script = use.path in self._created
        elif use.verb != "read":
            if known is None and use.verb == "created" and not use.was:
                self._created.add(use.path)
            self._change(self.by_path.setdefault(use.path, EditedFile(use.path)), use, action.seq)
        elif use.alone and (shown := lines_shown_by(action)) is not None:
            file = self.by_path.setdefault(use.path, EditedFile(use.path))
            file.read_at, file.handle, file.unseen = action.seq, action.handle, False
            file.text.show(shown.first, shown.lines, whole=shown.whole)

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
        old = self.by_path.get(was)
        if old is not None:
            file.text = deepcopy(old.text)  # a copy is edited apart from its original
        if copied and is_backup(file.path, was):
            self.backups.add(file.path)
        elif not copied and old is not None and old is not file:
            del self.by_path[old.path]


def path_below(path: str, base: str) -> str:
    """A path relative to a folder, if it is below it."""
    return path.removeprefix(f"{base}/") if base else path
