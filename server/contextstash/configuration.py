"""The settings a user gives outside the program, layer by layer: files, agents' files, environment, command line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextstash_storage.errors import BadInputError

FILE_NAME = "contextstash.toml"
AGENTS_FOLDER = "agents"
AGENTS_TABLE = "agents"

PREFIX = "CONTEXTSTASH_"

OTHER_VARIABLES = ("CONTEXTSTASH_DB", "CONTEXTSTASH_ANTHROPIC_API_KEY")
"""Variables with our prefix that are no settings."""


@dataclass(frozen=True)
class Layer:
    """Settings from one place; `name` says which, for people."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Configuration:
    """All layers but the session's own. Files are read once: an agent's at its first question."""

    files: tuple[Layer, ...] = ()
    agents_in_files: tuple[tuple[str, Mapping[str, Mapping[str, Any]]], ...] = ()
    agents_folders: tuple[Path, ...] = ()
    strongest: tuple[Layer, ...] = ()
    _by_agent: dict[str | None, tuple[Layer, ...]] = field(default_factory=dict, repr=False, compare=False)

    def layers(self, agent: str | None = None) -> tuple[Layer, ...]:
        """The layers that count for an agent, weakest first; those that say nothing are left out. Raises BadInputError
        where the agent's file is wrong."""
        if agent not in self._by_agent:
            found = (*self.files, *self._of_agent(agent), *self.strongest)
            self._by_agent[agent] = tuple(layer for layer in found if layer.values)
        return self._by_agent[agent]

    def settings_layer(self, agent: str | None = None) -> dict[str, Any]:
        """The layers for an agent as one: the server's layer of settings."""
        return {name: value for layer in self.layers(agent) for name, value in layer.values.items()}

    def _of_agent(self, agent: str | None) -> list[Layer]:
        if agent is None or not agent or agent.startswith(".") or any(mark in agent for mark in "/\\\0:"):
            return []
        tables = [
            Layer(f"{place} [{AGENTS_TABLE}.{agent}]", agents[agent])
            for place, agents in self.agents_in_files
            if agent in agents
        ]
        files = [folder / f"{agent}{ending}" for folder in self.agents_folders for ending in (".yaml", ".yml")]
        return tables + [Layer(str(path), _read_agent(path)) for path in files]


def configuration(
    *,
    project: Path,
    environment: Mapping[str, str],
    preset: str | None = None,
    given: Iterable[str] = (),
    user_folder: Path | None = None,
) -> Configuration:
    """What the user's file, the project's file, their agents' files, the environment, `preset` and `given` (each
    `key=value`) say, weakest first.

    Raises BadInputError on a misspelt setting, naming the nearest right one and where it stands, on a value
    that cannot be used, and on a file that is not TOML.
    """
    folders = (user_folder or user_config_folder(), project)
    files, agents = [], []
    for folder in folders:
        path = folder / FILE_NAME
        values, tables = _read_file(path)
        files.append(Layer(str(path), values))
        agents.append((str(path), tables))
    found = Configuration(
        files=tuple(files),
        agents_in_files=tuple(agents),
        agents_folders=tuple(folder / AGENTS_FOLDER for folder in folders),
        strongest=(
            Layer("environment", _read_environment(environment)),
            Layer("--preset", {"preset": preset} if preset else {}),
            Layer("--set", _read_pairs(given)),
        ),
    )
    if merged := found.settings_layer():
        from contextstash.context.settings import resolve_settings

        resolve_settings(merged)
    return found


def user_config_folder() -> Path:
    """Where the user's own files are."""
    from platformdirs import user_config_path

    return user_config_path("contextstash", appauthor=False)


def _text_of(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}.") from error


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """The settings of a TOML file, and those for single agents in it."""
    text = _text_of(path)
    if text is None:
        return {}, {}
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path} is not valid TOML: {error}.") from error
    agents = settings.pop(AGENTS_TABLE, {})
    _check_names(settings, str(path), str)
    if not isinstance(agents, dict) or not all(isinstance(table, dict) for table in agents.values()):
        raise BadInputError(f"In {path}, '{AGENTS_TABLE}' holds a table for each agent: [{AGENTS_TABLE}.researcher]")
    for name, table in agents.items():
        _check_names(table, f"{path} [{AGENTS_TABLE}.{name}]", str)
    return settings, agents


def _read_agent(path: Path) -> Mapping[str, Any]:
    """The settings of an agent's YAML file: under `context`, where that is there, else all of it."""
    text = _text_of(path)
    if text is None:
        return {}
    from contextstash.yaml_files import read_yaml

    data = read_yaml(text, str(path))
    settings = data.get("context", data)
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise BadInputError(f"In {path}, 'context' must hold settings, such as messages_at: 30")
    _check_names(settings, str(path), str)
    return settings


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    ours = {
        name: value for name, value in environment.items() if name.startswith(PREFIX) and name not in OTHER_VARIABLES
    }
    settings = {name.removeprefix(PREFIX).lower(): _read_value(value) for name, value in ours.items()}
    _check_names(settings, "the environment", _variable)
    return settings


def _read_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInputError(f"--set takes key=value, not '{pair}'. Example: --set prune_at=0.6")
        settings[name.strip()] = _read_value(value.strip())
    _check_names(settings, "--set", str)
    return settings


def _read_value(text: str) -> str | None:
    """What a variable or option says; numbers and truth values are read by the settings themselves."""
    return None if text.lower() in ("", "none") else text


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _check_names(settings: Mapping[Any, Any], place: str, spelling: Callable[[str], str]) -> None:
    if not settings:
        return
    from contextstash.context.settings import PARENT_NAMES, known_settings

    known = known_settings()
    for name in settings:
        if name in known:
            continue
        spelled = [spelling(setting) for setting in known]
        if spelling is _variable:
            spelled += OTHER_VARIABLES
        shown = spelling(str(name))
        near = difflib.get_close_matches(shown, spelled, n=1, cutoff=0.5)
        ours = PARENT_NAMES.get(str(name).lower())
        hint = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(spelled)}."
        raise BadInputError(
            f"There is no setting '{shown}' (in {place}). {f'It is called {spelling(ours)!r} here.' if ours else hint}"
        )


def says_of_outputs(layer: Mapping[str, Any]) -> bool:
    """Whether a layer of settings says anything of the length of one output."""
    return any(name == "preset" or name.startswith("output_") for name in layer)
