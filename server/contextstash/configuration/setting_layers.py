"""The settings from outside the program, layer by layer: files, agents' files, environment, command line.

A project's files are written by the authors of the repository: they are not used unless the user has accepted exactly
this file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contextstash.configuration.api_key import OWN_KEY, is_key
from contextstash.configuration.locations import (
    AGENTS_FOLDER,
    KEY_SETTING,
    SETTINGS_FILE,
    agent_files,
    user_config_folder,
)
from contextstash.configuration.settings_files import (
    TrustedFiles,
    check_names,
    checked,
    text_of,
)
from contextstash_storage.errors import BadInputError

PREFIX = "CONTEXTSTASH_"

OTHER_VARIABLES = ("CONTEXTSTASH_DB", OWN_KEY)
"""Variables with our prefix that are not settings."""

logger = logging.getLogger(__name__)


RemarkHandler = Callable[[str], None]
"""Called with a line about a project's file that is not used."""


def _log(remark: str) -> None:
    logger.warning("%s", remark)


@dataclass(frozen=True)
class Layer:
    """Settings from one source; `name` is its name for people. `of_user` is true if the user wrote them."""

    name: str
    values: Mapping[str, Any]
    of_user: bool = True


@dataclass(frozen=True)
class Configuration:
    """All layers except the session's own. `folders` are the user's and the project's, in which a file counts only if
    it is among the `trusted`. Each file is read once: an agent's file when its layers are first needed."""

    folders: tuple[Path, ...] = ()
    strongest: tuple[Layer, ...] = ()
    has_own_key: bool = False
    trusted: TrustedFiles | None = None
    on_remark: RemarkHandler = _log
    _files: dict[Path, Layer] = field(default_factory=dict, repr=False, compare=False)

    def over(self, layer: Layer) -> Configuration:
        """The same with a layer that is stronger than all others."""
        return replace(self, strongest=(*self.strongest, layer))

    def layers(self, agent: str | None = None) -> tuple[Layer, ...]:
        """The layers for an agent, the weakest first, without empty ones. Raises BadInputError if the agent's file is
        not valid."""
        files = [self._read(folder, folder / SETTINGS_FILE) for folder in self.folders]
        agents = [self._read(each, path) for each in self.folders for path in agent_files(each, agent or "")]
        return tuple(each for each in (*files, *agents, *self.strongest) if each.values)

    def agents(self) -> list[str]:
        """The agents that have a file of their own."""
        return sorted({path.stem for folder in self.folders for path in (folder / AGENTS_FOLDER).glob("*.y*ml")})

    def settings_layer(self, agent: str | None = None) -> dict[str, Any]:
        """The layers for an agent as one: the server's layer of settings."""
        return {name: value for layer in self.layers(agent) for name, value in layer.values.items()}

    def consent(self, agent: str | None = None) -> str | None:
        """The setting of the user's own configuration that allows calls to a model, None if there is none. A project's
        file cannot allow them, even if it is trusted."""
        if self.has_own_key:
            return OWN_KEY
        from contextstash.window.settings import consenting

        users = [layer for layer in self.layers(agent) if layer.of_user]
        name = consenting({name: value for layer in users for name, value in layer.values.items()})
        return name and f"{name} in {next(layer.name for layer in reversed(users) if name in layer.values)}"

    def may_call_model(self, agent: str | None = None) -> bool:
        """Whether the user allows calls to a model for an agent's sessions."""
        return self.consent(agent) is not None

    def _read(self, folder: Path, path: Path) -> Layer:
        """The settings of a file that count, none if it does not exist."""
        if path not in self._files:
            of_user = folder == self.folders[0]
            text = text_of(path) if of_user else self._accepted(path)
            values = {} if text is None else checked(text, path)
            if KEY_SETTING in values and path != self.folders[0] / SETTINGS_FILE:  # a file is opened before the layers
                self.on_remark(f"{KEY_SETTING} in {path} is not used: it counts in the environment or your own file.")
                del values[KEY_SETTING]
            self._files[path] = Layer(str(path), values, of_user)
        return self._files[path]

    def _accepted(self, path: Path) -> str | None:
        """A project's file, None if it does not exist or was not accepted by the user."""
        try:
            text = text_of(path, of_user=False)
        except BadInputError as error:
            self.on_remark(f"{shown(error)} It is ignored.")
            return None
        if text is None or (self.trusted is not None and self.trusted.holds(path, text)):
            return text
        self.on_remark(
            f"{shown(path)} is a project's file that you have not accepted, so it is not used."
            f" To accept exactly this file: contextstash config trust {shown(path)}"
        )
        return None


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
    valid, or if a file is not TOML. A project's file that is not trusted is not read.
    """
    own = user_folder or user_config_folder()
    options = read_pairs(given)
    if KEY_SETTING in options:  # files are opened without the layers of settings
        raise BadInputError(f"{KEY_SETTING} cannot be given by --set: contextstash config set {KEY_SETTING}=…")
    found = Configuration(
        folders=(own,) if project.resolve() == own.resolve() else (own, project),
        strongest=(
            Layer("environment", _read_environment(environment)),
            Layer("--preset", {"preset": preset} if preset else {}),
            Layer("--set", options),
        ),
        has_own_key=is_key(environment.get(OWN_KEY)),
        trusted=TrustedFiles(own),
        on_remark=on_remark or _log,
    )
    if merged := found.settings_layer():
        from contextstash.window.settings import resolve_settings

        resolve_settings(merged)
    return found


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
    check_names(settings, f"the environment, behind {PREFIX}")
    return settings


def read_pairs(pairs: Iterable[str], place: str = "--set") -> dict[str, Any]:
    """Settings given as key=value in this place, their names checked, their values as text. Raises BadInputError."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInputError(f"A setting is given as key=value, not '{pair}'. Example: prune_at=0.6")
        settings[name.strip()] = _read_value(value.strip())
    check_names(settings, place)
    return settings


def _read_value(text: str) -> str | None:
    """The value of a variable or option as text; the settings themselves convert numbers and truth values. A number of
    thousands may be written as 50k."""
    if re.fullmatch(r"[0-9_]+k", text, re.IGNORECASE):
        return f"{text[:-1]}000"
    return None if text.lower() in ("", "none") else text
