"""The settings from outside the program, layer by layer: files, agents' files, environment, command line.

A project's files are written by the authors of the repository: only the settings that `context.window.project_limits`
admits are used from them, unless the user has accepted exactly this file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from contextstash.configuration.api_key import CLIENT_SECRET, OWN_KEY, is_key
from contextstash.configuration.encryption_key import SETTING as KEY_SETTING
from contextstash.configuration.locations import SETTINGS_FILE, agent_files, user_config_folder
from contextstash.configuration.project_files import ProjectFile, RefusedFileError, read_project_file
from contextstash.configuration.settings_files import (
    AGENTS_TABLE,
    Tables,
    check_names,
    parse_agent,
    parse_toml,
    text_of,
)
from contextstash.configuration.trust import TrustedFiles
from contextstash_storage.errors import BadInputError

PREFIX = "CONTEXTSTASH_"

OTHER_VARIABLES = ("CONTEXTSTASH_DB", OWN_KEY, CLIENT_SECRET)
"""Variables with our prefix that are not settings."""

MAX_NAMED = 8
"""How many settings a remark names, because a file may hold thousands."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remark:
    """One line about a project's file that is ignored in whole or in part. `broken`: it is invalid, so that it could
    not be used even if the file were trusted."""

    text: str
    broken: bool = False


RemarkHandler = Callable[[Remark], None]


@dataclass(frozen=True)
class Layer:
    """Settings from one source; `name` is its name for people. `of_user` is true if the user wrote them."""

    name: str
    values: Mapping[str, Any]
    of_user: bool = True


@dataclass(frozen=True)
class Folder:
    """A folder of settings: the layer of its file, the tables for single agents, and the reader of agents' files."""

    path: Path
    layer: Layer
    tables: Tables
    read_agent: Callable[[Path], Layer]


@dataclass(frozen=True)
class Configuration:
    """All layers except the session's own. Each file is read once: an agent's file when its layers are first needed."""

    folders: tuple[Folder, ...] = ()
    strongest: tuple[Layer, ...] = ()
    has_own_key: bool = False
    _by_agent: dict[str | None, tuple[Layer, ...]] = field(default_factory=dict, repr=False, compare=False)

    def layers(self, agent: str | None = None) -> tuple[Layer, ...]:
        """The layers for an agent, the weakest first, without empty ones. Raises BadInputError if the agent's file is
        not valid."""
        if agent not in self._by_agent:
            found = (*(folder.layer for folder in self.folders), *self._of_agent(agent), *self.strongest)
            self._by_agent[agent] = tuple(layer for layer in found if layer.values)
        return self._by_agent[agent]

    def settings_layer(self, agent: str | None = None) -> dict[str, Any]:
        """The layers for an agent as one: the server's layer of settings."""
        return {name: value for layer in self.layers(agent) for name, value in layer.values.items()}

    def of_user(self, agent: str | None = None) -> dict[str, Any]:
        """The same without the layers of a project, which the author of a repository wrote."""
        return {name: value for layer in self.layers(agent) if layer.of_user for name, value in layer.values.items()}

    def consent(self, agent: str | None = None) -> str | None:
        """The setting of the user's own configuration that allows calls to a model, None if there is none. A project's
        file cannot allow them, even if it is trusted."""
        if self.has_own_key:
            return OWN_KEY
        from contextstash.context.window.settings import consenting

        users = [layer for layer in self.layers(agent) if layer.of_user]
        name = consenting(self.of_user(agent))
        return name and f"{name} in {next(layer.name for layer in reversed(users) if name in layer.values)}"

    def may_call_model(self, agent: str | None = None) -> bool:
        """Whether the user allows calls to a model for an agent's sessions."""
        return self.consent(agent) is not None

    def _of_agent(self, agent: str | None) -> list[Layer]:
        if agent is None or not agent:
            return []
        tables = [
            Layer(f"{folder.layer.name} [{AGENTS_TABLE}.{agent}]", folder.tables[agent], folder.layer.of_user)
            for folder in self.folders
            if agent in folder.tables
        ]
        files = [folder.read_agent(path) for folder in self.folders for path in agent_files(folder.path, agent)]
        return tables + files


def configuration(
    *,
    project: Path,
    environment: Mapping[str, str],
    preset: str | None = None,
    given: Iterable[str] = (),
    user_folder: Path | None = None,
    on_remark: RemarkHandler | None = None,
) -> Configuration:
    """The settings of the user's file, the project's file, their agents' files, the environment, `preset` and `given`
    (each `key=value`), the weakest first. `on_remark` is called with each remark on a project's file; without it they
    are logged.

    Raises BadInputError if a setting does not exist (naming its place and the most similar setting), if a value is not
    valid, or if a file is not TOML. An error in an untrusted file of a project is a remark instead.
    """
    own = user_folder or user_config_folder()
    options = read_pairs(given)
    if KEY_SETTING in options:  # files are opened without the layers of settings
        raise BadInputError(f"{KEY_SETTING} cannot be given by --set: contextstash config set {KEY_SETTING}=…")
    folders = [_user_folder(own)]
    if project.resolve() != own.resolve():
        folders.append(_project_folder(project, TrustedFiles(own), on_remark or _log))
    found = Configuration(
        folders=tuple(folders),
        strongest=(
            Layer("environment", _read_environment(environment)),
            Layer("--preset", {"preset": preset} if preset else {}),
            Layer("--set", options),
        ),
        has_own_key=is_key(environment.get(OWN_KEY)),
    )
    if merged := found.settings_layer():
        from contextstash.context.window.settings import resolve_settings

        resolve_settings(merged)
    return found


def _log(remark: Remark) -> None:
    logger.warning("%s", remark.text)


def _user_folder(folder: Path) -> Folder:
    path = folder / SETTINGS_FILE
    text = text_of(path)
    settings, tables = ({}, {}) if text is None else parsed_file(text, str(path))
    return Folder(folder, Layer(str(path), settings), tables, _read_users_agent)


def parsed_file(text: str, place: str) -> tuple[dict[str, Any], Tables]:
    """A whole TOML file with its names checked. Raises BadInputError."""
    settings, tables = parse_toml(text, place)
    check_names(settings, place)
    for name, table in tables.items():
        check_names(table, f"{place} [{AGENTS_TABLE}.{name}]")
    return settings, tables


def parsed_agent(text: str, place: str, *, aliases: bool = True) -> dict[str, Any]:
    """A whole agent's file with its names checked. Raises BadInputError."""
    settings = parse_agent(text, place, aliases=aliases)
    check_names(settings, place)
    return settings


def _read_users_agent(path: Path) -> Layer:
    text = text_of(path)
    return Layer(str(path), {} if text is None else parsed_agent(text, str(path)))


def _project_folder(project: Path, trusted: TrustedFiles, on_remark: RemarkHandler) -> Folder:
    """The admitted settings of the project's file, and the function that reads its agents' files."""
    path = project / SETTINGS_FILE
    read = _read(path, project, on_remark)
    settings: dict[str, Any] = {}
    tables: Tables = {}
    if read is not None:
        file, text = read
        if trusted.holds(file):
            settings, tables = parsed_file(text, str(path))
        else:
            settings, tables = _admitted(path, lambda: parse_toml(text, str(path)), on_remark)

    # A function of the module, not a closure: the gateway pickles the configuration for its worker processes.
    read_agent = partial(_project_agent, project, trusted, on_remark)
    return Folder(project, Layer(str(path), settings, of_user=False), tables, read_agent)


def _project_agent(project: Path, trusted: TrustedFiles, on_remark: RemarkHandler, at: Path) -> Layer:
    """The admitted settings of an agent's file in a project."""
    found = _read(at, project, on_remark)
    if found is None:
        return Layer(str(at), {}, of_user=False)
    file, text = found
    if trusted.holds(file):
        return Layer(str(at), parsed_agent(text, str(at), aliases=False), of_user=False)
    values, _ = _admitted(at, lambda: (parse_agent(text, str(at), aliases=False), {}), on_remark)
    return Layer(str(at), values, of_user=False)


def _read(path: Path, project: Path, on_remark: RemarkHandler) -> tuple[ProjectFile, str] | None:
    try:
        file = read_project_file(path, project)
        return None if file is None else (file, file.text())
    except RefusedFileError as error:
        on_remark(Remark(f"{shown(path)} is ignored: {error}.", broken=True))
        return None


def _admitted(
    path: Path, parse: Callable[[], tuple[Mapping[str, Any], Tables]], on_remark: RemarkHandler
) -> tuple[dict[str, Any], Tables]:
    """The settings of an untrusted file that are admitted. The others are reported in one remark."""
    from contextstash.context.window.project_limits import admit

    try:
        values, agents = parse()
    except BadInputError as error:
        on_remark(Remark(shown(str(error)) + " It is ignored.", broken=True))
        return {}, {}
    settings, refused, broken = admit(values)
    tables: Tables = {}
    for agent, table in agents.items():
        tables[agent], its_refused, its_broken = admit(table)
        refused |= {f"[{AGENTS_TABLE}.{agent}] {name}": why for name, why in its_refused.items()}
        broken |= {f"[{AGENTS_TABLE}.{agent}] {name}": why for name, why in its_broken.items()}
    if refused or broken:
        on_remark(_remark(path, {**broken, **refused}, bool(broken)))
    return settings, tables


def _remark(path: Path, ignored: Mapping[str, str], broken: bool) -> Remark:
    named = [f"{shown(name, 60)} ({why})" for name, why in list(ignored.items())[:MAX_NAMED]]
    if len(ignored) > MAX_NAMED:
        named.append(f"{len(ignored) - MAX_NAMED:,} more")
    text = (
        f"{shown(path)} is a project's file and not trusted; ignored of it: {', '.join(named)}."
        f" To accept this exact file: contextstash config trust {shown(path)}"
    )
    return Remark(text, broken)


def shown(text: object, limit: int = 600) -> str:
    """Text from an untrusted file as one line without control characters, shortened to `limit` characters (the default
    is some lines of a terminal)."""
    plain = "".join(character if character.isprintable() else " " for character in str(text)[: limit + 1])
    return plain if len(plain) <= limit else plain[:limit] + "…"


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    ours = {
        name: value for name, value in environment.items() if name.startswith(PREFIX) and name not in OTHER_VARIABLES
    }
    settings = {name.removeprefix(PREFIX).lower(): _read_value(value) for name, value in ours.items()}
    check_names(settings, "the environment", _variable, OTHER_VARIABLES)
    return settings


def read_pairs(pairs: Iterable[str], place: str = "--set") -> dict[str, Any]:
    """Settings given as key=value in this place, their names checked, their values as text. Raises BadInputError."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInputError(f"A setting is given as key=value, not '{pair}'. Example: {_example(pair)}")
        settings[name.strip()] = _read_value(value.strip())
    check_names(settings, place)
    return settings


def _example(pair: str) -> str:
    """The suggestion for `window 50000` or `window:50000`."""
    name = re.match(r"[a-z][a-z0-9_]*(?=$|[ :=])", pair)
    return f"{name[0]}={pair[name.end() :].strip(' :=') or '…'}" if name else "prune_at=0.6"


def _read_value(text: str) -> str | None:
    """The value of a variable or option as text; the settings themselves convert numbers and truth values."""
    return None if text.lower() in ("", "none") else text


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def sets_output_limits(layer: Mapping[str, Any]) -> bool:
    """Whether a layer of settings may change the limits of a tool output."""
    return any(name == "preset" or name.startswith("output_") for name in layer)
