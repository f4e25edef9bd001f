"""A keyring in a file, for commands in processes of their own: PYTHON_KEYRING_BACKEND names it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

PLACE = "FILE_KEYRING"
"""The variable with the file's name; a file that does not end in .json is a locked keyring."""

SECONDS = "FILE_KEYRING_SECONDS"
"""The variable that says how long a person needs to unlock it before something is written."""


class FileKeyring(KeyringBackend):
    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        time.sleep(float(os.environ.get(SECONDS, "0")))
        self._file.write_text(json.dumps({**self._entries(), f"{service} {username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError

    @property
    def _file(self) -> Path:
        return Path(os.environ[PLACE])

    def _entries(self) -> dict[str, str]:
        if self._file.suffix != ".json":
            raise KeyringLocked
        found: dict[str, str] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return found
