"""Installation: values at places in a client's own files, planned first, written with a backup, undone to the byte."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.files import read_regular, replace_file
from contextstash.clients.client import Client, Hooks, Kind, Machine, WindowSetting, clients, hooks_of
from contextstash.clients.configuration_files import Edit, content, edited, put, remove, value_at
from contextstash.configuration.locations import data_folder
from contextstash_storage.databases import name_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

SERVER = "contextstash"

BACKUP = ".before-contextstash"

FOLDERS = "folders"
"""In the record of installations: no file's path."""

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest configuration that is changed, in bytes. Claude Code keeps its history in its own: some megabytes."""


@dataclass(frozen=True)
class Piece:
    """A value that is ours at a place in a file of a client: the `keys` to it, and in words `what` it is.

    With `marked`, the place holds a list of groups of hooks, of which those are ours whose command holds this text.
    A `setting` is the client's: it is taken back only if it still is as we set it, and the user's former value is there
    again. What is `noted` by the client itself is only removed, and the mapping around it stays, though it is empty.
    """

    path: Path
    kind: Kind
    keys: tuple[str, ...]
    value: Any
    what: str = ""
    marked: str = ""
    setting: bool = False
    noted: bool = False

    def add(self, data: MutableMapping[str, Any]) -> None:
        """Put the value there, behind those of others in a list."""
        if not self.noted:
            put(data, self.keys, [*self._others(data), self.value] if self.marked else self.value)

    def take(self, data: MutableMapping[str, Any], former: object = None, ours: object = None) -> None:
        """Take the value away; of a setting that still is `ours`, put back the user's in the `former` content."""
        around = value_at(data, self.keys[:-1])
        if not isinstance(around, MutableMapping) or self.keys[-1] not in around:
            return
        if self.setting and (ours is None or around[self.keys[-1]] != ours):
            return
        instead = self._others(data) if self.marked else value_at(former, self.keys) if self.setting else None
        if instead:
            around[self.keys[-1]] = instead
        elif self.noted:  # Claude Code takes a list of plugins without that mapping for damaged
            del around[self.keys[-1]]
        else:
            remove(data, self.keys)

    def _others(self, data: object) -> list[MutableMapping[str, Any]]:
        """The groups of hooks there without ours, nor a group that is empty then."""
        groups = value_at(data, self.keys) or ()
        rests = [[hook for hook in group.get("hooks", ()) if not _is_ours(hook, self.marked)] for group in groups]
        pairs = zip(groups, rests, strict=True)
        return [{**group, "hooks": rest} for group, rest in pairs if rest or not group.get("hooks")]


def _is_ours(hook: Any, marked: str) -> bool:
    command = str(hook.get("command")) if isinstance(hook, dict) else ""
    return "contextstash" in command and marked in command


@dataclass(frozen=True)
class Change:
    """A file before and after; None if it does not exist. `does`: what the change does, in words. `clean` is the file
    before without our parts; `window` is the value at which the client then compacts, if the change sets it."""

    path: Path
    before: bytes | None
    after: bytes | None
    does: tuple[str, ...] = ()
    clean: bytes | None = None
    window: float | None = None

    @property
    def needed(self) -> bool:
        return self.before != self.after


def plan_install(
    client: Client,
    machine: Machine,
    command: Sequence[str],
    *,
    database: Location | None = None,
    window: int | None = None,
) -> list[Change]:
    """The changes that an installation would make; server and hooks get the `database`, if one is named, and the client
    compacts at `window` tokens. Raises BadInputError if the client has no such setting, or if one of its files cannot
    be read."""
    named = () if database is None else ("--db", name_of(database))
    pieces = [*_pieces(client, machine, command, named)]
    if window is not None:
        pieces.append(_window(window_setting(client), machine, window))
    of_file = _by_file(_all_pieces(client, machine))
    changes = [_added(path, each, of_file[path]) for path, each in _by_file(pieces).items()]
    if (plugin := client.plugin) is not None:
        path = plugin.file(machine)
        changes.append(Change(path, _read(path), plugin.code(command, named), (plugin.does,)))
    return changes


def plan_uninstall(client: Client, machine: Machine) -> list[Change]:
    """The changes that undo an installation: to the byte if the file was not changed since, else only our part."""
    changes = [_undone(path, each) for path, each in _by_file(_all_pieces(client, machine)).items()]
    if (plugin := client.plugin) is not None:
        path = plugin.file(machine)
        current = _read(path)  # a file of another program that has our name stays
        is_ours = current is not None and plugin.is_ours(current)
        changes.append(Change(path, current, _former(path) if is_ours else current, ("without its plugin",)))
    return changes


def _all_pieces(client: Client, machine: Machine) -> list[Piece]:
    """Every part that an installation may have, to be removed."""
    pieces = [*_pieces(client, machine, [SERVER], ("--db", ""))]
    return pieces if client.window is None else [*pieces, _window(client.window, machine, 0)]


def _pieces(client: Client, machine: Machine, command: Sequence[str], named: Sequence[str]) -> Iterator[Piece]:
    """What is put into a client's files; `named` are the options that name the database."""
    if (bundle := client.bundle) is not None:
        path = bundle.file(machine)
        values = {**bundle.values, **({bundle.database: named[1]} if named else {})}
        for number, (keys, value) in enumerate(values.items()):
            yield Piece(path, "json", keys, value, bundle.does if number == 0 else "")
        for path, keys in bundle.traces(machine):
            yield Piece(path, "json", keys, None, noted=True)
        return
    if (entry := client.entry) is not None:
        follows = ("--follow", client.name) if client.files is not None else ()
        served = [*command, "serve", *follows, *named]
        what = f"the MCP server {SERVER}: {shlex.join(served)}"
        yield Piece(entry.file(machine), entry.kind, (entry.key, SERVER), entry.form(served), what)
    if client.hooks is not None:
        yield from hook_pieces(client, machine, command, named)


def hook_pieces(
    client: Client, machine: Machine, command: Sequence[str] = (SERVER,), named: Sequence[str] = ()
) -> Iterator[Piece]:
    """Our hooks, a piece for each event."""
    hooks = hooks_of(client)
    if hooks.file is None:
        return
    called = [*command, "hook", client.name]
    what = f"hooks for {', '.join(hooks.events)}: {shlex.join([*called, *named])}"
    for event in hooks.events:
        lines = [shlex.join([*called, *part, *named]) for part in _parts(hooks, event)]
        timeout = hooks.timeouts.get(event, hooks.timeout)
        group = {"hooks": [{"type": "command", "command": line, "timeout": timeout} for line in lines]}
        said = what if event == hooks.events[0] else ""
        yield Piece(hooks.file(machine), "json", ("hooks", event), group, said, f"hook {client.name}")


def _parts(hooks: Hooks, event: str) -> list[list[str]]:
    """The options of each hook of an event that say which part of a hand-off it gives."""
    if event != "SessionStart" or hooks.parts == 1:
        return [[]]
    return [["--part", f"{number}/{hooks.parts}"] for number in range(1, hooks.parts + 1)]


def missing_hooks(client: Client, machine: Machine, settings: object) -> list[str]:
    """The events without contextstash's hook in these settings."""
    missing = []
    for piece in hook_pieces(client, machine):
        groups = value_at(settings, piece.keys)
        given = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
        if not any(_is_ours(hook, piece.marked) for group in given for hook in group.get("hooks") or ()):
            missing.append(piece.keys[-1])
    return missing


def _window(setting: WindowSetting, machine: Machine, wanted: int) -> Piece:
    tokens = setting.nearest(wanted)
    value, key = setting.value(tokens), ".".join(setting.keys)
    what = f"our size of the window: {key} = {value}, so it compacts at {tokens:,} tokens{setting.why}"
    return Piece(setting.file(machine), setting.kind, setting.keys, value, what, setting=True)


def window_setting(client: Client) -> WindowSetting:
    """The setting at which a client compacts. Raises BadInputError if it has none."""
    if client.window is None:
        why = client.no_window or f"contextstash knows no setting of {client.name or 'this program'} for it"
        known = ", ".join(each.name for each in clients() if each.window)
        raise BadInputError(f"--window sets where a client compacts: {why}. Known: {known}.")
    return client.window


def _by_file(pieces: Iterable[Piece]) -> dict[Path, list[Piece]]:
    """The pieces of each file: Gemini CLI keeps servers and hooks in one."""
    found: dict[Path, list[Piece]] = {}
    for each in pieces:
        found.setdefault(each.path, []).append(each)
    return found


def _added(path: Path, pieces: Sequence[Piece], all_of_ours: Sequence[Piece]) -> Change:
    before, kind = _read(path), pieces[0].kind
    after = _edited(path, kind, before or b"", [each.add for each in pieces])
    window = next((each.value for each in pieces if each.setting), None)
    does = tuple(each.what for each in pieces if each.what)
    clean = None if before is None else _without(path, all_of_ours, before)
    return Change(path, before, before if after is None else after, does, clean, window)


def _undone(path: Path, pieces: Sequence[Piece]) -> Change:
    current = _read(path)
    if current is None:
        return Change(path, None, None)
    without = _without(path, pieces, current)
    gone = [each for each in pieces if each.what and _without(path, [each], current) != current]
    does = tuple(f"without {each.what.partition(':')[0]}" for each in gone)
    written = _records().get(str(path))
    is_as_written = written is not None and written["after"] == _digest(current)
    return Change(path, current, _former(path) if is_as_written else without, does)


def _without(path: Path, pieces: Sequence[Piece], data: bytes) -> bytes:
    """A file without these pieces: the same bytes if it has none of them."""
    kind, ours = pieces[0].kind, _records().get(str(path), {}).get("window")
    former = content(kind, _decoded(_former(path) or b"", path), str(path))

    def take(each: Piece) -> Edit:
        return lambda held: each.take(held, former, ours)

    return _edited(path, kind, data, [take(each) for each in pieces]) or data


def _former(path: Path) -> bytes | None:
    """The file as it was before the first installation; None if there was none."""
    return _read(_backup(path)) if _records().get(str(path), {}).get("existed") else None


def _edited(path: Path, kind: Kind, data: bytes, edits: Sequence[Edit]) -> bytes | None:
    """The file after the edits; None if they change nothing but the layout."""

    def all_of_them(content: MutableMapping[str, Any]) -> None:
        for each in edits:
            each(content)

    text = _decoded(data, path)
    after = edited(kind, text, all_of_them, str(path))
    return after.encode() if after != edited(kind, text, lambda _: None, str(path)) else None


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}. Nothing was written.") from error


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path} is not UTF-8 text. Nothing was written.") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _record_file() -> Path:
    return data_folder() / "installs.json"


def _records() -> dict[str, Any]:
    """By file, the SHA-256 of what we wrote last (`after`), whether the file existed before (`existed`), and the value
    that we set for where the client compacts (`window`); under FOLDERS, the folders that were made for them."""
    try:
        found = json.loads(_record_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _record(path: Path, entry: dict[str, Any] | None, made: Sequence[Path] = ()) -> None:
    """Note what was written, and the folders that were made for it; without an entry, that it is gone. Folders that are
    empty then go too."""
    records = _records()
    folders = {*records.pop(FOLDERS, ()), *map(str, made)}
    records.pop(str(path), None)
    if entry is not None:
        records[str(path)] = entry
    left = [each for each in sorted(folders, key=len, reverse=True) if entry is not None or not _removed(Path(each))]
    if left:
        records[FOLDERS] = left
    if records:
        replace_file(_record_file(), json.dumps(records, indent=2).encode(), mode=0o600)
    else:
        _record_file().unlink(missing_ok=True)


def _removed(folder: Path) -> bool:
    with suppress(OSError):  # it is not empty, or the user has removed it
        folder.rmdir()
    return not folder.exists()


def apply_install(change: Change) -> None:
    """Write a file and keep a backup next to it. A later installation keeps the first backup as long as no one else has
    changed the file; then the backup is what they made of it, without our parts."""
    if not change.needed or change.after is None:
        return
    known = _records().get(str(change.path), {})
    existed = change.before is not None
    if change.before is not None and known.get("after") == _digest(change.before):
        existed = known["existed"]
    elif change.before is not None:
        # Another program may have put a link of this name there, which would direct the copy to any file of the user.
        kept = change.before if change.clean is None else change.clean
        replace_file(_backup(change.path), kept, mode=0o600, follow_links=False)
    made = [each for each in change.path.parents if not each.exists()]
    replace_file(change.path, change.after)
    window = known.get("window") if change.window is None else change.window
    _record(change.path, {"after": _digest(change.after), "existed": existed, "window": window}, made)


def apply_uninstall(change: Change) -> None:
    """Write a file back, or delete it if there was none before, and the folders that were made for it."""
    if change.needed and change.after is not None:
        replace_file(change.path, change.after)
    elif change.needed:
        change.path.unlink()
    _backup(change.path).unlink(missing_ok=True)
    _record(change.path, None)
