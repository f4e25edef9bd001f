"""Files of settings: read, a project's only if the user has accepted exactly this file, and parsed as names and values.

A project's file is untrusted: it is read only if it is a regular file of limited size, without blocking on a FIFO or
device, and parsed only once the user has accepted it, by path and SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextstash.base.files import PRIVATE, read_regular, replace_file
from contextstash.configuration.locations import AGENT_ENDINGS
from contextstash_storage.errors import BadInputError

MAX_FILE_BYTES = 64 * 1024
"""About twenty times the size of a file with every setting."""

TRUST_FILE = "trusted.json"


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
            return self.hashes().get(_place(path)) == hashlib.sha256(text.encode()).hexdigest()
        except BadInputError:
            return False

    def add(self, path: Path, text: str) -> None:
        """Accept a file with the text that was read."""
        self._write({**self.hashes(), _place(path): hashlib.sha256(text.encode()).hexdigest()})

    def remove(self, path: Path) -> bool:
        """Revoke the acceptance of a file; False if it was not accepted."""
        known = self.hashes()
        if known.pop(_place(path), None) is None:
            return False
        self._write(known)
        return True

    def _write(self, files: dict[str, str]) -> None:
        replace_file(self.folder / TRUST_FILE, json.dumps({"files": files}, indent=2).encode(), PRIVATE)


def _place(path: Path) -> str:
    """By what a file is known, also one that has become a link since."""
    return str(path.parent.resolve() / path.name)


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


def checked(text: str, path: Path) -> dict[str, Any]:
    """The settings in a file, all of them known. Raises BadInputError."""
    settings = (_agents_file if path.suffix in AGENT_ENDINGS else _toml)(text, str(path))
    check_names(settings, str(path))
    return settings


def _toml(text: str, place: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits raises a plain ValueError
        raise BadInputError(f"{place} is not valid TOML: {error}.") from error


def _agents_file(text: str, place: str) -> dict[str, Any]:
    """The settings of an agent's YAML file: under `context` if it exists, else the whole file."""
    import yaml  # few have such files, and each start of a server waits for its imports

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"{place} is not valid YAML: {' '.join(str(error).split())[:300]}.") from error
    settings = data.get("context", data) if isinstance(data, dict) else data
    if settings is not None and not isinstance(settings, dict):
        raise BadInputError(f"{place}, or 'context' in it, must hold settings, such as messages_at: 30")
    return settings or {}


def check_names(settings: Collection[Any], place: str) -> None:
    """Raises BadInputError if a name is not a setting."""
    if not settings:  # most have none, and the import takes time
        return
    from contextstash.window.settings import UserSettings, unknown_setting

    for name in settings:
        if name not in UserSettings.model_fields:
            raise BadInputError(unknown_setting(str(name), place))
