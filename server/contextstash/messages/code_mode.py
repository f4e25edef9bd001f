"""Codex's code mode: the model writes a script, and the script calls the tools (seen in 0.171, with GPT-6).

    const r = await tools.exec_command({cmd: "make test", workdir: "/src"});
    text(r.output);

is read as a call of `exec_command` with these arguments, so that what it ran, read or changed is known as of any call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TOOL = "exec"

_CALL = re.compile(r"\btools\.(\w{1,200})\s*\(\s*")
_STRING = re.compile(
    r"(String\.raw)?(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.|\$(?!\{))*`)", re.DOTALL
)
_WRITTEN = re.compile(rf"{_STRING.pattern}|//[^\n]*|/\*.*?\*/", re.DOTALL)
"""Texts and comments, in which nothing is called."""

_BOUND = re.compile(rf"\bconst\s+(\w{{1,200}})\s*=\s*({_STRING.pattern})\s*(?:;|\n|\Z)", re.DOTALL)
_KEY = re.compile(r"[\s,]*(?:(\w{1,200})|\"(\w{1,200})\"|'(\w{1,200})')\s*(:?)\s*")
_WORD = re.compile(r"-?[\w.]{1,200}|\[[^\[\]]{0,2000}\]")
_VALUE_ENDS = re.compile(r"\s*(?=[,}])")
_OBJECT_ENDS = re.compile(r"[\s,]*\}")
_ARGUMENT_ENDS = re.compile(r"\s*,?\s*\)")
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r?\n|.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}


def scripted_call(script: str) -> tuple[str, str | dict[str, str]] | None:
    """The tool that a script calls, and its argument: a text, or the texts among its arguments by their names. None if
    the script calls no tool or several, or says the argument in another way than by texts."""
    written = [(found.start(), found.end()) for found in _WRITTEN.finditer(script)]
    calls = [call for call in _CALL.finditer(script) if not any(start < call.start() < end for start, end in written)]
    if len(calls) != 1:
        return None
    [call] = calls
    bound = {found[1]: _text(found[3], found[4]) for found in _BOUND.finditer(script)}
    argument, end = _argument(script, call.end(), bound)
    return (call[1], argument) if argument and _ARGUMENT_ENDS.match(script, end) else None


def _argument(script: str, at: int, bound: Mapping[str, str]) -> tuple[str | dict[str, str] | None, int]:
    """The argument that begins here, and where it ends."""
    if script[at : at + 1] == "{":
        return _object(script, at + 1, bound)
    return _value(script, at, bound)


def _object(script: str, at: int, bound: Mapping[str, str]) -> tuple[dict[str, str] | None, int]:
    found: dict[str, str] = {}
    while key := _KEY.match(script, at):
        name = key[1] or key[2] or key[3]
        value, at = _value(script, key.end(), bound) if key[4] else (bound.get(name), key.end())
        ends = _VALUE_ENDS.match(script, at)
        if ends is None:  # an expression: what the tool got is not known
            return None, at
        at = ends.end()
        if value is not None:
            found[name] = value
    end = _OBJECT_ENDS.match(script, at)
    return (found, end.end()) if end else (None, at)


def _value(script: str, at: int, bound: Mapping[str, str]) -> tuple[str | None, int]:
    """The text or number that stands here, written out or bound to a name; None for other values, such as a text with
    an insertion (`${…}`)."""
    if string := _STRING.match(script, at):
        return _text(string[1], string[2]), string.end()
    word = _WORD.match(script, at)
    if word is None:
        return None, at
    return word[0] if word[0].isdecimal() else bound.get(word[0]), word.end()


def _text(raw: str | None, literal: str) -> str:
    """What a literal of JavaScript stands for."""
    return literal[1:-1] if raw else _ESCAPE.sub(_unescaped, literal[1:-1])


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(min(int(code, 16), 0x10FFFF)) if code else _ESCAPED.get(escape[4], escape[4])
