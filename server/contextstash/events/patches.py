"""Patches in the format of Codex: `*** Begin Patch`, `*** Update File: a.py`, hunks, `*** End Patch`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from contextstash.events.calls import Call
from contextstash.events.kinds import FileUse, Replaced, Verb
from contextstash.events.names import changed_names

_PATCH_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: ", re.MULTILINE)
_VERBS: Mapping[str, Verb] = {"Add": "created", "Update": "edited", "Delete": "deleted"}


def patch_of(call: Call) -> str | None:
    """The patch that a call applies, None if it applies none."""
    for text in (call.text, call.arguments.get("input"), call.arguments.get("patch"), call.command):
        if isinstance(text, str) and text.lstrip().startswith("*** Begin Patch"):
            return text
    command = call.command or ""
    start = command.find("*** Begin Patch")
    return command[start:] if start >= 0 and "apply_patch" in command[:start] else None


def is_refused(call: Call) -> bool:
    """Whether Codex could not apply a patch. It applies all of a patch or nothing, and reports no exit code here."""
    return call.output is not None and call.output.text.lstrip().startswith("apply_patch verification failed")


def patched_files(patch: str) -> Iterator[FileUse]:
    """The files of a patch, each with what is replaced in it."""
    _, *parts = _PATCH_FILE.split(patch.split("*** End Patch", 1)[0].removesuffix("\n"))
    for kind, part in zip(parts[::2], parts[1::2], strict=True):
        path, *lines = part.removesuffix("\n").split("\n")
        yield _patched(path.strip(), _VERBS[kind], lines)


def _patched(path: str, verb: Verb, lines: Iterable[str]) -> FileUse:
    hunks: list[Replaced] = []
    old, new, removed, added = list[str](), list[str](), list[str](), list[str]()
    was = ""
    for line in (*lines, "@@"):
        if line.startswith(("@@", "*** End")):
            if old or new:
                hunks.append(Replaced("\n".join(old), "\n".join(new)))
            old, new = [], []
        elif line.startswith("*** Move to: "):
            was, path, verb = path, line.removeprefix("*** Move to: ").strip(), "renamed"
        elif line[:1] in ("", " ", "+", "-"):
            sign, text = line[:1], line[1:]
            old += [text] * (sign != "+")
            new += [text] * (sign != "-")
            added += [text] * (sign == "+")
            removed += [text] * (sign == "-")
    if verb == "created":
        return FileUse(path, verb, changed_names("", "\n".join(added)), text="\n".join(each.new for each in hunks))
    names = () if was or verb == "deleted" else changed_names("\n".join(removed), "\n".join(added))
    return FileUse(path, verb, names, was, replaced=() if verb == "deleted" else tuple(hunks))
