"""Facts: the paths, identifiers, numbers and quoted strings in a text, by which retention is measured."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_SCANNED = 200_000
"""Characters of a text that are read; longer tool outputs are cut by every client."""

_PATH = re.compile(r"(?<![\w/])~?/?(?:[\w.@+-]+/)+[\w.@+-]*\w")
_NAME = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]{5,60}\b")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")
_NUMBER = re.compile(r"(?<![\w.])\d{4,}(?:\.\d+)?\b")
_CODE = re.compile(r"\b(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{5,12}\b")
_QUOTED = re.compile(r"[\"'`]([^\"'`\n]{8,80})[\"'`]")
_INNER_CAPITAL = re.compile(r"[a-z][A-Z]")


@lru_cache(maxsize=60_000)
def facts_of(text: str) -> frozenset[str]:
    """The facts of a text, each with a letter for its kind. A path counts by its last two parts, a hash by its first
    seven characters; a plain word is not a fact."""
    text = text[:MAX_SCANNED]
    found = {f"p:{path}" for path in map(_last_two_parts, _PATH.findall(text)) if _is_telling(path)}
    found |= {f"i:{name}" for name in set(_NAME.findall(text)) if _is_identifier(name)}
    found |= {f"h:{value[:7]}" for value in _HASH.findall(text)}
    found |= {f"n:{value}" for value in _NUMBER.findall(text)}
    found |= {f"c:{value}" for value in _CODE.findall(text)}
    found |= {f"q:{value}" for value in map(str.strip, _QUOTED.findall(text)) if " " in value and len(value) >= 8}
    return frozenset(found)


def _last_two_parts(path: str) -> str:
    return "/".join([part for part in path.strip("/").split("/") if part not in (".", "..", "")][-2:])


def _is_telling(path: str) -> bool:
    return "/" in path and len(path) >= 6 and not path.replace("/", "").isdigit()


def _is_identifier(name: str) -> bool:
    return "_" in name.strip("_") or any(c.isdigit() for c in name) or _INNER_CAPITAL.search(name) is not None
