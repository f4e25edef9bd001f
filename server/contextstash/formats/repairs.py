"""How a message list differs from the list that can be sent, in sentences: what its provider would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from contextstash.formats.base import Format
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native

MAX_SHOWN = 100
"""Characters of a value that a sentence shows. The rest follows from its place."""


def unreadable(fmt: Format, natives: Sequence[Native]) -> list[str]:
    """A sentence for each message that is not of this format."""
    found = []
    for place, native in enumerate(natives):
        try:
            fmt.read(native)
        except BadMessageError as error:
            found.append(f"Message {place}: {error}")
    return found


def repairs(fmt: Format, natives: Sequence[Native]) -> list[str]:
    """A sentence for each change that makes a list valid; none if it can be sent as it is. Each message must be
    readable in this format."""
    return list(_changes("Message ", natives, fmt.assemble(natives), "{}{}"))


def _changes(where: str, given: Sequence[Any], sent: Sequence[Any], item: str) -> Iterator[str]:
    """The changes of a list. `item` makes the place of an item from `where` and its index."""
    before, after = ([json.dumps(each) for each in side] for side in (given, sent))
    for _, first, last, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        place = item.format(where, first)
        if last - first == end - start:
            for index, (each, other) in enumerate(zip(given[first:last], sent[start:end], strict=True), first):
                yield from _change(item.format(where, index), each, other)
        elif first == last:
            yield f"Missing before {place[0].lower()}{place[1:]}: {_all_shown(sent[start:end])}"
        elif start == end:
            yield f"{place} may not be there: {_all_shown(given[first:last])}"
        elif end - start == 1 and (role := _same_role(given[first:last])):
            yield f"{place} to {last - 1} have the same role, {role}: merge them"
        else:
            yield f"{place} is {_all_shown(given[first:last])}; expected {_all_shown(sent[start:end])}"


def _same_role(messages: Sequence[Any]) -> str | None:
    roles = {message.get("role") if isinstance(message, Mapping) else None for message in messages}
    return roles.pop() if len(roles) == 1 else None


def _change(where: str, given: Any, sent: Any) -> Iterator[str]:
    if isinstance(given, Mapping) and isinstance(sent, Mapping) and given.get("role") == "tool" != sent.get("role"):
        yield f"{where} is the result of a call that is not open there; it can be sent as text only"
    elif isinstance(given, Mapping) and isinstance(sent, Mapping) and given.get("type") == sent.get("type"):
        yield from (f"{where} has the key '{key}', which a request may not have." for key in given if key not in sent)
        yield from (f"{where} needs '{key}': {_shown(sent[key])}" for key in sent if key not in given)
        for key in given:
            if key in sent:
                yield from _change(f"{where}, {key}", given[key], sent[key])
    elif isinstance(given, list) and isinstance(sent, list):
        yield from _changes(where, given, sent, "{}[{}]")
    elif json.dumps(given) != json.dumps(sent):  # as JSON, in which a NaN equals itself
        yield f"{where} is {_shown(given)}; expected {_shown(sent)}"


def _all_shown(values: Sequence[Any]) -> str:
    return " and ".join(map(_shown, values))


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
