"""`contextstash config`: the effective settings and the layer that set each, and the project files that are trusted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import click

from contextstash.base.files import replace_file
from contextstash.cli.console import echo, echo_json, print_table
from contextstash.cli.options import JSON, settings_from
from contextstash.clients.client import project_folder
from contextstash.configuration.locations import AGENT_ENDINGS, AGENTS_FOLDER, SETTINGS_FILE, user_config_folder
from contextstash.configuration.setting_layers import Layer, read_pairs, shown
from contextstash.configuration.settings_files import (
    TrustedFiles,
    check_names,
    checked,
    text_of,
)
from contextstash_storage.errors import BadInputError


@click.group()
def config() -> None:
    """Show and change settings: the effective ones, and the layer that set each."""


@config.command("show")
@JSON
def show(as_json: bool) -> None:
    """Show each effective value, the layer that set it, and whether data may leave this machine."""
    from contextstash.configuration.consent import network_use

    remarks: list[str] = []
    configuration = settings_from(None, (), remarks.append)
    network = network_use(configuration, os.environ)
    values = _effective(configuration.layers())
    if as_json:
        echo_json({"settings": values, "network": network.sentence, "ignored": remarks})
        return
    print_table(["setting", "value", "set by"], [(each["name"], str(each["value"]), each["layer"]) for each in values])
    for line in (" ".join(filter(None, (network.sentence, network.detail))), *remarks):
        echo(line)


def _effective(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    """The name of every setting in order, its value and its layer. Raises BadInputError if a value is invalid."""
    from contextstash.configuration.consent import without_credentials
    from contextstash.window.settings import PRESETS, UserSettings, resolve_settings

    resolved = resolve_settings(*(layer.values for layer in layers))
    of_preset = dict.fromkeys(PRESETS[resolved.preset], f"preset {resolved.preset}")
    setters = {**of_preset, **{name: layer.name for layer in layers for name in layer.values}}
    return [
        {"name": name, "value": without_credentials(value), "layer": setters.get(name, "default")}
        for name, value in resolved.model_dump(include=set(UserSettings.model_fields)).items()
    ]


@config.command("set")
@click.argument("pairs", nargs=-1, metavar="KEY=VALUE...")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a setting; may be given several times.")
def set_(pairs: tuple[str, ...], unset: tuple[str, ...]) -> None:
    """Write settings to your own settings file; its comments and everything else in it stay.

    Example: contextstash config set preset=default-quality window=200000
    """
    if not pairs and not unset:
        raise BadInputError("Nothing to set. Example: contextstash config set window=200000")
    check_names(dict.fromkeys(unset), "--unset")
    written = write_settings({**read_pairs(pairs, "config set"), **dict.fromkeys(unset)})
    for name, value in written.items():
        click.echo(f"{name} is no longer set" if value is None else f"{name} = {value}")
    click.echo(f"Written to {user_config_folder() / SETTINGS_FILE}", err=True)


def write_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Write settings to the user's own file, and take out those that are None. Returns them with their types. Raises
    BadInputError if one is invalid."""
    from contextstash.clients.configuration_files import edited
    from contextstash.window.settings import resolve_settings

    resolved = resolve_settings(given)
    values = {name: None if value is None else getattr(resolved, name) for name, value in given.items()}
    file = user_config_folder() / SETTINGS_FILE

    def change(data: MutableMapping[str, Any]) -> None:
        for name in [name for name, value in values.items() if value is None]:
            data.pop(name, None)
        data.update({name: value for name, value in values.items() if value is not None})

    text = edited("toml", text_of(file) or "", change, str(file))
    resolve_settings(checked(text, file))
    replace_file(file, text.encode())
    return values


@config.command("trust")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="Stop trusting this file.")
@click.option("--yes", is_flag=True, help="Trust without asking.")
def trust(path: Path | None, revoke: bool, yes: bool) -> None:
    """Use the settings of a project's file, as long as it does not change.

    A project's contextstash.toml and agents/*.yaml come from the author of the repository. A file that is not
    trusted is not used. A trusted file that changes is no longer trusted.

    PATH is the file, or the project's folder. [default: the current project]
    """
    trusted, file = TrustedFiles(user_config_folder()), _named(path or project_folder(os.environ))
    if revoke:
        if not trusted.remove(file):
            raise BadInputError(f"{file} is not trusted.")
        click.echo(f"No longer trusted: {shown(file)}")
        return
    text = text_of(file, of_user=False)
    if text is None:
        raise BadInputError(f"{file} does not exist.")
    _show(file, text)
    if not yes and not sys.stdin.isatty():
        raise BadInputError("Not a terminal: pass --yes to trust this file without being asked.")
    if not yes:
        click.confirm("Trust this file?", abort=True)
    trusted.add(file, text)
    click.echo(f"Trusted until it changes: {shown(file)}")


def _named(path: Path) -> Path:
    """The file to trust."""
    path = Path.cwd() / path.expanduser()
    if path.is_dir():
        return path / SETTINGS_FILE
    if path.name != SETTINGS_FILE and not (path.parent.name == AGENTS_FOLDER and path.suffix in AGENT_ENDINGS):
        raise BadInputError(f"Only {SETTINGS_FILE} and {AGENTS_FOLDER}/*.yaml of a project can be trusted, not {path}.")
    return path


def _show(file: Path, text: str) -> None:
    """Print what the file sets. Raises BadInputError if that is invalid."""
    from contextstash.window.settings import resolve_settings

    settings = checked(text, file)
    resolve_settings(settings)
    click.echo(f"{shown(file)} sets:")
    for name, value in settings.items():
        click.echo(f"  {name} = {json.dumps(value, default=str)}")
