"""The changes of an installation: planned first, written atomically with a backup, and undone to the byte."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.configuration.locations import data_folder
from contextstash.files.atomic_file import replace_file
from contextstash.files.regular_files import is_below, read_regular
from contextstash.hosts.clients import Client, Machine, Scope
from contextstash.hosts.compaction_points import SETTINGS, CompactionSetting, compaction_setting
from contextstash.hosts.configuration_files import Edit, Kind, content, edited
from contextstash.hosts.install.client_hooks import HOOKS
from contextstash_storage.databases import text_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

KEY = "statusLine"


def add_status_line(settings: MutableMapping[str, Any], command: Sequence[str], options: Sequence[str] = ()) -> None:
    """Make ours the status line."""
    settings[KEY] = {"type": "command", "command": shlex.join([*command, "statusline", *options])}


def remove_status_line(settings: MutableMapping[str, Any]) -> None:
    """Remove the status line if it is ours."""
    if is_ours(settings.get(KEY)):
        del settings[KEY]


def is_ours(line: Any) -> bool:
    """Whether a status line is ours."""
    command = str(line.get("command")) if isinstance(line, Mapping) else ""
    return "contextstash" in command and "statusline" in command


def other_line(settings: Any) -> str | None:
    """The command of a status line that is not ours; None if there is none."""
    line = settings.get(KEY) if isinstance(settings, Mapping) else None
    if not line or is_ours(line):
        return None
    return str(line.get("command") if isinstance(line, Mapping) else line)


SERVER = "contextstash"

STATUS_LINE_CLIENT = "claude-code"

BACKUP = ".before-contextstash"

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest configuration that is changed, in bytes. Claude Code keeps its history in its own: some megabytes."""


@dataclass(frozen=True)
class FileEdit:
    """An edit of a file, and what it does, in words."""

    path: Path
    kind: Kind
    edit: Edit
    does: tuple[str, ...]


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
    if hooks and client.name not in HOOKS:
        known = ", ".join(HOOKS)
        raise BadInputError(f"contextstash has hooks for {known}, not for {client.name}. Leave --hooks out.")
    named = () if database is None else ("--db", text_of(database))
    entry = client.entry([*command, "serve", *client.serve, *named])

    def add(data: MutableMapping[str, Any]) -> None:
        servers = data.setdefault(client.key, {})
        if not isinstance(servers, MutableMapping):
            raise BadInputError(f"'{client.key}' in that file is not a mapping. Nothing was written.")
        if servers.get(SERVER) != entry:
            servers[SERVER] = entry

    line = shlex.join([*command, "serve", *client.serve, *named])
    edits = [FileEdit(_file(client, scope, machine), client.kind, add, (f"the MCP server {SERVER}: {line}",))]
    if hooks:
        ours = HOOKS[client.name]
        does = (f"hooks for {', '.join(ours.events)}: {shlex.join([*command, *ours.called.split(), *named])}",)
        edits.append(FileEdit(ours.file(machine, scope), "json", lambda data: ours.add(data, command, named), does))
    if statusline:
        edits.append(_status_line(client, scope, machine, command, named))
    written: dict[Path, dict[str, Any]] = {}
    if window is not None:
        edits.append(_window(compaction_setting(client.name), scope, machine, window, written))
    changes = [_change(edit) for edit in _together(_in_project(edits, scope, machine))]
    return [replace(change, window=written.get(change.path)) for change in changes]


def _window(
    setting: CompactionSetting, scope: Scope, machine: Machine, wanted: int, written: dict[Path, dict[str, Any]]
) -> FileEdit:
    """The edit that sets where the client compacts. It notes what it writes, and what stood there before: a value that
    an earlier installation has set is not the user's."""
    tokens = setting.nearest(wanted)
    path, value = setting.file(machine, scope), setting.value(tokens)

    def put(data: MutableMapping[str, Any]) -> None:
        present = setting.read(data)
        earlier = _records().get(str(path), {}).get("window")
        before = earlier["before"] if earlier and earlier["value"] == present else present
        written[path] = {"value": value, "before": before}
        setting.put(data, value)

    does = f"compaction at {tokens:,} tokens: {'.'.join(setting.keys)} = {value}{setting.why}"
    return FileEdit(path, setting.kind, put, (does,))


def _status_line(
    client: Client, scope: Scope, machine: Machine, command: Sequence[str], named: Sequence[str]
) -> FileEdit:
    """The edit that makes ours the status line. Raises BadInputError if the client has none that can be set."""
    line = f"the status line: {shlex.join([*command, 'statusline', *named])}"
    return FileEdit(
        status_line_file(client, scope, machine),
        "json",
        lambda data: add_status_line(data, command, named),
        (line,),
    )


def status_line_file(client: Client, scope: Scope, machine: Machine) -> Path:
    """The file with the client's status line. Raises BadInputError if it has none that can be set."""
    if client.name != STATUS_LINE_CLIENT:
        raise BadInputError(f"contextstash has a status line for {STATUS_LINE_CLIENT} only. Leave --statusline out.")
    return HOOKS[client.name].file(machine, scope)


def other_status_line(client: Client, scope: Scope, machine: Machine) -> str | None:
    """The command of the status line that the user has already, if it is not ours."""
    path = status_line_file(client, scope, machine)
    return other_line(content("json", _decoded(_read(path) or b"", path), str(path)))


def plan_uninstall(client: Client, scope: Scope, machine: Machine) -> list[Change]:
    """The changes that undo an installation: to the byte if the file was not changed since, else only our part."""

    def remove(data: MutableMapping[str, Any]) -> None:
        servers = data.get(client.key)
        if isinstance(servers, MutableMapping) and SERVER in servers:
            del servers[SERVER]
            if not servers:
                del data[client.key]

    edits = [FileEdit(_file(client, scope, machine), client.kind, remove, (f"without the MCP server {SERVER}",))]
    if client.name in HOOKS:
        hooks = HOOKS[client.name]
        edits.append(FileEdit(hooks.file(machine, scope), "json", hooks.remove, ("without its hooks",)))
    if client.name == STATUS_LINE_CLIENT:
        place = status_line_file(client, scope, machine)
        edits.append(FileEdit(place, "json", remove_status_line, ("without its status line",)))
    if client.name in SETTINGS:
        setting = SETTINGS[client.name]
        place = setting.file(machine, scope)
        if written := _records().get(str(place), {}).get("window"):
            does = f"with the former {'.'.join(setting.keys)}"
            edits.append(FileEdit(place, setting.kind, lambda data: setting.take_back(data, written), (does,)))
    effective = [_with_what_it_does(edit) for edit in _in_project(edits, scope, machine)]
    return [_undone(edit) for edit in _together(effective)]


def _with_what_it_does(edit: FileEdit) -> FileEdit:
    """The edit; without its words if it changes nothing of the file, such as a status line that was never installed."""
    current = _read(edit.path)
    return replace(edit, does=()) if current is None or _edited(edit, current)[1] else edit


def _in_project(edits: list[FileEdit], scope: Scope, machine: Machine) -> list[FileEdit]:
    """The edits. Raises BadInputError if a file of a project is a link out of it: the author of the repository could
    direct the edit to any file of the user."""
    for each in edits:
        if scope == "project" and not is_below(each.path, machine.project):
            raise BadInputError(f"{each.path} is a link out of the project. Nothing was written.")
    return edits


def _together(edits: Sequence[FileEdit]) -> list[FileEdit]:
    """The edits of the same file as one: Gemini CLI keeps servers and hooks in one file."""
    by_path: dict[Path, list[FileEdit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    return [_joined(of_file) for of_file in by_path.values()]


def _joined(edits: Sequence[FileEdit]) -> FileEdit:
    def all_of_them(data: MutableMapping[str, Any]) -> None:
        for each in edits:
            each.edit(data)

    return FileEdit(edits[0].path, edits[0].kind, all_of_them, tuple(line for each in edits for line in each.does))


def _file(client: Client, scope: Scope, machine: Machine) -> Path:
    if scope not in client.files:
        raise BadInputError(f"{client.name} has no configuration of the scope {scope}; leave --scope out.")
    return client.files[scope](machine)


def _change(given: FileEdit) -> Change:
    before = _read(given.path)
    after, same = _edited(given, before or b"")
    return Change(given.path, before, before if same and before is not None else after, given.does)


def _undone(given: FileEdit) -> Change:
    path = given.path
    current = _read(path)
    if current is None:
        return Change(path, None, None)
    written = _records().get(str(path))
    if written is not None and written["after"] == _digest(current):
        return Change(path, current, _read(_backup(path)) if written["existed"] else None, given.does)
    after, same = _edited(given, current)
    return Change(path, current, current if same else after, given.does)


def _edited(given: FileEdit, data: bytes) -> tuple[bytes, bool]:
    """The file after the edit, and whether that changes nothing but the layout."""
    text = _decoded(data, given.path)
    after = edited(given.kind, text, given.edit, str(given.path)).encode()
    return after, edited(given.kind, text, lambda _: None, str(given.path)).encode() == after


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
