"""YAML files as mappings: the safe loader, which here rejects duplicate keys instead of dropping the first value."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from contextstash_storage.errors import BadInputError


class _Loader(yaml.SafeLoader):
    """The safe loader, but it rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key '{key}'", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class _PlainLoader(_Loader):
    """Rejects aliases: with them, a file of 500 bytes can expand to millions of entries."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not allowed here", mark)
        return super().compose_node(parent, index)


def read_yaml(text: str, place: str, *, aliases: bool = True) -> dict[str, Any]:
    """The mapping that a YAML text holds, empty if the text is empty. Raises BadInputError, which names `place`, if it
    is not valid, or if it has aliases and `aliases` is false."""
    try:
        data = yaml.load(text, _Loader if aliases else _PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"{place} is not valid YAML: {' '.join(str(error).split())[:300]}.") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadInputError(f"{place} must hold settings, such as messages_at: 30")
    return data
