"""The settings a user gives outside the program: contextstash.toml, the environment, the command line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from contextstash_storage.errors import BadInputError

FILE_NAME = "contextstash.toml"

PREFIX = "CONTEXTSTASH_"

OTHER_VARIABLES = ("CONTEXTSTASH_DB", "CONTEXTSTASH_ANTHROPIC_API_KEY")
"""Variables with our prefix that are no settings."""


def configured_settings(
    *,
    project: Path,
    environment: Mapping[str, str],
    preset: str | None = None,
    given: Iterable[str] = (),
    user_folder: Path | None = None,
) -> dict[str, Any]:
    """The server's layer of settings, weakest first: the user's file, the project's file, the environment,
    `preset`, and `given` (each `key=value`).

    Raises BadInputError on a misspelt setting, naming the nearest right one and where it stands, on a value
    that cannot be used, and on a file that is not TOML.
    """
    layers = [_read_file(folder / FILE_NAME) for folder in (user_folder or _user_folder(), project)]
    layers += [_read_environment(environment), {"preset": preset} if preset else {}, _read_pairs(given)]
    merged = {name: value for layer in layers for name, value in layer.items()}
    if merged:
        from contextstash.context.settings import resolve_settings

        resolve_settings(merged)
    return merged


def _user_folder() -> Path:
    from platformdirs import user_config_path

    return user_config_path("contextstash", appauthor=False)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}.") from error
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path} is not valid TOML: {error}.") from error
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


def _check_names(settings: Mapping[str, Any], place: str, spelling: type[str] | Any) -> None:
    if not settings:
        return
    from contextstash.context.settings import known_settings

    known = known_settings()
    for name in settings:
        if name in known:
            continue
        spelled = [spelling(setting) for setting in known]
        if spelling is _variable:
            spelled += OTHER_VARIABLES
        near = difflib.get_close_matches(spelling(name), spelled, n=1, cutoff=0.5)
        hint = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(spelled)}."
        raise BadInputError(f"There is no setting '{spelling(name)}' (in {place}). {hint}")
