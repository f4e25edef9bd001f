"""The settings from outside the program, layer by layer: files, environment, command line; and what they allow: whether
sessions may be sent from this machine, and where to.

A file holds settings for all agents, and below `[agents.NAME]` those for one. A project's file is written by the
authors of the repository, and is not trusted: it is read only if it is a regular file of limited size, and parsed only
once the user has accepted exactly this file, by path and SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contextstash.base.files import PRIVATE, read_regular, replace_file
from contextstash.configuration.database import KEY_SETTING, SETTINGS_FILE, user_config_folder
from contextstash.safety.sanitize import one_line
from contextstash_storage.errors import BadInputError

PREFIX = "CONTEXTSTASH_"

OWN_KEY = "CONTEXTSTASH_ANTHROPIC_API_KEY"
"""Holds the key of the model that writes summaries. Meant for contextstash alone: whoever sets it agrees that a model
is called."""

INHERITED_KEY = "ANTHROPIC_API_KEY"
"""Meant for any program, and inherited from a client: a credential, not consent."""

OTHER_VARIABLES = ("CONTEXTSTASH_DB", OWN_KEY)
"""Variables with our prefix that are not settings."""

AGENTS = "agents"
"""The table of a file that holds, by agent, settings for that agent alone."""

MAX_FILE_BYTES = 64 * 1024
"""About twenty times the size of a file with every setting."""

TRUST_FILE = "trusted.json"

SHOWN = 600
"""Characters that are shown of a text from an untrusted file: some lines of a terminal."""

logger = logging.getLogger(__name__)

RemarkHandler = Callable[[str], None]
"""Called with a line about a project's file that is not used."""

ByAgent = dict[str | None, dict[str, Any]]
"""The settings of a file: those for all agents under None, and those for one under its name."""


@dataclass(frozen=True)
class Layer:
    """Settings from one source; `name` is its name for people. `of_user` is true if the user wrote them; those for one
    `agent` say which."""

    name: str
    values: Mapping[str, Any]
    of_user: bool = True
    agent: str | None = None


@dataclass(frozen=True)
class Configuration:
    """The layers of all agents, the weakest first; each session has its own over them."""

    all_layers: tuple[Layer, ...] = ()
    has_own_key: bool = False

    def over(self, layer: Layer) -> Configuration:
        """The same with a layer that is stronger than all others. Raises BadInputError if it names the key's place."""
        if KEY_SETTING in layer.values:  # files are opened without the layers of settings
            said = f"{KEY_SETTING} cannot be given by {layer.name}: contextstash config set {KEY_SETTING}=…"
            raise BadInputError(said)
        return replace(self, all_layers=(*self.all_layers, layer))

    def layers(self, agent: str | None = None) -> tuple[Layer, ...]:
        """The layers for an agent, the weakest first, without empty ones."""
        return tuple(each for each in self.all_layers if each.values and each.agent in (None, agent))

    def agents(self) -> list[str]:
        """The agents that have settings of their own."""
        return sorted({each.agent for each in self.all_layers if each.agent})

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


def configuration(
    *,
    project: Path,
    environment: Mapping[str, str],
    preset: str | None = None,
    given: Iterable[str] = (),
    user_folder: Path | None = None,
    on_remark: RemarkHandler | None = None,
) -> Configuration:
    """The settings of the user's file, the project's file, the environment, `preset` and `given` (each `key=value`),
    the weakest first. `on_remark` is called with each remark on a project's file; without it they are logged.

    Raises BadInputError if a setting does not exist (naming its place and the most similar setting), if a value is not
    valid, or if a file is not TOML. A project's file that is not trusted is not read.
    """
    own = user_folder or user_config_folder()
    ours = {
        name.removeprefix(PREFIX).lower(): _read_value(value)
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES
    }
    check_names(ours, f"the environment, behind {PREFIX}")
    found = Configuration(
        (
            *_layers_of_files(own, project, on_remark or logger.warning),
            Layer("environment", ours),
            Layer("--preset", {"preset": preset} if preset else {}),
        ),
        has_own_key=is_key(environment.get(OWN_KEY)),
    ).over(Layer("--set", read_pairs(given)))
    if merged := found.settings_layer():
        from contextstash.window.settings import resolve_settings

        resolve_settings(merged)
    return found


# Files.


def _layers_of_files(own: Path, project: Path, on_remark: RemarkHandler) -> list[Layer]:
    """The layers of the user's file and of the project's: for all agents, and over these those for one."""
    found = []
    for folder in (own,) if project.resolve() == own.resolve() else (own, project):
        path, of_user = folder / SETTINGS_FILE, folder == own
        text = text_of(path) if of_user else _accepted(path, TrustedFiles(own), on_remark)
        for agent, values in ({} if text is None else settings_in(text, path)).items():
            if KEY_SETTING in values and not (of_user and agent is None):  # a file is opened before the layers
                on_remark(f"{KEY_SETTING} in {path} is not used: set it in the environment or your own file.")
                del values[KEY_SETTING]
            found.append(Layer(f"{path} [{AGENTS}.{agent}]" if agent else str(path), values, of_user, agent))
    return sorted(found, key=lambda each: each.agent is not None)


def _accepted(path: Path, trusted: TrustedFiles, on_remark: RemarkHandler) -> str | None:
    """A project's file, None if it does not exist or was not accepted by the user."""
    try:
        text = text_of(path, of_user=False)
    except BadInputError as error:
        on_remark(f"{one_line(str(error), SHOWN)} It is ignored.")
        return None
    if text is None or trusted.holds(path, text):
        return text
    name = one_line(str(path), SHOWN)
    on_remark(
        f"{name} is a project's file that you have not accepted, so it is not used."
        f" To accept exactly this file: contextstash config trust {name}"
    )
    return None


@dataclass(frozen=True)
class TrustedFiles:
    """The files that the user has accepted: a list in the user's configuration folder, readable by the user alone."""

    folder: Path

    def hashes(self) -> dict[str, str]:
        """The accepted files: SHA-256 by path. Raises BadInputError if the list cannot be read."""
        path = self.folder / TRUST_FILE
        try:
            return {str(name): str(sha256) for name, sha256 in json.loads(path.read_bytes())["files"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            said = f"The list of trusted files cannot be read: {path}. Delete it and trust them again."
            raise BadInputError(said) from error

    def holds(self, path: Path, text: str) -> bool:
        """Whether exactly this file was accepted. A list that cannot be read accepts none."""
        try:
            return self.hashes().get(str(path.resolve())) == hashlib.sha256(text.encode()).hexdigest()
        except BadInputError:
            return False

    def add(self, path: Path, text: str) -> None:
        """Accept a file with the text that was read."""
        files = {**self.hashes(), str(path.resolve()): hashlib.sha256(text.encode()).hexdigest()}
        replace_file(self.folder / TRUST_FILE, json.dumps({"files": files}, indent=2).encode(), PRIVATE)


def text_of(path: Path, *, of_user: bool = True) -> str | None:
    """A file of settings, None if it does not exist. Raises BadInputError if it cannot be read; one that is not
    `of_user` also if it is not a regular file of at most 64 KB, but a link or a device."""
    try:
        data = path.read_bytes() if of_user else read_regular(path, MAX_FILE_BYTES, follow_links=False)
        return data.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInputError(f"{path} cannot be read: {reason}.") from error


def settings_in(text: str, path: Path) -> ByAgent:
    """The settings in a file, all of them known. Raises BadInputError."""
    import tomllib

    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits raises a plain ValueError
        raise BadInputError(f"{path} is not valid TOML: {error}.") from error
    agents = values.pop(AGENTS, {})
    if not isinstance(agents, dict) or not all(isinstance(each, dict) for each in agents.values()):
        raise BadInputError(f"{path}: '{AGENTS}' must hold tables, such as [{AGENTS}.claude-code]")
    found: ByAgent = {None: values, **agents}
    for each in found.values():
        check_names(each, str(path))
    return found


# Names and values.


def check_names(settings: Collection[Any], place: str) -> None:
    """Raises BadInputError if a name is not a setting."""
    if settings:  # most have none, and the import takes time
        from contextstash.window import settings as known

        known.check_names(map(str, settings), place)


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


# Consent.


def api_key_from(environment: Mapping[str, str]) -> str | None:
    """The key, None if none is set. It is a secret: never logged, stored or shown."""
    return next((key for name in (OWN_KEY, INHERITED_KEY) if is_key(key := environment.get(name))), None)


def is_key(value: str | None) -> bool:
    """Whether a variable holds a key. A client that expands `${user_config.…}` leaves it unexpanded if the user entered
    nothing."""
    return bool(value and value.strip()) and not str(value).startswith("${")


def network_use(
    found: Configuration, environment: Mapping[str, str], agent: str | None = None
) -> tuple[bool, str, str]:
    """Whether sessions of an agent may be sent, this in a sentence for the user, and what is set without effect."""
    from contextstash.window.settings import resolve_settings

    settings = resolve_settings(found.settings_layer(agent))
    consent, key = found.consent(agent), api_key_from(environment)
    if consent is None or (key is None and settings.summarizer_base_url is None):
        unused = f"{INHERITED_KEY} is set but not used: no setting of yours allows model calls." if key else ""
        if consent is not None:
            unused = f"Model calls are allowed ({consent}), but no key and no address are set."
        return False, "Nothing leaves this machine.", unused
    address = settings.summarizer_base_url or environment.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
    try:
        parts = urlsplit(address)  # never the user, password, path or query in it
        port = f":{parts.port}" if parts.port else ""
        host = f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "an unreadable address"
    except ValueError:
        host = "an unreadable address"
    return True, f"Sessions may be sent to {host} (model {settings.summarizer_model}): allowed by {consent}.", ""


def without_credentials(value: Any) -> Any:
    """A setting's value for display: an address without its user and password."""
    if not isinstance(value, str) or "://" not in value:
        return value
    scheme, _, rest = value.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"
