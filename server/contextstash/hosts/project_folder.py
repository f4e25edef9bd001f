"""The project that a host started this process for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PROJECT_VARIABLES: Mapping[str, str] = {"claude-code": "CLAUDE_PROJECT_DIR"}
"""The variable in which a host names the project to the programs that it starts, by host. The others start them in the
project's folder and name none."""


def project_folder(environment: Mapping[str, str]) -> Path:
    """The project that any host names, else the current folder."""
    named = next((found for name in PROJECT_VARIABLES.values() if (found := environment.get(name))), None)
    return Path(named) if named else Path.cwd()


def project_folder_of(host: str, environment: Mapping[str, str]) -> Path:
    """The project that this host names, else the current folder. The variables of other hosts do not count: a host that
    was started in another one's shell inherits the name of that one's project."""
    named = environment.get(PROJECT_VARIABLES[host]) if host in PROJECT_VARIABLES else None
    return Path(named) if named else Path.cwd()
