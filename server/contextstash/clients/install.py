"""Installation: changes of a client's own configuration, planned first, written with a backup, undone to the byte."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.atomic_file import replace_file
from contextstash.base.regular_files import is_below, read_regular
from contextstash.clients.client import (
    Bundle,
    Client,
    Hooks,
    Kind,
    Machine,
    Plugin,
    Scope,
    WindowSetting,
    clients,
    hooks_of,
)
from contextstash.clients.configuration_files import Edit, content, edited, put, remove, value_at
from contextstash.configuration.locations import data_folder
from contextstash_storage.databases import text_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

KEY = "statusLine"

SERVER = "contextstash"

BACKUP = ".before-contextstash"

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest configuration that is changed, in bytes. Claude Code keeps its history in its own: some megabytes."""


@dataclass(frozen=True)
class Piece:
    """A part of an installation in a file of the client: how it is added and removed, each with a line in words."""

    path: Path
    kind: Kind
    add: Edit
    adds: str
    remove: Edit
    removes: str


@dataclass(frozen=True)
class Change:
    """A file before and after; None if it does not exist. `does`: what the change does, in words. `window` is the value
    that sets where the client compacts, and that of `before`, if the change sets it."""

    path: Path
    before: bytes | None
    after: bytes | None
    does: tuple[str, ...] = ()
    window: Mapping[str, Any] | None = None

    @property
    def needed(self) -> bool:
        return self.before != self.after


def plan_install(
    client: Client,
    scope: Scope,
    machine: Machine,
    command: Sequence[str],
    *,
    hooks: bool,
    statusline: bool = False,
    database: Location | None = None,
    window: int | None = None,
) -> list[Change]:
    """The changes that an installation would make; server and hooks get the `database`, if one is named, and the client
    compacts at `window` tokens. Raises BadInputError if the client has no such scope, no hooks or no such setting, or
    if one of its files cannot be read."""
    if hooks and client.hooks is None:
        known = ", ".join(each.name for each in clients() if each.hooks)
        raise BadInputError(f"contextstash has hooks for {known}, not for {client.name}. Leave --hooks out.")
    named = () if database is None else ("--db", text_of(database))
    follows = ("--follow", client.name) if client.files is not None else ()
    plugin = client.plugin if scope == "user" else None
    bundle = client.bundle if scope == "user" else None
    entries = []
    if bundle is not None:
        entries.append(_bundle(bundle, machine, database))
    elif client.entry is not None or plugin is None:
        entries.append(_server(client, scope, machine, [*command, "serve", *follows, *named]))
    if hooks and bundle is None:
        entries.append(_hooks(client, scope, machine, command, named))
    if statusline:
        entries.append(_status_line(client, scope, machine, [*command, "statusline", *named]))
    written: dict[str, Any] = {}
    if window is not None:
        entries.append(_window(window_setting(client), scope, machine, window, written))
    changes = [_added(path, of_file) for path, of_file in _by_file(entries, scope, machine)]
    changes = [replace(each, window=written if each.path == entries[-1].path else None) for each in changes]
    if plugin is not None:
        path, code = plugin.file(machine), plugin.code(command, named)
        changes.append(Change(path, _read(path), code, (plugin.does,)))
    return changes


def plan_uninstall(client: Client, scope: Scope, machine: Machine) -> list[Change]:
    """The changes that undo an installation: to the byte if the file was not changed since, else only our part."""
    plugin = client.plugin if scope == "user" else None
    bundle = client.bundle if scope == "user" else None
    entries = []
    if bundle is not None:
        entries.append(_bundle(bundle, machine, None))
        entries += [_trace(path, keys) for path, keys in bundle.traces(machine)]
    elif client.entry is not None or plugin is None:
        entries.append(_server(client, scope, machine, [SERVER]))
    if client.hooks is not None and bundle is None:
        entries.append(_hooks(client, scope, machine, [SERVER], ()))
    if client.has_status_line:
        entries.append(_status_line(client, scope, machine, [SERVER]))
    if client.window is not None:
        entries.append(_window(client.window, scope, machine, 0, {}))
    changes = [_undone(path, of_file) for path, of_file in _by_file(entries, scope, machine)]
    return changes if plugin is None else [*changes, _without_plugin(plugin, plugin.file(machine))]


def _server(client: Client, scope: Scope, machine: Machine, command: Sequence[str]) -> Piece:
    entry = client.entry
    if entry is None:
        raise BadInputError(f"{client.name} starts no MCP servers, but its sessions can be read: contextstash import")
    if scope not in entry.files:
        raise BadInputError(f"{client.name} has no configuration of the scope {scope}; leave --scope out.")
    keys, value = (entry.key, SERVER), entry.form(command)
    return Piece(
        entry.files[scope](machine),
        entry.kind,
        lambda data: put(data, keys, value),
        f"the MCP server {SERVER}: {shlex.join(command)}",
        lambda data: remove(data, keys),
        f"without the MCP server {SERVER}",
    )


def _bundle(bundle: Bundle, machine: Machine, database: Location | None) -> Piece:
    """The client's plugin: values that make it load one from a folder of this package, and the database."""
    values = dict(bundle.values) if database is None else {**bundle.values, bundle.database: text_of(database)}

    def add(data: MutableMapping[str, Any]) -> None:
        for keys, value in values.items():
            put(data, keys, value)

    def take(data: MutableMapping[str, Any]) -> None:
        for keys in (*bundle.values, bundle.database):
            remove(data, keys)

    return Piece(bundle.file(machine), "json", add, bundle.does, take, "without our plugin")


def _trace(path: Path, keys: Sequence[str]) -> Piece:
    """What the client itself has noted of our plugin. Nothing is added there."""
    return Piece(path, "json", lambda data: None, "", lambda data: remove(data, keys), "without its note of our plugin")


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


def _status_line(client: Client, scope: Scope, machine: Machine, command: Sequence[str]) -> Piece:
    line = shlex.join(command)
    return Piece(
        status_line_file(client, scope, machine),
        "json",
        lambda data: put(data, (KEY,), {"type": "command", "command": line}),
        f"the status line: {line}",
        lambda data: remove(data, (KEY,)) if is_ours(data.get(KEY)) else None,
        "without its status line",
    )


def _window(setting: WindowSetting, scope: Scope, machine: Machine, wanted: int, written: dict[str, Any]) -> Piece:
    """What sets where the client compacts, for all models and for those that have a value of their own. It notes in
    `written` what it sets, and what stood at each place before: a value that an earlier installation has set is not the
    user's. What the user has changed since stays."""
    tokens, path = setting.nearest(wanted), setting.file(machine, scope)
    value, key = setting.value(tokens), ".".join(setting.keys)
    earlier = _records().get(str(path), {}).get("window") or {"value": None, "before": []}

    def add(data: MutableMapping[str, Any]) -> None:
        models = value_at(data, [setting.models]) if setting.models else None
        own = [[setting.models, name, setting.keys[-1]] for name in models or () if isinstance(models, Mapping)]
        places = [[*setting.keys], *(keys for keys in own if value_at(data, keys) is not None)]
        before = []
        for keys in places:
            present = value_at(data, keys)
            known = [was for place, was in earlier["before"] if place == keys and present == earlier["value"]]
            before.append([keys, known[0] if known else present])
            put(data, keys, value)
        written.update(value=value, before=before)

    def take_back(data: MutableMapping[str, Any]) -> None:
        for keys, was in earlier["before"]:
            if value_at(data, keys) == earlier["value"]:
                put(data, keys, was) if was is not None else remove(data, keys)

    adds = f"compaction at {tokens:,} tokens: {key} = {value}{setting.why}"
    return Piece(path, setting.kind, add, adds, take_back, f"with the former {key}")


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
    """Add our hooks to each event, once; those that are there already get the new commands. Other hooks stay."""
    given, hooks = hooks_of(client), settings.setdefault("hooks", {})
    for event in given.events:
        lines = [shlex.join([*command, "hook", client.name, *part, *options]) for part in _parts(given, event)]
        groups = hooks.setdefault(event, [])
        ours = [hook for group in groups for hook in group.get("hooks", ()) if _is_our_hook(client, hook)]
        timeout = given.timeouts.get(event, given.timeout)
        for hook, line in zip(ours, lines, strict=False):
            hook["command"] = line
            if event in given.timeouts:
                hook["timeout"] = timeout
        if more := lines[len(ours) :]:
            own = next(
                (group for group in groups if any(_is_our_hook(client, h) for h in group.get("hooks", ()))), None
            )
            if own is None:
                groups.append(own := {"hooks": []})
            own["hooks"] += [{"type": "command", "command": line, "timeout": timeout} for line in more]


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
        groups = []
        for group in hooks[event]:
            rest = [hook for hook in group.get("hooks", ()) if not _is_our_hook(client, hook)]
            if rest or not group.get("hooks"):
                groups.append({**group, "hooks": rest})
        hooks[event] = groups
        if not groups:
            del hooks[event]
    if not hooks:
        del settings["hooks"]


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


def is_ours(line: Any) -> bool:
    """Whether a status line is ours."""
    command = str(line.get("command")) if isinstance(line, Mapping) else ""
    return "contextstash" in command and "statusline" in command


def status_line_file(client: Client, scope: Scope, machine: Machine) -> Path:
    """The file with the client's status line. Raises BadInputError if it has none that can be set."""
    if not client.has_status_line:
        known = ", ".join(each.name for each in clients() if each.has_status_line)
        raise BadInputError(f"contextstash has a status line for {known} only. Leave --statusline out.")
    return hooks_of(client).file(machine, scope)


def other_status_line(client: Client, scope: Scope, machine: Machine) -> str | None:
    """The command of the status line that the user has already, if it is not ours."""
    path = status_line_file(client, scope, machine)
    line = content("json", _decoded(_read(path) or b"", path), str(path)).get(KEY)
    if not line or is_ours(line):
        return None
    return str(line.get("command") if isinstance(line, Mapping) else line)


def _by_file(entries: Sequence[Piece], scope: Scope, machine: Machine) -> list[tuple[Path, list[Piece]]]:
    """The entries of each file: Gemini CLI keeps servers and hooks in one. Raises BadInputError if a file of a project
    is a link out of it: the author of the repository could direct the edit to any file of the user."""
    found: dict[Path, list[Piece]] = {}
    for each in entries:
        if scope == "project" and not is_below(each.path, machine.project):
            raise BadInputError(f"{each.path} is a link out of the project. Nothing was written.")
        found.setdefault(each.path, []).append(each)
    return list(found.items())


def _added(path: Path, entries: Sequence[Piece]) -> Change:
    before = _read(path)
    after = _edited(path, entries[0].kind, before or b"", [each.add for each in entries])
    return Change(
        path, before, after if after is not None or before is None else before, tuple(e.adds for e in entries)
    )


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


def _without_plugin(plugin: Plugin, path: Path) -> Change:
    """A file of another program that has the name of ours stays."""
    current = _read(path)
    if current is None or not plugin.is_ours(current):
        return Change(path, current, current)
    return Change(path, current, _former(path), ("without its plugin",))


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
    """By file, the SHA-256 of what we wrote last (`after`), and whether the file existed before (`existed`)."""
    try:
        found = json.loads(_record_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _record(path: Path, entry: dict[str, Any] | None) -> None:
    records = _records()
    records.pop(str(path), None)
    if entry is not None:
        records[str(path)] = entry
    if records:
        replace_file(_record_file(), json.dumps(records, indent=2).encode(), mode=0o600)
    else:
        _record_file().unlink(missing_ok=True)


def apply_install(change: Change) -> None:
    """Write a file and keep a backup next to it. A later installation keeps the first backup as long as no one else has
    changed the file."""
    if not change.needed or change.after is None:
        return
    known = _records().get(str(change.path))
    existed = change.before is not None
    if known is not None and change.before is not None and known["after"] == _digest(change.before):
        existed = known["existed"]
    elif change.before is not None:
        # A repository may contain a link of this name, which would direct the copy to any file of the user.
        replace_file(_backup(change.path), change.before, mode=0o600, follow_links=False)
    replace_file(change.path, change.after)
    window = change.window or (known or {}).get("window")
    entry = {"after": _digest(change.after), "existed": existed}
    _record(change.path, entry | ({"window": dict(window)} if window else {}))


def apply_uninstall(change: Change) -> None:
    """Write a file back, or delete it if there was none before, and its folder if that is empty then."""
    if change.needed and change.after is not None:
        replace_file(change.path, change.after)
    elif change.needed:
        change.path.unlink()
    _backup(change.path).unlink(missing_ok=True)
    _record(change.path, None)
    folder = change.path.parent
    if change.needed and change.after is None and not any(folder.iterdir()):
        folder.rmdir()
