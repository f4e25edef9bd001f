"""Installation: values at places in a client's own files, planned first, written with a backup, undone to the byte."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.files import read_regular, replace_file
from contextstash.clients.client import Client, Hooks, Kind, Machine, WindowSetting, clients, hooks_of
from contextstash.clients.configuration_files import Edit, content, edited, put, remove, value_at
from contextstash.configuration.database import data_folder
from contextstash_storage.databases import name_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

SERVER = "contextstash"

BACKUP = ".before-contextstash"

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest configuration that is changed, in bytes. Claude Code keeps its history in its own: some megabytes."""

Keys = tuple[str, ...]


def own_command(executable: str = sys.executable) -> list[str]:
    """The command that starts this installation of contextstash: the script next to its interpreter, by absolute path,
    because clients have another PATH; else the module. Never the name on the package index, which is not ours yet."""
    for name in ("contextstash", "contextstash.exe"):
        script = Path(executable).with_name(name)
        if script.is_file():
            return [str(script)]
    # -P: clients start it in the project's folder, from which `-m` alone would import first
    return [executable, "-P", "-m", "contextstash"]


@dataclass(frozen=True)
class Piece:
    """What we put into a file of a client: how it is put there, how it is taken away, and in words `what` it is.
    `window` is the place and the value of the setting at which the client compacts, if it is that."""

    path: Path
    kind: Kind
    add: Edit
    take: Edit
    what: str = ""
    window: tuple[Keys, float] | None = None


@dataclass(frozen=True)
class Change:
    """A file before and after; None if it does not exist. `does`: what the change does, in words. `window`: the value
    at which the client compacts then, and the user's own, if the change sets it."""

    path: Path
    before: bytes | None
    after: bytes | None
    does: tuple[str, ...] = ()
    window: tuple[float, Any] | None = None

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
    changes = [_added(path, each) for path, each in _by_file(pieces).items()]
    if (plugin := client.plugin) is not None:
        path = plugin.file(machine)
        changes.append(Change(path, _read(path), plugin.code(command, named), (plugin.does,)))
    return changes


def plan_uninstall(client: Client, machine: Machine) -> list[Change]:
    """The changes that undo an installation: to the byte if the file was not changed since, else only our part."""
    pieces = [*_pieces(client, machine, [SERVER], ("--db", ""))]
    if client.window is not None:
        pieces.append(_window(client.window, machine, 0))
    changes = [_undone(path, each) for path, each in _by_file(pieces).items()]
    if (plugin := client.plugin) is not None:
        path = plugin.file(machine)
        current = _read(path)  # a file of another program that has our name stays
        is_ours = current is not None and plugin.is_ours(current)
        changes.append(Change(path, current, _former(path) if is_ours else current, ("without its plugin",)))
    return changes


def _pieces(client: Client, machine: Machine, command: Sequence[str], named: Sequence[str]) -> Iterator[Piece]:
    """What is put into a client's files; `named` are the options that name the database."""
    if (bundle := client.bundle) is not None:
        path = bundle.file(machine)
        values = {**bundle.values, **({bundle.database: named[1]} if named else {})}
        for number, (keys, value) in enumerate(values.items()):
            yield _value(path, "json", keys, value, bundle.does if number == 0 else "")
        for path, keys in bundle.traces(machine):
            yield Piece(path, "json", lambda _: None, _leaf_taken(keys))
        return
    if (entry := client.entry) is not None:
        follows = ("--follow", client.name) if client.files is not None else ()
        served = [*command, "serve", *follows, *named]
        what = f"the MCP server {SERVER}: {shlex.join(served)}"
        yield _value(entry.file(machine), entry.kind, (entry.key, SERVER), entry.form(served), what)
    if client.hooks is not None and client.hooks.file is not None:
        called = [*command, "hook", client.name]
        what = f"hooks for {', '.join(client.hooks.events)}: {shlex.join([*called, *named])}"
        for event in client.hooks.events:
            lines = [shlex.join([*called, *part, *named]) for part in _parts(client.hooks, event)]
            timeout = client.hooks.timeouts.get(event, client.hooks.timeout)
            group = {"hooks": [{"type": "command", "command": line, "timeout": timeout} for line in lines]}
            said = what if event == client.hooks.events[0] else ""
            yield _group(client.hooks.file(machine), ("hooks", event), group, f"hook {client.name}", said)


def _parts(hooks: Hooks, event: str) -> list[list[str]]:
    """The options of each hook of an event that say which part of a hand-off it gives."""
    if event != "SessionStart" or hooks.parts == 1:
        return [[]]
    return [["--part", f"{number}/{hooks.parts}"] for number in range(1, hooks.parts + 1)]


def _value(path: Path, kind: Kind, keys: Keys, value: object, what: str) -> Piece:
    return Piece(path, kind, lambda data: put(data, keys, value), lambda data: remove(data, keys), what)


def _leaf_taken(keys: Keys) -> Edit:
    """Removes what the client itself noted. The mapping around it stays, though it is empty: Claude Code takes a list
    of plugins without it for damaged."""

    def take(data: MutableMapping[str, Any]) -> None:
        around = value_at(data, keys[:-1])
        if isinstance(around, MutableMapping):
            around.pop(keys[-1], None)

    return take


def _group(path: Path, keys: Keys, group: object, marked: str, what: str) -> Piece:
    """A group of hooks in the list of an event, behind those of others; ours are those whose command is `marked`."""

    def add(data: MutableMapping[str, Any]) -> None:
        put(data, keys, [*_others(_groups(data, keys), marked), group])

    def take(data: MutableMapping[str, Any]) -> None:
        groups = _groups(data, keys)
        others = _others(groups, marked)
        if others and others != groups:
            put(data, keys, others)
        elif others != groups:
            remove(data, keys)

    return Piece(path, "json", add, take, what)


def _groups(data: object, keys: Keys) -> list[dict[str, Any]]:
    """The groups of hooks of an event. Raises BadInputError if something else is there."""
    found = value_at(data, keys) or []
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(each, dict) and isinstance(each.get("hooks", []), list) for each in listed):
        raise BadInputError(f"'{'.'.join(keys)}' in that file does not list groups of hooks. Nothing was written.")
    return listed


def _others(groups: Iterable[dict[str, Any]], marked: str) -> list[dict[str, Any]]:
    """The groups of hooks without ours, nor a group that is empty then."""
    pairs = [(each, [hook for hook in each.get("hooks", ()) if not _is_ours(hook, marked)]) for each in groups]
    return [{**group, "hooks": rest} for group, rest in pairs if rest or not group.get("hooks")]


def _is_ours(hook: Any, marked: str) -> bool:
    command = str(hook.get("command")) if isinstance(hook, dict) else ""
    return "contextstash" in command and marked in command


def missing_hooks(client: Client, settings: object) -> list[str]:
    """The events without contextstash's hook in these settings."""
    missing = []
    for event in hooks_of(client).events:
        groups = value_at(settings, ("hooks", event))
        given = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
        if not any(_is_ours(hook, f"hook {client.name}") for group in given for hook in group.get("hooks") or ()):
            missing.append(event)
    return missing


def _window(setting: WindowSetting, machine: Machine, wanted: int) -> Piece:
    """The client's own setting. It is taken back only if it is still as we set it, and the user's own is there then."""
    tokens, path, keys = setting.nearest(wanted), setting.file(machine), setting.keys
    value = setting.value(tokens)
    what = f"our size of the window: {'.'.join(keys)} = {value}, so it compacts at {tokens:,} tokens{setting.why}"

    def take(data: MutableMapping[str, Any]) -> None:
        ours, own = _record(path).get("window") or (None, None)
        if ours is None or value_at(data, keys) != ours:
            return
        if own is None:
            remove(data, keys)
        else:
            put(data, keys, own)

    return Piece(path, setting.kind, lambda data: put(data, keys, value), take, what, (keys, value))


def window_setting(client: Client) -> WindowSetting:
    """The setting at which a client compacts. Raises BadInputError if it has none."""
    if client.window is None:
        why = client.no_window or f"contextstash knows no setting of {client.name} for it"
        known = ", ".join(each.name for each in clients() if each.window)
        raise BadInputError(f"--window sets where a client compacts: {why}. Known: {known}.")
    return client.window


def _by_file(pieces: Iterable[Piece]) -> dict[Path, list[Piece]]:
    """The pieces of each file: Gemini CLI keeps servers and hooks in one."""
    found: dict[Path, list[Piece]] = {}
    for each in pieces:
        found.setdefault(each.path, []).append(each)
    return found


def _added(path: Path, pieces: Sequence[Piece]) -> Change:
    before, kind = _read(path), pieces[0].kind
    after = _edited(path, kind, before or b"", [each.add for each in pieces])
    window = None
    for keys, value in (each.window for each in pieces if each.window is not None):
        own = value_at(content(kind, _decoded(before or b"", path), str(path)), keys)
        known = _record(path).get("window")
        window = (value, known[1] if known and own == known[0] else own)
    does = tuple(each.what for each in pieces if each.what)
    return Change(path, before, before if after is None else after, does, window)


def _undone(path: Path, pieces: Sequence[Piece]) -> Change:
    current, kind = _read(path), pieces[0].kind
    if current is None:
        return Change(path, None, None)
    gone = [each for each in pieces if each.what and _edited(path, kind, current, [each.take]) is not None]
    does = tuple(f"without {each.what.partition(':')[0]}" for each in gone)
    if _record(path).get("after") == _digest(current):
        return Change(path, current, _former(path), does)
    return Change(path, current, _edited(path, kind, current, [each.take for each in pieces]) or current, does)


def _former(path: Path) -> bytes | None:
    """The file as it was before the first installation; None if there was none."""
    return _read(_backup(path)) if _record(path).get("existed") else None


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
    """By file: the SHA-256 of what we wrote last (`after`; None if someone else has changed the file between two
    installations), whether it `existed` before the first one, and the `window`, our value and the user's own."""
    try:
        found = json.loads(_record_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _record(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = _records().get(str(path), {})
    return found


def _write_record(path: Path, entry: dict[str, Any] | None) -> None:
    """Note what was written; without an entry, that it is gone."""
    records = {name: each for name, each in _records().items() if name != str(path)}
    if entry is not None:
        records[str(path)] = entry
    if records:
        replace_file(_record_file(), json.dumps(records, indent=2).encode(), mode=0o600)
    else:
        _record_file().unlink(missing_ok=True)


def apply_install(change: Change) -> None:
    """Write a file, and at the first installation keep a backup next to it. If someone else has changed the file since,
    its bytes are not brought back: only our parts are taken out of it."""
    if not change.needed or change.after is None:
        return
    known, after = _record(change.path), _digest(change.after)
    entry = {"after": after, "existed": change.before is not None, "window": change.window or known.get("window")}
    if known and change.before is not None:
        is_ours = known["after"] == _digest(change.before)
        entry |= {"existed": known["existed"], "after": after if is_ours else None}
    elif change.before is not None:
        # Another program may have put a link of this name there, which would direct the copy to any file of the user.
        replace_file(_backup(change.path), change.before, mode=0o600, follow_links=False)
    replace_file(change.path, change.after)
    _write_record(change.path, entry)


def apply_uninstall(change: Change) -> None:
    """Write a file back, or delete it if there was none before."""
    if change.needed and change.after is not None:
        replace_file(change.path, change.after)
    elif change.needed:
        change.path.unlink()
    _backup(change.path).unlink(missing_ok=True)
    _write_record(change.path, None)
