"""The files of projects that the user has accepted, by path and SHA-256: a changed file is no longer accepted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from contextstash.base.atomic_file import PRIVATE, replace_file
from contextstash.configuration.project_files import ProjectFile
from contextstash_storage.errors import BadInputError

TRUST_FILE = "trusted.json"


@dataclass(frozen=True)
class TrustedFiles:
    """The list, kept in the user's configuration folder and readable by the user alone."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / TRUST_FILE

    def hashes(self) -> dict[str, str]:
        """The accepted files: SHA-256 by path. Raises BadInputError if the list cannot be read."""
        try:
            read = json.loads(self.path.read_bytes())
            return {str(path): str(sha256) for path, sha256 in read["files"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadInputError(
                f"The list of trusted files cannot be read: {self.path}. Delete it and trust them again."
            ) from error

    def holds(self, file: ProjectFile) -> bool:
        """Whether exactly this file was accepted. A list that cannot be read accepts none."""
        try:
            return self.hashes().get(str(file.resolved)) == file.sha256
        except BadInputError:
            return False

    def add(self, file: ProjectFile) -> None:
        """Accept a file with the content that was read."""
        self._write({**self.hashes(), str(file.resolved): file.sha256})

    def remove(self, resolved: Path) -> bool:
        """Revoke the acceptance of a file; False if it was not accepted."""
        known = self.hashes()
        if known.pop(str(resolved), None) is None:
            return False
        self._write(known)
        return True

    def _write(self, files: dict[str, str]) -> None:
        replace_file(self.path, json.dumps({"files": files}, indent=2).encode(), PRIVATE)
