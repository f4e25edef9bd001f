"""YAML files as mappings: by the safe loader, with a key that stands twice refused instead of the first one lost."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from contextstash_storage.errors import BadInputError


class _Loader(yaml.SafeLoader):
    """The safe loader, but strict about keys that stand twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


class _PlainLoader(_Loader):
    """Takes no aliases: with them a file of 500 bytes holds millions of entries."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not taken here", mark)
        return super().compose_node(parent, index)


def read_yaml(text: str, place: str, *, aliases: bool = True) -> dict[str, Any]:
    """The mapping that a YAML text holds, empty where it holds nothing. Raises BadInputError, naming the place; also on
    aliases, unless they are taken."""
    try:
        data = yaml.load(text, _Loader if aliases else _PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"{place} is not valid YAML: {' '.join(str(error).split())[:300]}.") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadInputError(f"{place} must hold settings, such as messages_at: 30")
    return data
