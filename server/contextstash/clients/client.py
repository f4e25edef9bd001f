"""What is known of a client, and the table of all clients.

    client("codex").entry.files["user"](Machine.this())

Other packages add clients by the entry point group `contextstash.clients`; each entry point names a `Client`. A hook
runs after every tool call of its client, so this module and those of the clients import nothing heavy at their head.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.clients.transcripts import Reader

Scope = Literal["user", "project"]
Kind = Literal["json", "toml", "yaml"]

ENTRY_POINTS = "contextstash.clients"


@dataclass(frozen=True)
class Machine:
    """The machine: the user's home, the project, the platform, and the environment."""

    home: Path
    project: Path
    platform: str
    environment: Mapping[str, str]

    @classmethod
    def this(cls) -> Machine:
        """The machine that this process runs on."""
        return cls(Path.home(), Path.cwd(), sys.platform, os.environ)

    @property
    def configuration(self) -> Path:
        """The folder in which desktop programs keep their settings."""
        if self.platform == "win32":
            return Path(self.environment.get("APPDATA") or self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.dot_config

    @property
    def dot_config(self) -> Path:
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")


def below(*names: str) -> Callable[[Machine, Scope], Path]:
    """A file below the user's home or the project's folder, by the scope."""
    return lambda machine, scope: (machine.home if scope == "user" else machine.project).joinpath(*names)


def plain(command: Sequence[str]) -> dict[str, Any]:
    """A server's entry as most clients have it."""
    return {"command": command[0], "args": list(command[1:])}


def typed(command: Sequence[str]) -> dict[str, Any]:
    """A server's entry that names its transport."""
    return {"type": "stdio", **plain(command)}


@dataclass(frozen=True)
class Entry:
    """The MCP server in a client's configuration. `files` are its files by scope, `key` is the key of the servers in
    them, `form` makes a server's entry from its command."""

    kind: Kind
    key: str
    files: Mapping[Scope, Callable[[Machine], Path]]
    form: Callable[[Sequence[str]], dict[str, Any]] = plain


@dataclass(frozen=True)
class Files:
    """Where a client keeps its transcripts: `folder`, given the user's home, None if there is none; `current` are the
    newest transcript of a project, or without a project of the folder itself, and those of its sub-agents."""

    folder: Callable[[Path], Path | None]
    current: Callable[[Path, Path | None], list[Path]]
    sub_agents: Callable[[Path], list[Path]] = lambda _: []


def _is_in_same_folder(transcript: Path, current: Path, folder: str | None) -> bool:
    return transcript.parent == current.parent


@dataclass(frozen=True)
class Hooks:
    """The lifecycle hooks of a client.

    Installing: `events` call us, in `file`. `timeout` is in the client's own unit, 30 seconds for each, `timeouts` are
    those of events for which the client waits less long. `parts` are the hooks of the start of a session, each of
    which gives a part of a hand-off. `remark` is what the user has to know.

    Events: `after_tool` and `before_compaction` are the client's names for these two; `read_to_its_end` are the events
    at which its transcript is read, `read_after` the seconds after which it is read again after a tool, None if never.
    `after_compaction` is the event at which a compacted session can be given context, if that is not the start of a
    session. `only_manual_is_sure` is true if the client also fires `before_compaction` when it then compacts nothing,
    except if the user asked for it.

    Outputs: `texts_of` returns the texts of a tool's response that the model would see, in order, or none if the
    response has an unknown shape; `replacement` returns the hook's response that shows other texts instead.
    `persisted_output` returns the path of the file in which the client keeps the whole of a response's first text.
    `limits` are the characters of an output by tool, `default_limit` those of any other tool, if the user's settings
    limit no outputs. `preview_limit` are the characters, and bytes, that the client itself shows of an output that it
    keeps in a file. `cut_at_end` are the tools whose lines the client numbers after the hook: a cut in the middle would
    shift the numbers of all lines behind it.

    Hand-offs: `context_limit` are the characters that one hook may add to the window, None if there is no limit.

    Files: `own_folders` returns the folders, given the user's home, in which the client keeps its transcripts and such
    outputs: a hook reads no file outside of them. `compacted`, given the session's transcript and those of its
    sub-agents, returns the one that was just compacted, None if that is unclear. `is_of_same_project` returns whether a
    transcript is of the same project as the current one, given the project's folder.
    """

    events: tuple[str, ...]
    file: Callable[[Machine, Scope], Path]
    timeout: int
    after_tool: str
    before_compaction: str
    read_to_its_end: tuple[str, ...]
    mcp_prefix: str
    texts_of: Callable[[str, Any], list[str]]
    replacement: Callable[[str, Any, list[str]], dict[str, Any]]
    own_folders: Callable[[Path], Sequence[Path]]
    parts: int = 1
    remark: str | None = None
    timeouts: Mapping[str, int] = field(default_factory=dict)
    after_compaction: str | None = None
    only_manual_is_sure: bool = False
    read_after: float | None = None
    # About 2,500 tokens at 4 characters each. The rest stays retrievable.
    default_limit: int = 10_000
    limits: Mapping[str, int] = field(default_factory=dict)
    preview_limit: int | None = None
    cut_at_end: frozenset[str] = frozenset()
    persisted_output: Callable[[Any], str | None] = lambda _: None
    context_limit: int | None = None
    compacted: Callable[[Path, Sequence[Path]], Path | None] = lambda transcript, _: transcript
    is_of_same_project: Callable[[Path, Path, str | None], bool] = _is_in_same_folder

    def limit(self, tool: str) -> int:
        """Characters of an output of this tool up to which the model sees the whole output."""
        return self.limits.get(tool, self.default_limit)


@dataclass(frozen=True)
class Plugin:
    """A plugin inside a client, which gives it our view of a session as its window: `source` is its file in the folder
    plugins, `file` where the client loads it for all projects of a user, `does` what it is for, in words."""

    source: str
    file: Callable[[Machine], Path]
    does: str

    @property
    def _text(self) -> str:
        return (Path(__file__).parent / "plugins" / self.source).read_text("utf-8")

    def code(self, command: Sequence[str], options: Sequence[str]) -> bytes:
        """The plugin as it is installed: with the program's command, and the options of its calls."""
        named = {"PROGRAM": list(command), "OPTIONS": list(options)}
        lines = "".join(f"const {name} = {json.dumps(value)}\n" for name, value in named.items())
        return self._text.replace(PROGRAM, lines).encode()

    def is_ours(self, code: bytes) -> bool:
        """Whether a file is this plugin, of whichever version or installation."""
        return code.startswith(self._text.partition("\n")[0].encode())


PROGRAM = 'const PROGRAM = ["contextstash"]\nconst OPTIONS = []\n'
"""The lines of a plugin's source in whose place the installed one names the program."""


@dataclass(frozen=True)
class Launch:
    """A client's process: its command, and the variables that are added to its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Proxied:
    """How a client is started behind the proxy. `upstream` returns the model API that it would use, from its
    environment; `launch` its process for the proxy's address, its command, its environment and the model API."""

    upstream: Callable[[Mapping[str, str]], str]
    launch: Callable[[str, Sequence[str], Mapping[str, str], str], Launch]


@dataclass(frozen=True)
class WindowSetting:
    """The setting at which a client compacts its window; `name` is the client's own name. `value` is what it takes for
    a size in tokens, of at least `lowest` and at most `highest`; `keys` is its place in the `file` of the client's
    configuration; below `models` each model may have the same key, which then counts instead; `for_run` adds it to a
    process; `why` says why the value is another than the size, if it is."""

    name: str
    lowest: int
    highest: int
    value: Callable[[int], float]
    file: Callable[[Machine, Scope], Path]
    kind: Kind
    keys: tuple[str, ...]
    for_run: Callable[[Launch, float], Launch]
    models: str = ""
    why: str = ""

    def nearest(self, tokens: int) -> int:
        """The wanted size, or the nearest one that the client takes."""
        return min(max(tokens, self.lowest), self.highest)

    def remark_on(self, wanted: int) -> str | None:
        """The remark for a user whose size the client does not take."""
        nearest = self.nearest(wanted)
        if nearest == wanted:
            return None
        bound = "least" if nearest > wanted else "most"
        return f"{self.name} compacts at {nearest:,} tokens at the {bound}: that is set."

    def put(self, settings: MutableMapping[str, Any], value: object) -> None:
        """Set the value."""
        for key in self.keys[:-1]:
            settings = settings.setdefault(key, {})
            if not isinstance(settings, MutableMapping):
                raise BadInputError(f"'{key}' in that file is not a mapping. Nothing was written.")
        settings[self.keys[-1]] = value

    def read(self, settings: Any) -> Any:
        """The value, None if it is not set."""
        for key in self.keys:
            settings = settings.get(key) if isinstance(settings, Mapping) else None
        return settings

    def of_models(self, settings: Any) -> dict[str, Any]:
        """The values that models have of their own."""
        listed = settings.get(self.models) if self.models and isinstance(settings, Mapping) else None
        named = listed.items() if isinstance(listed, Mapping) else ()
        key = self.keys[-1]
        return {name: each[key] for name, each in named if isinstance(each, Mapping) and key in each}

    def put_for_models(self, settings: MutableMapping[str, Any], values: Mapping[str, object]) -> None:
        """Set the values of these models, which have one."""
        for model, value in values.items():
            settings[self.models][model][self.keys[-1]] = value

    def take_back(self, settings: MutableMapping[str, Any], written: Mapping[str, Any]) -> None:
        """Set the value back to that `before` what was `written`; without effect if the user has changed it since.
        Each model's value likewise."""
        ours = {name for name, value in self.of_models(settings).items() if value == written["value"]}
        self.put_for_models(settings, {name: was for name, was in written.get("models", {}).items() if name in ours})
        if self.read(settings) != written["value"]:
            return
        if written["before"] is not None:
            self.put(settings, written["before"])
            return
        parents: list[MutableMapping[str, Any]] = [settings]
        for key in self.keys[:-1]:
            parents.append(parents[-1][key])
        for parent, key in reversed(list(zip(parents, self.keys, strict=True))):
            if key == self.keys[-1] or not parent[key]:
                del parent[key]


@dataclass(frozen=True)
class Client:
    """A client, by the `name` that the command line and recorded sessions use. What it lacks is None.

    `programs` are the names of its program and package; `variables` those that it sets for what it starts. `reader`
    makes an instance of the reader of its transcripts. `used_window` returns the tokens of its model's window that it
    uses, from the model's name and the tokens that were reported, None for all; a client that writes them into its
    transcript needs none. `no_window` says why the size of its window cannot be set. `continued` is the command that
    starts it with a first message, `run_settings_option` its option for further settings of one process, `has_plugin`
    whether our plugin, with the server and the hooks, is enabled there by the client's own command.
    """

    name: str
    programs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    entry: Entry | None = None
    files: Files | None = None
    reader: Callable[[], Reader] | None = None
    hooks: Hooks | None = None
    plugin: Plugin | None = None
    window: WindowSetting | None = None
    no_window: str | None = None
    used_window: Callable[[str | None, int], int | None] | None = None
    proxied: Proxied | None = None
    continued: Callable[[str, str], tuple[str, ...]] | None = None
    run_settings_option: str | None = None
    has_plugin: Callable[[Machine], bool] = lambda machine: False
    has_status_line: bool = False

    def has_place(self, scope: Scope) -> bool:
        """Whether something of ours can be installed in this scope."""
        return (self.entry is not None and scope in self.entry.files) or (self.plugin is not None and scope == "user")


def hooks_of(client: Client) -> Hooks:
    """What is known of a client's hooks. Raises ValueError if it has none."""
    if client.hooks is None:
        raise ValueError(f"{client.name} has no hooks")
    return client.hooks


MODULES = {
    "claude-code": "claude_code",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "pi": "pi",
    "claude-desktop": "others",
    "cursor": "others",
    "vscode": "others",
    "goose": "others",
}
"""The modules of our own clients. They are imported at the first use, because a hook of one needs no other."""


def client(name: str) -> Client:
    """The client of this name, or of a program of this name. Raises BadInputError if there is none."""
    if name in MODULES:
        return next(each for each in _own(MODULES[name]) if each.name == name)
    for each in clients():
        if name == each.name or name in each.programs:
            return each
    raise BadInputError(f"There is no client '{name[:60]}'. Known: {', '.join(each.name for each in clients())}.")


def clients() -> Iterator[Client]:
    """All clients: ours, then those of other packages."""
    for module in dict.fromkeys(MODULES.values()):
        yield from _own(module)
    yield from other_clients()


def found_clients(machine: Machine) -> list[Client]:
    """The clients that are on this machine: their program is on the path, or their configuration is there."""
    return [each for each in clients() if _is_there(each, machine)]


def _is_there(client: Client, machine: Machine) -> bool:
    if client.entry is None:  # its folder of plugins may not be there yet
        return client.plugin is not None and client.plugin.file(machine).parents[1].is_dir()
    place = client.entry.files["user"](machine)
    its_folder = place.parent not in (machine.home, machine.dot_config) and place.parent.is_dir()
    return its_folder or place.is_file() or any(shutil.which(program) for program in client.programs)


def used_windows() -> Mapping[str, Callable[[str | None, int], int | None]]:
    """By the agent that sessions are recorded under, the share of its model's window that a client uses."""
    return {each.name: each.used_window for each in clients() if each.used_window is not None}


def other_clients() -> Iterator[Client]:
    """The clients that other installed packages bring. One of our own names is left out."""
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        try:
            found = point.load()
        except Exception as error:  # another package's code; our own clients work without it
            logging.getLogger(__name__).warning("The client %s cannot be loaded: %s", point.value, error)
            continue
        if isinstance(found, Client) and found.name not in MODULES:
            yield found


def _own(module: str) -> Sequence[Client]:
    found: Sequence[Client] = import_module(f"contextstash.clients.{module}").CLIENTS
    return found
