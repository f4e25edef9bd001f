"""Parses settings files: TOML and YAML as names and values. An error for an unknown name suggests a similar one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from contextstash.configuration.locations import AGENT_ENDINGS
from contextstash_storage.errors import BadInputError


class _Loader(yaml.SafeLoader):
    """The safe loader, but it rejects duplicate keys, and aliases: with them, a file of 500 bytes can expand to
    millions of entries."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key '{key}'", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not allowed here", mark)
        return super().compose_node(parent, index)


AGENTS_TABLE = "agents"

Tables = dict[str, Mapping[str, Any]]
"""The settings for single agents in a TOML file, by the agent's name."""


def text_of(path: Path) -> str | None:
    """A file of the user's own, None if it does not exist. Raises BadInputError."""
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}.") from error


def parsed(text: str, path: Path) -> tuple[dict[str, Any], Tables]:
    """The settings in a file, and those for single agents in it; names are not checked. Raises BadInputError."""
    return (_agents_file(text, str(path)), {}) if path.suffix in AGENT_ENDINGS else _toml(text, str(path))


def checked(text: str, path: Path) -> tuple[dict[str, Any], Tables]:
    """The same, with the names checked."""
    settings, tables = parsed(text, path)
    check_names(settings, str(path))
    for name, table in tables.items():
        check_names(table, f"{path} [{AGENTS_TABLE}.{name}]")
    return settings, tables


def _toml(text: str, place: str) -> tuple[dict[str, Any], Tables]:
    try:
        settings = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits raises a plain ValueError
        raise BadInputError(f"{place} is not valid TOML: {error}.") from error
    agents = settings.pop(AGENTS_TABLE, {})
    if not isinstance(agents, dict) or not all(isinstance(table, dict) for table in agents.values()):
        raise BadInputError(f"In {place}, '{AGENTS_TABLE}' holds a table for each agent: [{AGENTS_TABLE}.researcher]")
    return settings, agents


def _agents_file(text: str, place: str) -> dict[str, Any]:
    """The settings of an agent's YAML file: under `context` if it exists, else the whole file."""
    try:
        data = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"{place} is not valid YAML: {' '.join(str(error).split())[:300]}.") from error
    if data is not None and not isinstance(data, dict):
        raise BadInputError(f"{place} must hold settings, such as messages_at: 30")
    settings = (data or {}).get("context", data)
    if settings is not None and not isinstance(settings, dict):
        raise BadInputError(f"In {place}, 'context' must hold settings, such as messages_at: 30")
    return settings or {}


def check_names(
    settings: Mapping[Any, Any], place: str, spelling: Callable[[str], str] = str, others: tuple[str, ...] = ()
) -> None:
    """Raises BadInputError if a name is not a setting; `others` are names that are valid too."""
    if not settings:
        return
    from contextstash.window.settings import UserSettings, unknown_setting

    for name in settings:
        if name not in UserSettings.model_fields:
            raise BadInputError(unknown_setting(str(name), place, spelling, others))
