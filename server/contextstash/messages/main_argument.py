"""The main argument of a tool call: one line that identifies the call for a reader."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

MAX_LENGTH = 120
"""Length of a main argument, in characters: one line of a terminal."""

MAIN_NAMES = (
    "file_path", "path", "command", "cmd", "query", "pattern", "url", "filename", "file", "notebook_path", "uri",
    "script", "code", "skill", "description", "name", "id",
)  # fmt: skip
"""The names of arguments that can be the main one, in order of preference."""

_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_SHELL_WRAPPER = re.compile(r"^(?:\S*/)?(?:ba|z|da|)sh -l?c$")


def main_argument(arguments: object) -> str | None:
    """The main argument in one line of at most 120 characters, or None.

    `arguments` is an object, an object as JSON text, or free text. Free text is joined to one line; for a patch, the
    result is the first file that it changes.
    """
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    if isinstance(arguments, str):
        patched = _PATCHED_FILE.search(arguments)
        return _one_line(patched.group(1) if patched else arguments)
    if not isinstance(arguments, Mapping):
        return None
    for name in MAIN_NAMES:
        if text := _as_line(arguments.get(name)):
            return text
    texts = (value for value in arguments.values() if isinstance(value, str))
    return _one_line(next((text for text in texts if text.strip() and len(text) <= MAX_LENGTH), ""))


def parsed(text: str) -> object:
    """The JSON object that a text writes, such as the arguments of a call; the text itself if it writes none."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _as_line(value: object) -> str | None:
    if isinstance(value, str):
        return _one_line(value)
    if isinstance(value, Sequence) and value and all(isinstance(word, str) for word in value):
        words = list(value)
        if len(words) == 3 and _SHELL_WRAPPER.match(" ".join(words[:2])):
            words = words[2:]
        return _one_line(" ".join(words))
    return None


def _one_line(text: str) -> str | None:
    line = " ".join(text[: 20 * MAX_LENGTH].split())
    if not line:
        return None
    return line if len(line) <= MAX_LENGTH else line[: MAX_LENGTH - 1] + "…"
