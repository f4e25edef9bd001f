"""Installation: values at places in a client's own files, planned first, written with a backup, undone to the byte."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.files import read_regular, replace_file
from contextstash.clients.client import Client, Kind, settings_folder
from contextstash_storage.databases import name_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

SERVER = "contextstash"

BACKUP = ".before-contextstash"

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest configuration that is changed, in bytes. Claude Code keeps its history in its own: some megabytes."""

Keys = tuple[str, ...]

Edit = Callable[[MutableMapping[str, Any]], None]
"""Changes a document's content in place."""


@dataclass(frozen=True)
class Piece:
    """What we put into a file of a client: how it is put there, how it is taken away, and in words `what` it is."""

    path: Path
    kind: Kind
    add: Edit
    take: Edit
    what: str = ""


@dataclass(frozen=True)
class Change:
    """A file before and after; None if it does not exist. `does`: what the change does, in words. `is_first`: before it
    none of our parts was in the file, so what it held is kept next to it."""

    path: Path
    before: bytes | None
    after: bytes | None
    does: tuple[str, ...] = ()
    is_first: bool = False

    @property
    def needed(self) -> bool:
        return self.before != self.after


def own_command(executable: str = sys.executable) -> list[str]:
    """The command that starts this installation of contextstash: the script next to its interpreter, by absolute path,
    because clients have another PATH; else the module. Never the name on the package index, which is not ours yet."""
    for name in ("contextstash", "contextstash.exe"):
        script = Path(executable).with_name(name)
        if script.is_file():
            return [str(script)]
    # -P: clients start it in the project's folder, from which `-m` alone would import first
    return [executable, "-P", "-m", "contextstash"]


def plan_install(client: Client, command: Sequence[str], database: Location | None = None) -> list[Change]:
    """The changes that an installation would make; server and hooks get the `database`, if one is named. Raises
    BadInputError, with what to add by hand, if one of the client's files cannot be read or changed."""
    named = () if database is None else ("--db", name_of(database))
    changes = []
    for path, pieces in _by_file(_pieces(client, command, named)).items():
        kind, adds = pieces[0].kind, [each.add for each in pieces]
        try:
            before = read_file(path)
            after = _edited(kind, before or b"", adds, path) or before
            is_first = _edited(kind, before or b"", [each.take for each in pieces], path) is None
        except BadInputError as error:
            entry = (_edited(kind, b"", adds, path) or b"").decode()
            raise BadInputError(f"{error} To be added by hand:\n{entry.rstrip()}") from error
        changes.append(Change(path, before, after, tuple(each.what for each in pieces if each.what), is_first))
    if (plugin := client.plugin) is not None:
        path = plugin.file()
        before = read_file(path)
        is_first = before is None or not plugin.is_ours(before)
        changes.append(Change(path, before, plugin.code(command, named), (plugin.does,), is_first))
    return changes


def plan_uninstall(client: Client) -> list[Change]:
    """The changes that undo an installation: to the byte if the rest of the file was not changed since, else only our
    part."""
    changes = []
    for path, pieces in _by_file(_pieces(client, [SERVER], ("--db", ""))).items():
        current, former, kind = read_file(path), read_file(_backup(path)), pieces[0].kind
        after = None if current is None else _edited(kind, current, [each.take for each in pieces], path)
        gone = [each for each in pieces if _edited(kind, current or b"", [each.take], path) is not None]
        does = tuple(f"without {each.what.partition(':')[0]}" for each in gone if each.what)
        if after is None:
            after = current
        elif does and after.strip() == _left_of(former or b"", kind, gone, path):
            after = former
        changes.append(Change(path, current, after, does))
    if (plugin := client.plugin) is not None:
        path = plugin.file()
        current = read_file(path)  # a file of another program that has our name stays
        is_ours = current is not None and plugin.is_ours(current)
        changes.append(Change(path, current, read_file(_backup(path)) if is_ours else current, ("without its plugin",)))
    return changes


def apply_install(change: Change) -> None:
    """Write a file, and at the first installation keep a backup next to it."""
    if not change.needed or change.after is None:
        return
    if change.is_first and change.before is not None:
        # Another program may have put a link of this name there, which would direct the copy to any file of the user.
        replace_file(_backup(change.path), change.before, mode=0o600, follow_links=False)
    elif change.is_first:
        _backup(change.path).unlink(missing_ok=True)
    replace_file(change.path, change.after)


def apply_uninstall(change: Change) -> None:
    """Write a file back, or delete it if there was none before."""
    if change.needed and change.after is not None:
        replace_file(change.path, change.after)
    elif change.needed:
        change.path.resolve().unlink()  # a link was there before, to a file that was not
        with suppress(OSError):  # the folders that are empty then, which the installation may have made
            for folder in change.path.parents:
                if folder in (Path.home(), settings_folder()):
                    break
                folder.rmdir()
    _backup(change.path).unlink(missing_ok=True)


def _pieces(client: Client, command: Sequence[str], named: Sequence[str]) -> Iterator[Piece]:
    """What is put into a client's files; `named` are the options that name the database."""
    if (bundle := client.bundle) is not None:
        path = bundle.file()
        values = {**bundle.values, **({bundle.database: named[1]} if named else {})}
        for number, (keys, value) in enumerate(values.items()):
            yield _value(path, "json", keys, value, bundle.does if number == 0 else "")
        for place, keys in bundle.traces:
            yield Piece(place(), "json", lambda _: None, partial(remove, keys=keys, keep_empty=True))
        return
    if (entry := client.entry) is not None:
        follows = ("--follow", client.name) if client.files is not None else ()
        served = [*command, "serve", *follows, *named]
        what = f"the MCP server {SERVER}: {shlex.join(served)}"
        yield _value(entry.file(), entry.kind, (entry.key, SERVER), entry.form(served), what)
    if (hooks := client.hooks) is not None and hooks.file is not None:
        called = [*command, "hook", client.name]
        what = f"hooks for {', '.join(hooks.events)}: {shlex.join([*called, *named])}"
        for event in hooks.events:
            parts = [("--part", f"{number}/{hooks.parts}") for number in range(1, hooks.parts + 1)]
            lines = [shlex.join([*called, *part, *named]) for part in (parts if event == "SessionStart" else [()])]
            group = {"hooks": [{"type": "command", "command": line, "timeout": hooks.timeout} for line in lines]}
            said = what if event == hooks.events[0] else ""
            yield _group(hooks.file(), ("hooks", event), group, client.name, said)


def _value(path: Path, kind: Kind, keys: Keys, value: object, what: str) -> Piece:
    return Piece(path, kind, lambda data: put(data, keys, value), lambda data: remove(data, keys), what)


def _group(path: Path, keys: Keys, group: object, client: str, what: str) -> Piece:
    """A group of hooks in the list of an event, behind those of others."""

    def add(data: MutableMapping[str, Any]) -> None:
        put(data, keys, [*_others(_groups(data, keys), client), group])

    def take(data: MutableMapping[str, Any]) -> None:
        groups = _groups(data, keys)
        others = _others(groups, client)
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


def _others(groups: Iterable[dict[str, Any]], client: str) -> list[dict[str, Any]]:
    """The groups of hooks without ours, nor a group that is empty then. Ours run our command, by path or as a module;
    a command of others may name our folder, or have a `hook` of its own."""
    ours = re.compile(rf"(?<![\w-]){SERVER}(\.exe)?['\"]? hook {client}(?!\S)")
    pairs = [
        (each, [hook for hook in each.get("hooks", ()) if not ours.search(str(value_at(hook, ["command"])))])
        for each in groups
    ]
    return [{**group, "hooks": rest} for group, rest in pairs if rest or not group.get("hooks")]


def missing_hooks(client: str, events: Iterable[str], settings: object) -> list[str]:
    """The events without contextstash's hook in these settings. Raises BadInputError if something else is there."""
    listed = {event: _groups(settings, ("hooks", event)) for event in events}
    return [event for event, groups in listed.items() if _others(groups, client) == groups]


def _by_file(pieces: Iterable[Piece]) -> dict[Path, list[Piece]]:
    """The pieces of each file: Gemini CLI keeps servers and hooks in one."""
    found: dict[Path, list[Piece]] = {}
    for each in pieces:
        found.setdefault(each.path, []).append(each)
    return found


def _left_of(former: bytes, kind: Kind, pieces: Sequence[Piece], path: Path) -> bytes:
    """What an installation into a file leaves if it is undone in place: the same in another layout."""
    added = _edited(kind, former, [each.add for each in pieces], path) or former
    taken = _edited(kind, added, [each.take for each in pieces], path)
    return (added if taken is None else taken).strip()


def _edited(kind: Kind, data: bytes, edits: Sequence[Edit], path: Path) -> bytes | None:
    """The file after the edits; None if they change nothing but the layout."""

    def all_of_them(content: MutableMapping[str, Any]) -> None:
        for each in edits:
            each(content)

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path} is not UTF-8 text. Nothing was written.") from error
    after = edited(kind, text, all_of_them, str(path))
    return after.encode() if after != edited(kind, text, lambda _: None, str(path)) else None


def read_file(path: Path) -> bytes | None:
    """The bytes of a client's file, None if there is none. Raises BadInputError if it cannot be read."""
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}. Nothing was written.") from error


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


# Configuration files as documents: what is not edited stays as far as the library can keep it.


def content(kind: Kind, text: str, place: str) -> dict[str, Any]:
    """The content of a document. Raises BadInputError, naming the place, if it cannot be read."""
    try:
        data = tomllib.loads(text) if kind == "toml" else _json(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        wrong = "is not valid TOML" if kind == "toml" else "is not plain JSON, perhaps with comments"
        raise BadInputError(f"{place} {wrong}: {error}. Nothing was written.") from error
    if not isinstance(data, dict):
        raise BadInputError(f"{place} does not hold a mapping of settings. Nothing was written.")
    return data


def _json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError also for what would not be written again as it was."""

    def number(digits: str) -> float:
        if math.isinf(found := float(digits)):
            raise ValueError(f"{digits} is too large a number")
        return found

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError(f"one of {', '.join(found)} is there twice")
        return found

    return json.loads(text, parse_float=number, object_pairs_hook=mapping)


def edited(kind: Kind, text: str, edit: Edit, place: str) -> str:
    """The document after `edit`. Raises BadInputError, naming the place, if it cannot be read or edited."""
    data = content(kind, text, place)
    edit(data)
    if kind == "toml":
        import tomlkit

        document = tomlkit.parse(text)
        edit(document)
        after = tomlkit.dumps(document)
        # tomlkit puts a new table between keys with dots at the top, which then are in it
        if content(kind, after, place) != data:
            raise BadInputError(f"{place} cannot be changed without moving other settings. Nothing was written.")
        return after
    indent = re.search(r"\n([ \t]+)\S", text)
    ending = text[len(text.rstrip("\r\n")) :] if text.strip() else "\n"
    escapes = "\\ud" in text.lower()  # perhaps half of a surrogate pair, which only an escape can write
    return json.dumps(data, indent=indent[1] if indent else 2, ensure_ascii=escapes) + ending


def value_at(data: object, keys: Sequence[str]) -> Any:
    """The value at a place, None if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def put(data: MutableMapping[str, Any], keys: Sequence[str], value: object) -> None:
    """Set a value. Raises BadInputError if its place is in something that is not a mapping."""
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, MutableMapping):
            raise BadInputError(f"'{key}' in that file is not a mapping. Nothing was written.")
    if data.get(keys[-1]) != value:
        data[keys[-1]] = value


def remove(data: MutableMapping[str, Any], keys: Sequence[str], *, keep_empty: bool = False) -> None:
    """Remove the value at a place, if there is one, and the mappings around it that are empty then; of what the client
    noted these stay: Claude Code takes a list of plugins without them for damaged."""
    inner = data.get(keys[0])
    if len(keys) == 1:
        data.pop(keys[0], None)
    elif isinstance(inner, MutableMapping) and inner:  # one that was empty before is the user's own
        remove(inner, keys[1:], keep_empty=keep_empty)
        if not (inner or keep_empty):
            del data[keys[0]]
