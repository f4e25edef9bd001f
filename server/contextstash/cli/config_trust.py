"""`contextstash config trust`: accept a project's settings file as it is now, or take that back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from contextstash.configuration import parsed_agent, parsed_file
from contextstash.hosts.project_folder import project_folder
from contextstash.locations import AGENT_ENDINGS, AGENTS_FOLDER, SETTINGS_FILE, user_config_folder
from contextstash.project_files import ProjectFile, RefusedFileError, read_project_file
from contextstash.trust import TrustedFiles
from contextstash_storage.errors import BadInputError


@click.command("trust")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="Trust this file no longer.")
@click.option("--list", "listed", is_flag=True, help="The files that are trusted, and whether they still are as then.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def trust(path: Path | None, revoke: bool, listed: bool, yes: bool) -> None:
    """Let all settings of a project's file count, as it is now.

    A project's contextstash.toml and agents/*.yaml come from whoever wrote the repository. Of a file that is not
    trusted only thresholds and amounts to keep count. A file that is changed afterwards is not trusted any more.

    PATH is the file, or the project's folder. [default: the project worked on]
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
    click.echo(f"Trusted until it changes: {read.resolved}")


def _named(path: Path) -> tuple[Path, Path]:
    """The file that is meant, and its project's folder."""
    path = Path.cwd() / path.expanduser()
    if path.is_dir():
        return path / SETTINGS_FILE, path
    if path.parent.name == AGENTS_FOLDER and path.suffix in AGENT_ENDINGS:
        return path, path.parent.parent
    if path.name != SETTINGS_FILE:
        raise BadInputError(f"Only {SETTINGS_FILE} and {AGENTS_FOLDER}/*.yaml of a project are trusted, not {path}.")
    return path, path.parent


def _read(file: Path, project: Path) -> ProjectFile:
    try:
        read = read_project_file(file, project)
    except RefusedFileError as error:
        raise BadInputError(f"{file} cannot be trusted: {error}.") from error
    if read is None:
        raise BadInputError(f"There is no file {file}.")
    return read


def _show(file: ProjectFile, trusted: TrustedFiles) -> None:
    """What the file would set, with what counts only once it is trusted marked."""
    from contextstash.context.window.project_limits import admit

    click.echo(f"{file.resolved}{' (trusted already)' if trusted.holds(file) else ''} sets:")
    for head, values in _tables(file):
        admitted = admit(values)
        for name, value in values.items():
            reason = admitted.refused.get(name)
            mark = f"  <- only if trusted: {reason}" if reason else ""
            click.echo(f"  {head}{name} = {json.dumps(value, default=str)}{mark}")


def _tables(file: ProjectFile) -> list[tuple[str, Mapping[str, Any]]]:
    """The file's settings, and those of each agent in it. Raises BadInputError."""
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
        raise BadInputError(f"{file} is not trusted. contextstash config trust --list shows those that are.")
    click.echo(f"No longer trusted: {file}")


def _list(trusted: TrustedFiles) -> None:
    found = trusted.hashes()
    if not found:
        click.echo("No file of a project is trusted.")
    for path, sha256 in sorted(found.items()):
        click.echo(f"{sha256[:12]}  {path}  {_state(Path(path), sha256)}")


def _state(path: Path, sha256: str) -> str:
    try:
        file = read_project_file(path, path.parent)
    except RefusedFileError as error:
        return f"not trusted any more: {error}"
    if file is None:
        return "gone"
    return "as it was" if file.sha256 == sha256 else "changed, so not trusted any more"
