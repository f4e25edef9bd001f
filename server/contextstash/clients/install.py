"""Installation: values at places in a client's own files, planned first, written with a backup, undone to the byte."""

from __future__ import annotations

import copy
import json
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

Keys = tuple[str, ...]
Document = MutableMapping[str, Any]

FILE = ("",)
"""The place of the text of a file that is whole ours."""


@dataclass(frozen=True)
class Piece:
    """What we put at a place in a client's file, and `what` it is, in words. A mapping keeps the user's own keys in it;
    with `hooks_of` a client it is a group of hooks behind those of others; None is only taken away: a client's note.
    With `ours` it leaves whoever put it there: the client's own command may have installed our bundle before."""

    path: Path
    kind: Kind
    keys: Keys
    value: Any
    what: str
    hooks_of: str = ""
    ours: bool = False

    def add(self, data: Document) -> str:
        """Put it there; returns what that is. Raises BadInputError if a server at an address is there."""
        found, value = value_at(data, self.keys), self.value
        own = self._own(found)
        if any("url" in key.lower() for key in own):
            raise BadInputError(f"'{SERVER}' in {self.path} is a server at an address. It was not changed.")
        if self.hooks_of:
            value = [*_others(_groups(data, self.keys), self.hooks_of), value]
        elif own:
            value = {**own, **value}
        if value is not None and value != found:
            put(data, self.keys, value)
        return self.what + f" (your {', '.join(own)} stays)" * bool(own)

    def take(self, data: Document, former: Document) -> bool:
        """Put what was there before the installation in its place; returns whether contextstash was there."""
        now, left = value_at(data, self.keys), None if self.ours else value_at(former, self.keys)
        if self.hooks_of:
            left = _others(_groups(data, self.keys), self.hooks_of)
        elif left and (own := self._own(now)):
            left = {**left, **own}
        if now is None or left == now or (self.kind == "file" and not _same_plugin(now, self.value)):
            return False
        if left:
            put(data, self.keys, left)
        else:  # of what a client noted the mappings stay: Claude Code takes a list of plugins without them for damaged
            remove(data, self.keys, keep_empty=self.value is None)
        return True

    def _own(self, found: object) -> dict[str, Any]:
        """The user's own keys in what stands there."""
        if self.hooks_of or not isinstance(self.value, Mapping) or not isinstance(found, Mapping):
            return {}
        return {key: value for key, value in found.items() if key not in self.value}


@dataclass(frozen=True)
class Change:
    """A file before and after; None if it does not exist. `does`: what the change does, in words. `backup`: what is
    kept next to it: the file before the first installation, empty if there was none; None if nothing is."""

    path: Path
    before: str | None
    after: str | None
    does: tuple[str, ...] = ()
    backup: str | None = None

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


Plan = tuple[list[Change], list[str]]
"""Changes, and for each file that cannot be read or changed the reason, with what is to be done by hand."""


def plan_install(client: Client, command: Sequence[str], database: Location | None = None) -> Plan:
    """The changes that an installation would make; server and hooks get the `database`, if one is named."""
    named = () if database is None else ("--db", name_of(database))
    changes, by_hand = [], []
    for path, pieces in _by_file(_pieces(client, command, named)).items():
        kind, add = pieces[0].kind, partial(_added, pieces)
        try:
            before, does = text_in(path), add(content_of(kind, path))
            after = edited(kind, before or "", add, path) or before
        except BadInputError as error:
            by_hand.append(f"{error} To be added by hand:\n{edited(kind, '', add, path).rstrip()}")
            continue
        former = "" if before is None else _former(path)
        backup = before or "" if former is None else former
        changes.append(Change(path, before, after, tuple(dict.fromkeys(does)), backup))
    return changes, by_hand


def plan_uninstall(client: Client) -> Plan:
    """The changes that undo an installation: to the byte if the rest of the file was not changed since, else only our
    part."""
    changes, by_hand = [], []
    for path, pieces in _by_file(_pieces(client, [SERVER], ("--db", ""))).items():
        kind, former = pieces[0].kind, _former(path)
        try:
            current, data, was = text_in(path), content_of(kind, path), content(kind, former or "", path)
            taken, expected, take = _taken(pieces, was, data), copy.deepcopy(was), partial(_taken, pieces, was)
            after = edited(kind, current or "", take, path) if taken else current
            _added(pieces, expected)
            take(expected)
        except BadInputError as error:
            by_hand.append(f"{error} To be removed by hand: {', '.join('.'.join(each.keys) for each in pieces)}")
            continue
        does = tuple(dict.fromkeys(f"without {each.what.partition(':')[0]}" for each in taken))
        restored = taken and former is not None and data == expected and not take(copy.deepcopy(was))
        changes.append(Change(path, current, (former or None) if restored else after, does))
    return changes, by_hand


def _added(pieces: Sequence[Piece], data: Document) -> list[str]:
    return [each.add(data) for each in pieces]


def _taken(pieces: Sequence[Piece], former: Document, data: Document) -> list[Piece]:
    return [each for each in pieces if each.take(data, former)]


def apply(change: Change) -> None:
    """Write a file, or delete it if there was none before, and write or delete the backup next to it. Raises
    OSError."""
    backup = _backup(change.path)
    if change.needed and change.backup is not None:
        # Another program may have put a link of this name there, which would direct the copy to any file of the user.
        replace_file(backup, change.backup.encode("utf-8", "surrogateescape"), mode=0o600, follow_links=False)
    if change.needed and change.after is not None:
        replace_file(change.path, change.after.encode("utf-8", "surrogateescape"))
    elif change.needed:
        change.path.resolve().unlink()  # a link was there before, to a file that was not
    if change.backup is None:
        backup.unlink(missing_ok=True)
    if change.needed and change.after is None:
        with suppress(OSError):  # the folders that are empty then, which the installation may have made
            for folder in change.path.parents:
                if folder in (Path.home(), settings_folder()):
                    break
                folder.rmdir()


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _former(path: Path) -> str | None:
    """What is kept of a file from before the installation, None if nothing is; a link does not count."""
    try:
        return read_regular(_backup(path), follow_links=False).decode("utf-8", "surrogateescape")
    except OSError:
        return None


def _pieces(client: Client, command: Sequence[str], named: Sequence[str]) -> Iterator[Piece]:
    """What is put into a client's files; `named` are the options that name the database."""
    if (bundle := client.bundle) is not None:
        values = {**bundle.values, **({bundle.database: named[1]} if named else {})}
        for keys, value in values.items():
            yield Piece(bundle.file(), "json", keys, value, bundle.does, ours=keys != bundle.database)
        for place, keys in bundle.traces:
            yield Piece(place(), "json", keys, None, "the client's note of our plugin")
        return
    if (entry := client.entry) is not None:
        follows = ("--follow", client.name) if client.files is not None else ()
        served = [*command, "serve", *follows, *named]
        what = f"the MCP server {SERVER}: {shlex.join(served)}"
        yield Piece(entry.file(), entry.kind, (entry.key, SERVER), entry.form(served), what)
    if (hooks := client.hooks) is not None and hooks.file is not None:
        called = [*command, "hook", client.name]
        what = f"hooks for {', '.join(hooks.events)}: {shlex.join([*called, *named])}"
        for event in hooks.events:
            parts = [("--part", f"{number}/{hooks.parts}") for number in range(1, hooks.parts + 1)]
            lines = [shlex.join([*called, *part, *named]) for part in (parts if event == "SessionStart" else [()])]
            group = {"hooks": [{"type": "command", "command": line, "timeout": hooks.timeout} for line in lines]}
            yield Piece(hooks.file(), "json", ("hooks", event), group, what, client.name)
    if (plugin := client.plugin) is not None:
        yield Piece(plugin.file(), "file", FILE, plugin.code(command, named), plugin.does)


def _by_file(pieces: Iterable[Piece]) -> dict[Path, list[Piece]]:
    """The pieces of each file: Gemini CLI keeps servers and hooks in one."""
    found: dict[Path, list[Piece]] = {}
    for each in pieces:
        found.setdefault(each.path, []).append(each)
    return found


def _groups(data: object, keys: Keys) -> list[dict[str, Any]]:
    """The groups of hooks of an event. Raises BadInputError if something else is there."""
    found = value_at(data, keys) or []
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(each, dict) and isinstance(each.get("hooks", []), list) for each in listed):
        raise BadInputError(f"'{'.'.join(keys)}' in that file does not list groups of hooks. It was not changed.")
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


# What is installed.


def is_configured(client: Client) -> bool:
    """Whether our server is configured in the client, for the user or, as Claude Code notes it, for the project in the
    current folder. True for a client whose files are not known, false for one whose files cannot be read."""
    entry = client.entry
    with suppress(BadInputError):
        if entry is not None and not has_bundle(client):
            found = content_of(entry.kind, entry.file())
            places = ((), ("projects", str(Path.cwd())))
            return any(value_at(found, (*place, entry.key, SERVER)) is not None for place in places)
        return True
    return False


def has_bundle(client: Client) -> bool:
    """Whether the client has our bundle, and it is on. Raises BadInputError if its file cannot be read."""
    bundle = client.bundle
    return bundle is not None and value_at(content_of("json", bundle.file()), bundle.enabled) is True


def plugin_program(client: Client) -> str | None:
    """The program that the plugin in the client starts, None if it is not installed. Raises BadInputError."""
    if client.plugin is None or not (code := text_in(client.plugin.file())):
        return None
    named = re.search(r'^const PROGRAM = \["(.*?)"', code, re.MULTILINE)
    return named[1] if named and _same_plugin(code, client.plugin.code((), ())) else None


def _same_plugin(one: str, other: str) -> bool:
    """Whether two files are the same plugin, of whichever version or installation, by their first lines."""
    return one.partition("\n")[0] == other.partition("\n")[0]


def missing_hooks(client: str, events: Iterable[str], settings: object) -> list[str]:
    """The events without contextstash's hook in these settings. Raises BadInputError if something else is there."""
    listed = {event: _groups(settings, ("hooks", event)) for event in events}
    return [event for event, groups in listed.items() if _others(groups, client) == groups]


# Configuration files as documents: what is not edited stays as far as the library can keep it.


def text_in(path: Path) -> str | None:
    """The text of a client's file, None if there is none. Raises BadInputError if it cannot be read."""
    try:
        return read_regular(path).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}. It was not changed.") from error


def content_of(kind: Kind, path: Path) -> dict[str, Any]:
    """The content of a client's file, nothing if there is none. Raises BadInputError if it cannot be read."""
    return content(kind, text_in(path) or "", path)


def content(kind: Kind, text: str, place: object) -> dict[str, Any]:
    """The content of a document; JSON may have comments. Raises BadInputError, naming the place, if it cannot be
    read."""
    if kind == "file":
        return {FILE[0]: text} if text else {}
    try:
        data = tomllib.loads(text) if kind == "toml" else json.loads(_without_comments(text)) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{place} is not valid {kind.upper()}: {error}. It was not changed.") from error
    if not isinstance(data, dict):
        raise BadInputError(f"{place} does not hold a mapping of settings. It was not changed.")
    return data


_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
"""A text in a JSON document, or else a comment, or a comma behind the last value."""


def _without_comments(text: str) -> str:
    for _ in range(2):  # a comment may stand between the last comma and the end
        text = _COMMENT.sub(r"\1", text)
    return text


def edited(kind: Kind, text: str, edit: Callable[[Document], object], place: object) -> str:
    """The document after `edit`, which changes its content in place; the same text if it changes nothing. Raises
    BadInputError, naming the place, if it cannot be read or edited."""
    before, data = content(kind, text, place), content(kind, text, place)
    edit(data)
    if data == before or kind == "file":
        return str(data.get(FILE[0], "")) if kind == "file" else text
    if kind == "toml":
        import tomlkit

        document = tomlkit.parse(text)
        edit(document)
        after = tomlkit.dumps(document)
        # tomlkit puts a new table between keys with dots at the top, which then are in it
        if content(kind, after, place) != data:
            raise BadInputError(f"{place} cannot be changed without moving other settings. It was not changed.")
        return after
    if _without_comments(text) != text:
        raise BadInputError(f"{place} has comments, which would be lost. It was not changed.")
    indent = re.search(r"\n([ \t]+)\S", text)
    ending = text[len(text.rstrip("\r\n")) :] if text.strip() else "\n"
    escapes = "\\ud" in text.lower()  # perhaps half of a surrogate pair, which only an escape can write
    return json.dumps(data, indent=indent[1] if indent else 2, ensure_ascii=escapes) + ending


def value_at(data: object, keys: Sequence[str]) -> Any:
    """The value at a place, None if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def put(data: Document, keys: Sequence[str], value: object) -> None:
    """Set a value. Raises BadInputError if its place is in something that is not a mapping."""
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, MutableMapping):
            raise BadInputError(f"'{key}' in that file is not a mapping. It was not changed.")
    if data.get(keys[-1]) != value:
        data[keys[-1]] = value


def remove(data: Document, keys: Sequence[str], *, keep_empty: bool = False) -> None:
    """Remove the value at a place, and the mappings around it that are empty then, unless these shall stay."""
    if len(keys) == 1:
        del data[keys[0]]
        return
    remove(data[keys[0]], keys[1:], keep_empty=keep_empty)
    if not (data[keys[0]] or keep_empty):
        del data[keys[0]]
