"""`contextstash config set`: writes settings to the user's own file."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import click

from contextstash.configuration.locations import SETTINGS_FILE, user_config_folder
from contextstash.configuration.settings import parsed_file, read_pairs
from contextstash.configuration.settings_files import AGENTS_TABLE, check_names, text_of
from contextstash.files.atomic_file import replace_file
from contextstash_storage.errors import BadInputError


@click.command("set")
@click.argument("pairs", nargs=-1, metavar="KEY=VALUE...")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a setting; may be given several times.")
@click.option("--agent", metavar="NAME", help="Only for this agent.")
def set_(pairs: tuple[str, ...], unset: tuple[str, ...], agent: str | None) -> None:
    """Write settings to your own settings file; its comments and everything else in it stay.

    Example: contextstash config set preset=default-quality window=200000
    """
    from contextstash.context.window.settings import resolve_settings
    from contextstash.hosts.install.documents import edited

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
