"""`contextstash config trust`: trust the settings file of a project as it is now, or revoke that."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from contextstash.configuration.locations import AGENT_ENDINGS, AGENTS_FOLDER, SETTINGS_FILE, user_config_folder
from contextstash.configuration.project_files import ProjectFile, RefusedFileError, read_project_file
from contextstash.configuration.settings import parsed_agent, parsed_file, shown
from contextstash.configuration.trust import TrustedFiles
from contextstash.hosts.project_folder import project_folder
from contextstash_storage.errors import BadInputError


@click.command("trust")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="Stop trusting this file.")
@click.option("--list", "listed", is_flag=True, help="List the trusted files, and whether they have changed.")
@click.option("--yes", is_flag=True, help="Trust without asking.")
def trust(path: Path | None, revoke: bool, listed: bool, yes: bool) -> None:
    """Apply all settings of a project's file, as long as it does not change.

    A project's contextstash.toml and agents/*.yaml come from the author of the repository. From a file that
    is not trusted only thresholds and amounts to keep apply. A trusted file that changes is no longer trusted.

    PATH is the file, or the project's folder. [default: the current project]
    """
    trusted = TrustedFiles(user_config_folder())
    if listed:
        _list(trusted)
        return
    file, project = _named(path or project_folder(os.environ))
    if revoke:
        _revoke(trusted, file)
        return
    read = _read(file, project)
    _show(read, trusted)
    if not yes:
        if not sys.stdin.isatty():
            raise BadInputError("Not a terminal: pass --yes to trust this file without being asked.")
        click.confirm("Trust this file?", abort=True)
    trusted.add(read)
    click.echo(f"Trusted until it changes: {shown(read.resolved)}")


def _named(path: Path) -> tuple[Path, Path]:
    """The file to trust, and the folder of its project."""
    path = Path.cwd() / path.expanduser()
    if path.is_dir():
        return path / SETTINGS_FILE, path
    if path.parent.name == AGENTS_FOLDER and path.suffix in AGENT_ENDINGS:
        return path, path.parent.parent
    if path.name != SETTINGS_FILE:
        raise BadInputError(f"Only {SETTINGS_FILE} and {AGENTS_FOLDER}/*.yaml of a project can be trusted, not {path}.")
    return path, path.parent


def _read(file: Path, project: Path) -> ProjectFile:
    try:
        read = read_project_file(file, project)
    except RefusedFileError as error:
        raise BadInputError(f"{file} cannot be trusted: {error}.") from error
    if read is None:
        raise BadInputError(f"{file} does not exist.")
    return read


def _show(file: ProjectFile, trusted: TrustedFiles) -> None:
    """Print what the file sets, and mark what applies only if it is trusted."""
    from contextstash.context.window.project_limits import admit

    # a name from the repository too: a link can lead to a file whose name hides what is printed after it
    click.echo(f"{shown(file.resolved)}{' (already trusted)' if trusted.holds(file) else ''} sets:")
    for head, values in _tables(file):
        admitted = admit(values)
        for name, value in values.items():
            reason = admitted.refused.get(name)
            mark = f"  <- only if trusted: {reason}" if reason else ""
            click.echo(f"  {head}{name} = {json.dumps(value, default=str)}{mark}")


def _tables(file: ProjectFile) -> list[tuple[str, Mapping[str, Any]]]:
    """The file's settings, and those of each agent in it. Raises BadInputError if they are invalid."""
    from contextstash.context.window.settings import resolve_settings

    place = str(file.path)
    try:
        text = file.text()
    except RefusedFileError as error:
        raise BadInputError(f"{place} cannot be trusted: {error}.") from error
    if file.path.suffix in AGENT_ENDINGS:
        found: list[tuple[str, Mapping[str, Any]]] = [("", parsed_agent(text, place, aliases=False))]
    else:
        settings, agents = parsed_file(text, place)
        found = [("", settings), *((f"[{json.dumps(name)}] ", table) for name, table in agents.items())]
    for _, values in found:
        resolve_settings(values)
    return found


def _revoke(trusted: TrustedFiles, file: Path) -> None:
    if not trusted.remove(file.resolve()):
        raise BadInputError(f"{file} is not trusted. contextstash config trust --list shows the trusted files.")
    click.echo(f"No longer trusted: {file}")


def _list(trusted: TrustedFiles) -> None:
    found = trusted.hashes()
    if not found:
        click.echo("No project file is trusted.")
    for path, sha256 in sorted(found.items()):
        click.echo(f"{sha256[:12]}  {shown(path)}  {_state(Path(path), sha256)}")


def _state(path: Path, sha256: str) -> str:
    try:
        file = read_project_file(path, path.parent)
    except RefusedFileError as error:
        return f"no longer trusted: {error}"
    if file is None:
        return "missing"
    return "unchanged" if file.sha256 == sha256 else "changed, so no longer trusted"
