"""The look of pages and app, and recorded texts for a person: characters that control a terminal made visible."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePath
from typing import Any


def static(name: str) -> str:
    """The text of a file that pages load: `look.css` has the colours, the type scale, and the look of messages and
    charts; `chart.js` draws a window over time."""
    return (Path(__file__).with_name("static") / name).read_text(encoding="utf-8")


BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
"""Characters that change the direction of a text: a reader could see a different order than the model does."""

_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDI_CONTROLS}]")
"""All control characters but line breaks and tabs."""

_IN_JSON = re.compile(f"[\x7f-\x9f{BIDI_CONTROLS}]")
"""Those that JSON does not escape itself."""

PICTURES = 0x2400
"""The first of Unicode's pictures of control characters: ␀ for 0, ␛ for 27."""


def visible(text: str) -> str:
    """The text with a picture, or the code, of each control character. What a tool printed may hold sequences by which
    a terminal changes its title, its clipboard or what is already on the screen."""
    return _CONTROLS.sub(_picture, text)


def in_page(value: Any) -> Any:
    """What a template puts into a page (its `finalize`): texts as `visible` returns them, with their markup."""
    return type(value)(visible(value)) if isinstance(value, str) else value


def visible_json(document: str) -> str:
    """The same JSON document, with these characters escaped."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] == "\r" and found.string[found.end() : found.end() + 1] == "\n":
        return ""
    if code < 0x20:
        return chr(PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"‹U+{code:04X}›"


def readable_arguments(arguments: str) -> str:
    """The arguments of a call: one with a name each, texts with their line breaks; the text itself if not JSON."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(found, dict):
        return arguments
    return "\n".join(f"{name}: {_value(value)}" for name, value in found.items())


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return f"\n{text}" if "\n" in text else text


def project_name(folder: str | None) -> str:
    """The name of a project's folder; empty if there is none."""
    return PurePath(folder).name or folder if folder else ""
