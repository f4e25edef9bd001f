"""What is known of a client, and the table of all clients.

    client("codex").entry.file()

Other packages add clients by the entry point group `contextstash.clients`; each entry point names a `Client`. A hook
runs after every tool call of its client, so this module and those of the clients import nothing heavy at their head.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contextstash.base.files import open_regular
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.clients.transcripts import Reader

Kind = Literal["json", "toml", "file"]

TextPath = tuple[str | int, ...]
"""The place of a text in a tool's response: keys, and positions in lists; empty if the response is the text."""

ENTRY_POINTS = "contextstash.clients"

PLUGINS = Path(__file__).parent / "plugins"
"""The plugins for clients: files that are copied, and a marketplace of folders, as Claude Code names it."""


def settings_folder() -> Path:
    """The folder in which programs keep the user's settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def desktop_folder() -> Path:
    """The folder in which desktop programs keep them."""
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path.home() / "Library" / "Application Support" if sys.platform == "darwin" else settings_folder()


def below(*names: str) -> Callable[[], Path]:
    """A file below the user's home."""
    return lambda: Path.home().joinpath(*names)


def text_blocks(response: Any) -> list[TextPath]:
    """The places of the texts in the result of an MCP tool: in a list of blocks, or in an object with one."""
    blocks = response.get("content") if isinstance(response, dict) else response
    before: TextPath = ("content",) if isinstance(response, dict) else ()
    listed = [each if isinstance(each, dict) else {} for each in blocks] if isinstance(blocks, list) else []
    return [(*before, place, "text") for place, each in enumerate(listed) if each.get("type") == "text"]


def plain(command: Sequence[str]) -> dict[str, Any]:
    """A server's entry as most clients have it."""
    return {"command": command[0], "args": list(command[1:])}


def typed(command: Sequence[str]) -> dict[str, Any]:
    """A server's entry that names its transport."""
    return {"type": "stdio", **plain(command)}


@dataclass(frozen=True)
class Entry:
    """The MCP server in the user's configuration of a client, `file`: `key` is the key of the servers in it, `form`
    makes a server's entry from its command."""

    kind: Kind
    key: str
    file: Callable[[], Path]
    form: Callable[[Sequence[str]], dict[str, Any]] = plain


@dataclass(frozen=True)
class Files:
    """Where a client keeps its transcripts: `folder`; a hook reads no file outside it. `sessions` are those of a
    project from which a tool call with this `_meta` may come, several if nothing tells which one: each a transcript,
    then those of its sub-agents. It raises BadInputError if the call is told and not found. A client that keeps
    transcripts in `databases`, a pattern of names, lists the sessions in one as paths below it (`in_database`)."""

    folder: Callable[[], Path]
    sessions: Callable[[Path, Path, Mapping[str, Any]], list[list[Path]]]
    sub_agents: Callable[[Path], list[Path]] = lambda _: []
    databases: str = ""
    in_database: Callable[[Path], Iterable[Path]] = lambda _: ()


DEFAULT_LIMIT = 10_000
"""Characters of a tool's output, about 2,500 tokens at 4 characters each. The rest stays retrievable."""


@dataclass(frozen=True)
class Hooks:
    """The lifecycle hooks of a client.

    Installing: `events` call us, in `file`, unless they come with a bundle. `timeout` is in the client's own unit, 30
    seconds. `parts` are the hooks of the start of a session, each of which gives a part of a hand-off. `remark` is what
    the user has to know.

    Events: `after_tool` is the client's name for the end of a tool call; at the start of a session that was compacted a
    hand-off is given; at each other of the `events` the transcript is read.

    Outputs: `text_paths` returns the places of the texts in a tool's response that the model would see, or none if the
    response has an unknown shape; `replacement` returns the hook's response, given the response with other texts, and
    these. `persisted_path` is the field with the path of the file in which the client keeps the whole of a response's
    first text, and `preview_limit` are the characters, and bytes, that it then shows of it. `limits` are the characters
    of an output by tool, if the user's settings limit no outputs. `cut_at_end` are the tools whose lines the client
    numbers after the hook: a cut in the middle would shift the numbers of all lines behind it. `script_ids` is how the
    ids of calls begin that a script of the model makes: their outputs go to the script, which another text would break.

    Hand-offs: `context_limit` are the characters that one hook may add to the window, None if there is no limit.
    """

    events: tuple[str, ...]
    timeout: int
    after_tool: str
    mcp_prefix: str
    text_paths: Callable[[str, Any], Sequence[TextPath]]
    replacement: Callable[[Any, Sequence[str]], dict[str, Any]]
    file: Callable[[], Path] | None = None
    parts: int = 1
    remark: str | None = None
    script_ids: str | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    preview_limit: int | None = None
    cut_at_end: frozenset[str] = frozenset()
    persisted_path: str | None = None
    context_limit: int | None = None

    def limit(self, tool: str) -> int:
        """Characters of an output of this tool up to which the model sees the whole output."""
        return self.limits.get(tool, DEFAULT_LIMIT)


@dataclass(frozen=True)
class Plugin:
    """A plugin inside a client, which gives it our view of a session as its window: `source` is its file in the folder
    plugins, `file` where the client loads it for all projects of a user, `does` what it is for, in words."""

    source: str
    file: Callable[[], Path]
    does: str

    def code(self, command: Sequence[str], options: Sequence[str]) -> str:
        """The plugin as it is installed: with the program's command, and the options of its calls."""
        named = {"PROGRAM": list(command), "OPTIONS": list(options)}
        lines = "".join(f"const {name} = {json.dumps(value)}\n" for name, value in named.items())
        return (PLUGINS / self.source).read_text("utf-8").replace(PROGRAM, lines)


PROGRAM = 'const PROGRAM = ["contextstash"]\nconst OPTIONS = []\n'
"""The lines of a plugin's source in whose place the installed one names the program."""


@dataclass(frozen=True)
class Bundle:
    """A plugin with server, hooks and all, which a client loads from a folder of this package. It is installed by
    `values` at places in `file`, for the user alone; of these `enabled` is true while it is on, also if the client's
    own command installed it. `database` is the place for the database that it uses, `traces` are places in files in
    which the client then notes it."""

    file: Callable[[], Path]
    values: Mapping[tuple[str, ...], Any]
    enabled: tuple[str, ...]
    database: tuple[str, ...]
    traces: Sequence[tuple[Callable[[], Path], tuple[str, ...]]]
    does: str


Launch = tuple[tuple[str, ...], Mapping[str, str]]
"""A client's process: its command, and the variables that are added to its environment."""


ANTHROPIC = "https://api.anthropic.com"


def without_version(url: str) -> str:
    """The address that the proxy puts in front of the client's paths, which begin with the version."""
    return url.rstrip("/").removesuffix("/v1")


def anthropic_api() -> str:
    """The address of Anthropic's API that a program in this environment uses."""
    return without_version(os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC)


@dataclass(frozen=True)
class Proxied:
    """A client at the model API.

    Started behind the proxy: `upstream` returns the API that it would use in this process's environment; `launch` its
    process for the proxy's address, its command, and the tokens at which it shall compact its window, None for its own
    choice.

    Known by its requests: beginnings of its `user_agents`; the `session_headers` that name a conversation, the best
    first, and the `parent_header` that names the one which started it. `asks_for_summary` are words in the last message
    of a request for the client's own summary, `continues` words of the message that begins the conversation after it,
    in small letters. (No regular expression: one that ignores case takes a second for each million characters.)
    """

    upstream: Callable[[], str]
    launch: Callable[[str, Sequence[str], int | None], Launch]
    user_agents: tuple[bytes, ...] = ()
    session_headers: tuple[bytes, ...] = ()
    asks_for_summary: tuple[str, ...] = ()
    continues: tuple[str, ...] = ()
    parent_header: bytes = b""


@dataclass(frozen=True)
class Client:
    """A client, by the `name` that the command line and recorded sessions use. What it lacks is None.

    `programs` are the names of its program and package. `reader` returns the reader of its transcripts.
    `used_window` returns the tokens of its model's window that it uses, from the model's name and the tokens that were
    reported, None for all; a client that writes them into its transcript needs none. `continued` is the command that
    starts it with a first message.
    """

    name: str
    programs: tuple[str, ...] = ()
    entry: Entry | None = None
    files: Files | None = None
    reader: Callable[[], Reader] | None = None
    hooks: Hooks | None = None
    plugin: Plugin | None = None
    bundle: Bundle | None = None
    used_window: Callable[[str | None, int], int | None] | None = None
    proxied: Proxied | None = None
    continued: Callable[[str, str], tuple[str, ...]] | None = None

    def is_on(self) -> bool:
        """Whether its program is on the path, or its configuration is there."""
        files = [each.file() for each in (self.entry, self.hooks, self.bundle) if each is not None and each.file]
        folders = {file.parent for file in files} - {Path.home(), settings_folder()}
        return any(map(Path.exists, (*files, *folders))) or any(map(shutil.which, self.programs))


CLIENTS = (
    Client(
        "claude-desktop",
        entry=Entry("json", "mcpServers", lambda: desktop_folder() / "Claude" / "claude_desktop_config.json"),
    ),
    Client("cursor", entry=Entry("json", "mcpServers", below(".cursor", "mcp.json"))),
    Client("vscode", entry=Entry("json", "servers", lambda: desktop_folder() / "Code" / "User" / "mcp.json", typed)),
)
"""The clients that take an MCP server, and no more. Sources: their documentation, read in November 2026."""

MODULES = {
    "claude-code": "claude_code",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "pi": "pi",
    **{each.name: "client" for each in CLIENTS},
}
"""The modules of our own clients. They are imported at the first use, because a hook of one needs no other."""


def client(name: str) -> Client:
    """The client of this name, or of a program of this name. Raises BadInputError if there is none."""
    for each in own_clients(name) if name in MODULES else clients():
        if name == each.name or name in each.programs:
            return each
    raise BadInputError(f"There is no client '{name[:60]}'. Known: {', '.join(each.name for each in clients())}.")


def own_clients(*names: str) -> Iterator[Client]:
    """Our own clients, or those in the modules of these."""
    for module in dict.fromkeys(MODULES[name] for name in names or MODULES):
        yield from import_module(f"contextstash.clients.{module}").CLIENTS


def clients() -> Iterator[Client]:
    """All clients: ours, then those that other installed packages bring, without ones of our names."""
    yield from own_clients()
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        try:
            found = point.load()
        except Exception as error:  # another package's code; our own clients work without it
            logging.getLogger(__name__).warning("The client %s cannot be loaded: %s", point.value, error)
            continue
        if isinstance(found, Client) and found.name not in MODULES:
            yield found


MAX_HEAD_BYTES = 200_000
"""Bytes at the start of a transcript in which its folder is searched for. Clients name it in their first records."""

_FOLDER = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)+")')


def project_of(source: str | None) -> str | None:
    """The folder in which the client ran, None if the transcript is gone or does not name one."""
    with suppress(OSError, ValueError):
        if source is not None and source.endswith(".jsonl"):
            with open_regular(Path(source)) as file:
                named = _FOLDER.search(file.read(MAX_HEAD_BYTES))
            return str(json.loads(named[1])) if named else None
    return None


def project_folder(client: str | None = None) -> Path:
    """The project that this client, or any if none is given, names to the programs that it starts, else the current
    folder. Only Claude Code names one, and one that was started in its shell inherits the name."""
    named = os.environ.get("CLAUDE_PROJECT_DIR") if client in ("claude-code", None) else None
    return Path(named) if named else Path.cwd()
