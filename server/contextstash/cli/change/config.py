"""`contextstash config`: the effective settings, and the layer that set each."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.change.config_trust import trust
from contextstash.cli.options import (
    DATABASE,
    JSON,
    PRESET,
    SET,
    StashOpener,
    find_session,
    settings_from,
)
from contextstash.cli.output import print_table
from contextstash.configuration.locations import AGENTS_FOLDER, SETTINGS_FILE, settings_folders
from contextstash.configuration.settings import Configuration, Layer, Remark
from contextstash.context.text.counts import counted
from contextstash.hosts.project_folder import project_folder

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash_storage.databases import Location
    from contextstash_storage.records import Session
from collections.abc import MutableMapping

from contextstash.configuration.locations import user_config_folder
from contextstash.configuration.settings import parsed_file, read_pairs
from contextstash.configuration.settings_files import AGENTS_TABLE, check_names, text_of
from contextstash.files.atomic_file import replace_file
from contextstash_storage.errors import BadInputError


@dataclass(frozen=True)
class Effective:
    """The effective value of a setting, and the layer that set it."""

    name: str
    value: Any
    layer: str


@click.group()
def config() -> None:
    """Show and change settings: the effective ones, the layer that set each, and the presets."""


@config.command("show")
@click.option("--agent", metavar="NAME", help="Include the settings of this agent, agents/NAME.yaml.")
@click.option("--session", metavar="ID", help="Include the settings of this session and of its agent.")
@click.option("--model", metavar="NAME", help="The model whose window the thresholds at the end are computed for.")
@click.option("--all", "everything", is_flag=True, help="Also show the settings with default values.")
@DATABASE
@PRESET
@SET
@JSON
def show(
    agent: str | None,
    session: str | None,
    model: str | None,
    everything: bool,
    db: Location | None,
    preset: str | None,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show each effective value, the layer that set it, and whether data may leave this machine."""
    from contextstash.cli.start.network_use import key_line, network_use
    from contextstash.context.window.settings import session_layer

    remarks: list[Remark] = []
    configuration = settings_from(preset, given, remarks.append)
    found = _session(StashOpener(db, configuration), session) if session else None
    agent = agent or (found.agent if found else None)
    own = session_layer(found.settings) if found else {}
    layers = [*configuration.layers(agent), *([Layer("session", own)] if found else [])]
    values = effective(layers)
    key, network = key_line(configuration, os.environ, agent), network_use(configuration, os.environ, agent, own)
    thresholds = _thresholds(layers, model or (found.model if found else None))
    if as_json:
        rows = [asdict(value) for value in values]
        other = {"api_key": key, "network": network.sentence, "ignored": [remark.text for remark in remarks]}
        click.echo(json.dumps({"settings": rows, "tokens": thresholds, **other}, indent=2, ensure_ascii=False))
        return
    shown = [value for value in values if everything or value.layer != "default"]
    if shown:
        print_table(["setting", "value", "set by"], [(each.name, _text(each.value), each.layer) for each in shown])
    if not everything:
        click.echo(f"{len(values) - len(shown)} settings have default values; --all shows them.")
    click.echo(", ".join(f"{name.replace('_', ' ')} {tokens:,}" for name, tokens in thresholds.items()) + " tokens.")
    for line in (key, " ".join(filter(None, (network.sentence, network.detail))), *(remark.text for remark in remarks)):
        click.echo(line)


def _session(opener: StashOpener, prefix: str) -> Session:
    async def work(stash: Stash) -> Session:
        return await stash.read_session(await find_session(stash, prefix))

    return opener.run(work)


def effective(layers: list[Layer]) -> list[Effective]:
    """Every setting in order, with its value and its layer. Raises BadInputError if a value is invalid."""
    from contextstash.cli.start.network_use import without_credentials
    from contextstash.context.window.presets import PRESETS
    from contextstash.context.window.settings import resolve_settings

    resolved = resolve_settings(*(layer.values for layer in layers))
    setters = {name: layer.name for layer in layers for name in layer.values}
    own = PRESETS[resolved.preset]
    return [
        Effective(
            name,
            without_credentials(value),
            setters.get(name) or (f"preset {resolved.preset}" if name in own else "default"),
        )
        for name, value in resolved.model_dump().items()
    ]


def _thresholds(layers: list[Layer], model: str | None) -> dict[str, int]:
    """The thresholds in tokens, computed from the window."""
    from contextstash.configuration.models import model_facts
    from contextstash.context.window.settings import resolve_settings
    from contextstash.context.window.thresholds import budget_of
    from contextstash.service.economic_size import economic_size

    settings = resolve_settings(*(layer.values for layer in layers))
    facts = model_facts(model)
    window = settings.window_tokens or facts.window
    if settings.window == "economic":
        window = economic_size(settings, model, window, fixed=0)
    budget = budget_of(settings, window, known=facts.known or settings.window is not None)
    return {
        "window": budget.window,
        "usable": budget.usable,
        "prune_above": budget.prune_at,
        "compact_above": budget.compact_at,
        "critical_above": budget.critical_at,
    }


def _text(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@config.command("presets")
@JSON
def presets(as_json: bool) -> None:
    """List the presets, each with the values that differ from the defaults."""
    from contextstash.context.window.presets import PRESETS

    if as_json:
        click.echo(json.dumps(PRESETS, indent=2, ensure_ascii=False))
        return
    for name, values in PRESETS.items():
        click.echo(name)
        for setting, value in values.items():
            click.echo(f"  {setting} = {_text(value)}")


@config.command("path")
@PRESET
@SET
def path(preset: str | None, given: tuple[str, ...]) -> None:
    """List the places of settings, lowest precedence first, and what each holds."""
    configuration: Configuration = settings_from(preset, given)
    counts = {layer.name: len(layer.values) for layer in configuration.layers()}
    rows: list[tuple[object, ...]] = []
    for folder in settings_folders(project_folder(os.environ)):
        name = str(folder / SETTINGS_FILE)
        rows.append((name, counted(counts[name], "setting") if name in counts else "missing or empty"))
        agents = folder / AGENTS_FOLDER
        found = sorted(each.name for each in agents.glob("*.y*ml")) if agents.is_dir() else []
        rows.append((f"{agents}/<agent>.yaml", ", ".join(found) or "none"))
    rows.append(("environment, CONTEXTSTASH_*", counted(counts.get("environment", 0), "setting")))
    print_table(["place", "content"], rows)


@click.command("set")
@click.argument("pairs", nargs=-1, metavar="KEY=VALUE...")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a setting; may be given several times.")
@click.option("--agent", metavar="NAME", help="Only for this agent.")
def set_(pairs: tuple[str, ...], unset: tuple[str, ...], agent: str | None) -> None:
    """Write settings to your own settings file; its comments and everything else in it stay.

    Example: contextstash config set preset=default-quality window=200000
    """
    from contextstash.context.window.settings import resolve_settings
    from contextstash.hosts.settings_files import edited

    if not pairs and not unset:
        raise BadInputError("Nothing to set. Example: contextstash config set window=200000")
    check_names(dict.fromkeys(unset), "--unset")
    given = read_pairs(pairs, "config set")
    resolved = resolve_settings(given)
    values = {name: getattr(resolved, name) for name in given if given[name] is not None}
    file = user_config_folder() / SETTINGS_FILE

    def change(data: MutableMapping[str, Any]) -> None:
        place = data if agent is None else data.setdefault(AGENTS_TABLE, {}).setdefault(agent, {})
        for name in {*unset, *given} - set(values):
            place.pop(name, None)
        # TOML's top-level keys stand before its first table; tomlkit puts new ones there.
        place.update(values)

    text = edited("toml", text_of(file) or "", change, str(file))
    settings, tables = parsed_file(text, str(file))
    resolve_settings({**settings, **(tables.get(agent, {}) if agent else {})})
    replace_file(file, text.encode())
    for name in (*values, *({*unset, *given} - set(values))):
        click.echo(f"{name} = {values[name]}" if name in values else f"{name} is no longer set")
    click.echo(f"Written to {file}", err=True)


config.add_command(set_)
config.add_command(trust)
