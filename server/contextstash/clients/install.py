"""Installation: changes of a client's own configuration, planned first, written with a backup, undone to the byte."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.files import is_below, read_regular, replace_file
from contextstash.clients.client import (
    Bundle,
    Client,
    Hooks,
    Kind,
    Machine,
    Scope,
    WindowSetting,
    clients,
    hooks_of,
)
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
    """A part of an installation in a file of the client: how it is added and removed, each with a line in words.
    `window` is the value at which the client then compacts, if the part sets it."""

    path: Path
    kind: Kind
    add: Edit
    adds: str
    remove: Edit
    removes: str
    window: float | None = None


@dataclass(frozen=True)
class Change:
    """A file before and after; None if it does not exist. `does`: what the change does, in words. `clean` is the file
    before without our parts; `window` as in the piece that sets it."""

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
    scope: Scope,
    machine: Machine,
    command: Sequence[str],
    *,
    database: Location | None = None,
    window: int | None = None,
) -> list[Change]:
    """The changes that an installation would make; server and hooks get the `database`, if one is named, and the client
    compacts at `window` tokens. Raises BadInputError if the client has no such scope or no such setting, or if one of
    its files cannot be read."""
    pieces = _pieces(client, scope, machine, command, database, window)
    all_of_ours = dict(_by_file(_all_pieces(client, scope, machine), scope, machine))
    changes = [_added(path, each, all_of_ours[path]) for path, each in _by_file(pieces, scope, machine)]
    if (plugin := client.plugin) is not None and scope == "user":
        path, code = plugin.file(machine), plugin.code(command, _options(database))
        changes.append(Change(path, _read(path), code, (plugin.does,)))
    return changes


def plan_uninstall(client: Client, scope: Scope, machine: Machine) -> list[Change]:
    """The changes that undo an installation: to the byte if the file was not changed since, else only our part."""
    pieces = _all_pieces(client, scope, machine)
    changes = [_undone(path, each) for path, each in _by_file(pieces, scope, machine)]
    if (plugin := client.plugin) is not None and scope == "user":
        path = plugin.file(machine)
        current = _read(path)  # a file of another program that has our name stays
        is_ours = current is not None and plugin.is_ours(current)
        changes.append(Change(path, current, _former(path) if is_ours else current, ("without its plugin",)))
    return changes


def _all_pieces(client: Client, scope: Scope, machine: Machine) -> list[Piece]:
    """Every part that an installation may have, to be removed."""
    return _pieces(client, scope, machine, [SERVER], None, None if client.window is None else 0)


def _pieces(
    client: Client,
    scope: Scope,
    machine: Machine,
    command: Sequence[str],
    database: Location | None,
    window: int | None,
) -> list[Piece]:
    named = _options(database)
    bundle = client.bundle if scope == "user" else None
    pieces = []
    if bundle is not None:
        pieces += [_bundle(bundle, machine, database), *(_trace(*noted) for noted in bundle.traces(machine))]
    elif client.entry is not None or client.plugin is None or scope != "user":
        follows = ("--follow", client.name) if client.files is not None else ()
        pieces.append(_server(client, scope, machine, [*command, "serve", *follows, *named]))
    if client.hooks is not None and bundle is None:
        pieces.append(_hooks(client, scope, machine, command, named))
    if window is not None:
        pieces.append(_window(window_setting(client), scope, machine, window))
    return pieces


def _options(database: Location | None) -> tuple[str, ...]:
    """The options by which what is installed names its database."""
    return () if database is None else ("--db", name_of(database))


def _server(client: Client, scope: Scope, machine: Machine, command: Sequence[str]) -> Piece:
    entry = client.entry
    if entry is None:
        raise BadInputError(f"{client.name} starts no MCP servers, but its sessions can be read: contextstash import")
    if scope not in entry.scopes:
        raise BadInputError(f"{client.name} has no configuration of the scope {scope}; leave --scope out.")
    keys, value = (entry.key, SERVER), entry.form(command)
    return Piece(
        entry.file(machine, scope),
        entry.kind,
        lambda data: put(data, keys, value),
        f"the MCP server {SERVER}: {shlex.join(command)}",
        lambda data: remove(data, keys),
        f"without the MCP server {SERVER}",
    )


def _bundle(bundle: Bundle, machine: Machine, database: Location | None) -> Piece:
    """The client's plugin: values that make it load one from a folder of this package, and the database."""
    values = dict(bundle.values) if database is None else {**bundle.values, bundle.database: name_of(database)}

    def add(data: MutableMapping[str, Any]) -> None:
        for keys, value in values.items():
            put(data, keys, value)

    def take(data: MutableMapping[str, Any]) -> None:
        for keys in (*bundle.values, bundle.database):
            remove(data, keys)

    return Piece(bundle.file(machine), "json", add, bundle.does, take, "without our plugin")


def _trace(path: Path, keys: Sequence[str]) -> Piece:
    """What the client itself has noted of our plugin. Nothing is added there, and the mapping that it stood in stays:
    Claude Code takes a list of plugins without one for damaged."""

    def take(data: MutableMapping[str, Any]) -> None:
        around = value_at(data, keys[:-1])
        if isinstance(around, MutableMapping):
            around.pop(keys[-1], None)

    return Piece(path, "json", lambda data: None, "", take, "without its note of our plugin")


def _hooks(client: Client, scope: Scope, machine: Machine, command: Sequence[str], options: Sequence[str]) -> Piece:
    hooks = hooks_of(client)
    return Piece(
        hooks.file(machine, scope),
        "json",
        lambda data: add_hooks(client, data, command, options),
        f"hooks for {', '.join(hooks.events)}: {shlex.join([*command, 'hook', client.name, *options])}",
        lambda data: remove_hooks(client, data),
        "without its hooks",
    )


def _window(setting: WindowSetting, scope: Scope, machine: Machine, wanted: int) -> Piece:
    """What sets where the client compacts. It is taken back only if it still is as we set it: then the value of the
    backup is there again."""
    path, key = setting.file(machine, scope), ".".join(setting.keys)
    tokens = setting.nearest(wanted)
    value, ours = setting.value(tokens), _records().get(str(path), {}).get("window")

    def take_back(data: MutableMapping[str, Any]) -> None:
        former = content(setting.kind, _decoded(_former(path) or b"", path), str(path))
        if ours is not None and value_at(data, setting.keys) == ours:
            was = value_at(former, setting.keys)
            put(data, setting.keys, was) if was is not None else remove(data, setting.keys)

    adds = f"compaction at {tokens:,} tokens: {key} = {value}{setting.why}"
    return Piece(
        path,
        setting.kind,
        lambda data: put(data, setting.keys, value),
        adds,
        take_back,
        f"with the former {key}",
        value,
    )


def window_setting(client: Client) -> WindowSetting:
    """The setting at which a client compacts. Raises BadInputError if it has none."""
    if client.window is None:
        why = client.no_window or f"contextstash knows no setting of {client.name or 'this program'} for it"
        known = ", ".join(each.name for each in clients() if each.window)
        raise BadInputError(f"--window sets where a client compacts: {why}. Known: {known}.")
    return client.window


def add_hooks(
    client: Client, settings: MutableMapping[str, Any], command: Sequence[str], options: Sequence[str] = ()
) -> None:
    """Put our hooks behind the others of each event, in the place of those that are there already."""
    given, hooks = hooks_of(client), settings.setdefault("hooks", {})
    for event in given.events:
        lines = [shlex.join([*command, "hook", client.name, *part, *options]) for part in _parts(given, event)]
        timeout = given.timeouts.get(event, given.timeout)
        ours = {"hooks": [{"type": "command", "command": line, "timeout": timeout} for line in lines]}
        hooks[event] = [*_others(client, hooks.get(event, ())), ours]


def _parts(hooks: Hooks, event: str) -> list[list[str]]:
    """The options of each hook of an event that say which part of a hand-off it gives."""
    if event != "SessionStart" or hooks.parts == 1:
        return [[]]
    return [["--part", f"{number}/{hooks.parts}"] for number in range(1, hooks.parts + 1)]


def remove_hooks(client: Client, settings: MutableMapping[str, Any]) -> None:
    """Remove our hook from every event, and what is empty after that."""
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict):
        return
    for event in list(hooks):
        hooks[event] = _others(client, hooks[event])
        if not hooks[event]:
            del hooks[event]
    if not hooks:
        del settings["hooks"]


def _others(client: Client, groups: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """The groups of an event's hooks without ours, nor a group that is empty then."""
    rests = [[hook for hook in group.get("hooks", ()) if not _is_our_hook(client, hook)] for group in groups]
    pairs = zip(groups, rests, strict=True)
    return [{**group, "hooks": rest} for group, rest in pairs if rest or not group.get("hooks")]


def missing_hooks(client: Client, settings: Any) -> list[str]:
    """The events without contextstash's hook in these settings."""
    found = settings.get("hooks") if isinstance(settings, dict) else None
    groups = found if isinstance(found, dict) else {}
    return [event for event in hooks_of(client).events if not _has_our_hook(client, groups.get(event))]


def _has_our_hook(client: Client, groups: Any) -> bool:
    given = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    return any(_is_our_hook(client, hook) for group in given for hook in group.get("hooks") or ())


def _is_our_hook(client: Client, hook: Any) -> bool:
    command = str(hook.get("command")) if isinstance(hook, dict) else ""
    return "contextstash" in command and f"hook {client.name}" in command


def _by_file(entries: Sequence[Piece], scope: Scope, machine: Machine) -> list[tuple[Path, list[Piece]]]:
    """The entries of each file: Gemini CLI keeps servers and hooks in one. Raises BadInputError if a file of a project
    is a link out of it: the author of the repository could direct the edit to any file of the user."""
    found: dict[Path, list[Piece]] = {}
    for each in entries:
        if scope == "project" and not is_below(each.path, machine.project):
            raise BadInputError(f"{each.path} is a link out of the project. Nothing was written.")
        found.setdefault(each.path, []).append(each)
    return list(found.items())


def _added(path: Path, pieces: Sequence[Piece], all_of_ours: Sequence[Piece]) -> Change:
    before, kind = _read(path), pieces[0].kind
    after = _edited(path, kind, before or b"", [each.add for each in pieces])
    clean = None if before is None else _edited(path, kind, before, [each.remove for each in all_of_ours]) or before
    window = next((each.window for each in pieces if each.window is not None), None)
    does = tuple(each.adds for each in pieces if each.adds)
    return Change(path, before, before if after is None else after, does, clean, window)


def _undone(path: Path, entries: Sequence[Piece]) -> Change:
    current = _read(path)
    if current is None:
        return Change(path, None, None)
    kind = entries[0].kind
    effective = [each for each in entries if _edited(path, kind, current, [each.remove]) is not None]
    does = tuple(each.removes for each in effective)
    if _is_as_written(path, current):
        return Change(path, current, _former(path), does)
    return Change(path, current, _edited(path, kind, current, [each.remove for each in effective]) or current, does)


def _is_as_written(path: Path, current: bytes) -> bool:
    written = _records().get(str(path))
    return written is not None and written["after"] == _digest(current)


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
    known = _records().get(str(change.path))
    existed = change.before is not None
    if known is not None and change.before is not None and known["after"] == _digest(change.before):
        existed = known["existed"]
    elif change.before is not None:
        # A repository may contain a link of this name, which would direct the copy to any file of the user.
        kept = change.before if change.clean is None else change.clean
        replace_file(_backup(change.path), kept, mode=0o600, follow_links=False)
    made = [each for each in change.path.parents if not each.exists()]
    replace_file(change.path, change.after)
    window = (known or {}).get("window") if change.window is None else change.window
    _record(change.path, {"after": _digest(change.after), "existed": existed, "window": window}, made)


def apply_uninstall(change: Change) -> None:
    """Write a file back, or delete it if there was none before, and the folders that were made for it."""
    if change.needed and change.after is not None:
        replace_file(change.path, change.after)
    elif change.needed:
        change.path.unlink()
    _backup(change.path).unlink(missing_ok=True)
    _record(change.path, None)
