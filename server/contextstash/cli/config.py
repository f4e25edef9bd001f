"""`contextstash config`: which settings are in force, and which layer set each."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.config_trust import trust
from contextstash.cli.options import (
    DATABASE,
    JSON,
    PRESET,
    SET,
    Opening,
    find_session,
    settings_from,
)
from contextstash.cli.output import print_table
from contextstash.configuration import Configuration, Layer, Remark
from contextstash.hosts.project_folder import project_folder
from contextstash.locations import AGENTS_FOLDER, SETTINGS_FILE, settings_folders

if TYPE_CHECKING:
    from pathlib import Path

    from contextstash.service.stash import Stash
    from contextstash_storage.records import Session


@dataclass(frozen=True)
class Effective:
    """A setting's value in force, and the layer that set it."""

    name: str
    value: Any
    layer: str


@click.group()
def config() -> None:
    """Show which settings are in force, which layer set each, and what presets there are."""


@config.command("show")
@click.option("--agent", metavar="NAME", help="For this agent, with agents/NAME.yaml.")
@click.option("--session", metavar="ID", help="For this session, with its own settings and those of its agent.")
@click.option("--model", metavar="NAME", help="Whose window the numbers at the end are for.")
@click.option("--all", "everything", is_flag=True, help="Also the settings that are as by default.")
@DATABASE
@PRESET
@SET
@JSON
def show(
    agent: str | None,
    session: str | None,
    model: str | None,
    everything: bool,
    db: Path | None,
    preset: str | None,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Each effective value and which layer set it, and whether anything may leave this machine."""
    from contextstash.cli.network_use import key_line, network_use
    from contextstash.context.window.settings import session_layer

    remarks: list[Remark] = []
    configuration = settings_from(preset, given, remarks.append)
    found = _session(Opening(db, configuration), session) if session else None
    agent = agent or (found.agent if found else None)
    own = session_layer(found.settings) if found else {}
    layers = [*configuration.layers(agent), *([Layer("session", own)] if found else [])]
    values = effective(layers)
    key, network = key_line(configuration, os.environ, agent), network_use(configuration, os.environ, agent, own)
    marks = _marks(layers, model or (found.model if found else None))
    if as_json:
        rows = [asdict(value) for value in values]
        told = {"api_key": key, "network": network.says, "ignored": [remark.text for remark in remarks]}
        click.echo(json.dumps({"settings": rows, "tokens": marks, **told}, indent=2, ensure_ascii=False))
        return
    shown = [value for value in values if everything or value.layer != "default"]
    if shown:
        print_table(["setting", "value", "set by"], [(each.name, _text(each.value), each.layer) for each in shown])
    if not everything:
        click.echo(f"{len(values) - len(shown)} settings are as by default; --all shows them.")
    click.echo(", ".join(f"{name.replace('_', ' ')} {tokens:,}" for name, tokens in marks.items()) + " tokens.")
    for line in (key, " ".join(filter(None, (network.says, network.more))), *(remark.text for remark in remarks)):
        click.echo(line)


def _session(opening: Opening, prefix: str) -> Session:
    async def work(stash: Stash) -> Session:
        return await stash.read_session(await find_session(stash, prefix))

    return opening.run(work)


def effective(layers: list[Layer]) -> list[Effective]:
    """Every setting in order, with its value and who set it. Raises BadInputError on a value that cannot be used."""
    from contextstash.cli.network_use import without_credentials
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


def _marks(layers: list[Layer], model: str | None) -> dict[str, int]:
    """The numbers that follow from the window."""
    from contextstash.context.window.settings import resolve_settings
    from contextstash.context.window.thresholds import budget_of
    from contextstash.models import model_facts

    settings = resolve_settings(*(layer.values for layer in layers))
    facts = model_facts(model)
    budget = budget_of(settings, settings.window or facts.window, known=facts.known or settings.window is not None)
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


config.add_command(trust)


@config.command("presets")
@JSON
def presets(as_json: bool) -> None:
    """The presets, each with the values that differ from the default's."""
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
    """Where settings are looked for, weakest first, and what is there."""
    configuration: Configuration = settings_from(preset, given)
    said = {layer.name: len(layer.values) for layer in configuration.layers()}
    rows: list[tuple[object, ...]] = []
    for folder in settings_folders(project_folder(os.environ)):
        name = str(folder / SETTINGS_FILE)
        rows.append((name, f"{said[name]} settings" if name in said else "not there, or empty"))
        agents = folder / AGENTS_FOLDER
        found = sorted(each.name for each in agents.glob("*.y*ml")) if agents.is_dir() else []
        rows.append((f"{agents}/<agent>.yaml", ", ".join(found) or "none"))
    rows.append(("environment, CONTEXTSTASH_*", f"{said.get('environment', 0)} settings"))
    print_table(["where", "what"], rows)
