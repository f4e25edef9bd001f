"""The files that an action used, and how: read, edited, created, deleted, renamed, run; with the texts that it shows of
them or puts into them."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.facts import find_facts
from contextstash.context.extraction.files.shown_lines import MAX_TEXT
from contextstash.context.tool_outputs.classifiers import DEFINITION
from contextstash.context.tool_outputs.shell_envelope import without_heredocs

Verb = Literal["read", "run", "edited", "created", "renamed", "deleted"]

MAX_SCANNED = 20_000
"""How many characters of a command or text are searched. It bounds the work on a huge script."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A text of a file was replaced by another one, once or everywhere. Without `old`, `new` was put in somewhere. It
    stands behind what the same call replaced before, and below the line `below`, if that is not empty."""

    old: str
    new: str
    everywhere: bool = False
    below: str = ""


@dataclass(frozen=True, slots=True)
class FileUse:
    """One use of one file. `names` are the definitions and identifiers that a change affects. `was` is the path that a
    renamed file had, or of which a created one is a copy.

    Of a change, as far as the call shows it: the `text` that was written, as the whole file or with `appended` at its
    end, or what was `replaced`. `alone` is whether a call reads this file and no other, so that its output is of it."""

    path: str
    verb: Verb
    names: tuple[str, ...] = ()
    was: str = ""
    alone: bool = field(default=False, compare=False)
    text: str | None = field(default=None, compare=False)
    appended: bool = field(default=False, compare=False)
    replaced: tuple[Replaced, ...] = field(default=(), compare=False)


def file_uses(action: Action) -> list[FileUse]:
    """The files that a call used, by absolute paths if it says where it ran; empty for a call that failed or was
    refused."""
    if action.refused or (action.is_error and action.failed):
        return []
    patch = _patch_of(action)
    if patch is not None:
        uses = [] if action.failed or _is_refused_patch(action) else list(_patched(patch))
    elif action.command is not None:
        uses = list(_from_command(action.command))
    else:
        uses = _from_arguments(action)
    if len(uses) == 1 and uses[0].verb == "read":
        uses = [replace(uses[0], alone=True)]
    folder = working_folder(action)
    return [replace(each, path=path_in(folder, each.path), was=path_in(folder, each.was)) for each in uses]


_WENT_TO = re.compile(r"^\s*(?:cd|pushd) +['\"]?([^&;|\n'\"~$-][^&;|\n'\"]{0,200}?)['\"]?\s*(?:&&|;|\n)")


def working_folder(action: Action) -> str:
    """The folder in which a call ran, as far as it says it; it may be relative to an unknown one."""
    given = action.arguments.get("workdir") or action.arguments.get("cwd")
    folder = given.rstrip("/") if isinstance(given, str) and given.startswith("/") else ""
    went = _WENT_TO.match(action.command or "")
    return posixpath.normpath(posixpath.join(folder, went.group(1))) if went else folder


def path_in(folder: str, path: str) -> str:
    """The path as an absolute one if a folder is given."""
    return f"{folder}/{path.removeprefix('./')}" if folder and path and not path.startswith(("/", "~", "$")) else path


def is_backup(copy: str, original: str) -> bool:
    """Whether a copy is named like the file, with something added, such as `a.py.bak` or `a.py~`."""
    name, its = copy.rpartition("/")[2], original.rpartition("/")[2]
    return name.startswith(its) and name != its


_PATH_KEYS = (
    "file_path",
    "path",
    "notebook_path",
    "filename",
    "file",
    "target_file",
    "relative_path",
    "filepath",
)
_WORDS: Mapping[Verb, tuple[str, ...]] = {
    "deleted": ("delete", "remove"),
    "renamed": ("move", "rename"),
    "created": ("write", "create"),
    "edited": ("edit", "replace", "insert", "update", "patch", "append"),
    "read": ("read", "view", "open", "get", "fetch"),
}
"""What the name of a tool begins with, or else contains, the first that fits."""

_OLD_KEYS = ("old_string", "old_str", "search", "oldText")
_NEW_KEYS = ("new_string", "new_str", "replace", "newText", "replacement")
_WHOLE_KEYS = ("content", "file_text")
_INSERTED_KEYS = ("insert_text", "new_source", "new_str", "new_string", "text")


def _from_arguments(action: Action) -> list[FileUse]:
    arguments = action.arguments
    path = _text(arguments, _PATH_KEYS)
    verb = _verb_of(action)
    if not path or verb is None or any(key.startswith("repo") for key in arguments):
        return []  # of a repository on a server, the working folder has no file
    if verb not in ("created", "edited"):
        return [FileUse(path, verb)]
    edits = arguments.get("edits")
    parts = [item for item in edits if isinstance(item, dict)] if isinstance(edits, list) else [arguments]
    replaced = [found for part in parts if (found := _replacement(part)) is not None]
    text = None if replaced else _text(arguments, _WHOLE_KEYS)
    inserted = None if replaced or text is not None else _text(arguments, _INSERTED_KEYS)
    if inserted is not None:
        replaced = [Replaced("", inserted)]
    new = text if text is not None else "\n".join(each.new for each in replaced)
    old = "\n".join(each.old for each in replaced)
    names = _definitions(new) if verb == "created" else _changed_names(old, new)
    return [FileUse(path, verb, names, text=text, replaced=tuple(replaced))]


def _verb_of(action: Action) -> Verb | None:
    sub_command = action.arguments.get("command")
    name = f"{sub_command} {action.tool}".lower() if isinstance(sub_command, str) else action.tool.lower()
    first = (verb for verb, words in _WORDS.items() if name.startswith(words))
    within = (verb for verb, words in _WORDS.items() if any(word in name for word in words))
    return next(first, None) or next(within, None)


def _replacement(part: Mapping[str, Any]) -> Replaced | None:
    old = _text(part, _OLD_KEYS)
    return Replaced(old, _text(part, _NEW_KEYS) or "", part.get("replace_all") is True) if old else None


def _text(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((value for key in keys if isinstance(value := arguments.get(key), str)), None)


MAX_NAMES = 4
"""Names of one change."""


def _definitions(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(DEFINITION.findall(text[:MAX_SCANNED])))[:MAX_NAMES]


@lru_cache(maxsize=1_024)
def _changed_names(old: str, new: str) -> tuple[str, ...]:
    """The names that a change affects: definitions in the new text first, then identifiers that it adds, then those
    that it removes. A summary asks for the uses of each call six times, which took a sixth of its time."""
    new, old = new[:MAX_SCANNED], old[:MAX_SCANNED]
    defined = _definitions(new)
    if len(defined) == MAX_NAMES:
        return defined
    before, after = find_facts(old, 60).identifiers, find_facts(new, 60).identifiers
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    return tuple(dict.fromkeys([*defined, *added[:MAX_NAMES], *removed[:1]]))[:MAX_NAMES]


def _patch_of(action: Action) -> str | None:
    candidates = (action.text, action.arguments.get("input"), action.arguments.get("patch"), action.command)
    for text in candidates:
        if isinstance(text, str) and text.lstrip().startswith("*** Begin Patch"):
            return text
    command = action.command or ""
    start = command.find("*** Begin Patch")
    return command[start:] if start >= 0 and "apply_patch" in command[:start] else None


def _is_refused_patch(action: Action) -> bool:
    """Whether Codex could not apply a patch. It applies all of a patch or nothing, and reports no exit code here."""
    return action.output is not None and action.output.text.lstrip().startswith("apply_patch verification failed")


_PATCH_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: ", re.MULTILINE)
_PATCH_VERBS: Mapping[str, Verb] = {"Add": "created", "Update": "edited", "Delete": "deleted"}


def _patched(patch: str) -> Iterator[FileUse]:
    """The files of a patch."""
    _, *parts = _PATCH_FILE.split(patch.split("*** End Patch", 1)[0].removesuffix("\n"))
    for kind, part in zip(parts[::2], parts[1::2], strict=True):
        path, *lines = part.removesuffix("\n").split("\n")
        yield _patched_file(path.strip(), _PATCH_VERBS[kind], lines)


def _patched_file(path: str, verb: Verb, lines: Iterable[str]) -> FileUse:
    hunks: list[Replaced] = []
    old, new, removed, added = list[str](), list[str](), list[str](), list[str]()
    was = below = ""
    for line in (*lines, "@@"):
        if line.startswith(("@@", "*** End")):
            if old or new:
                hunks.append(Replaced("\n".join(old), "\n".join(new), below=below))
            old, new, below = [], [], line.removeprefix("@@").strip() if line.startswith("@@") else ""
        elif line.startswith("*** Move to: "):
            was, path, verb = path, line.removeprefix("*** Move to: ").strip(), "renamed"
        elif line[:1] in ("", " ", "+", "-"):
            sign, text = line[:1], line[1:]
            old += [text] * (sign != "+")
            new += [text] * (sign != "-")
            added += [text] * (sign == "+")
            removed += [text] * (sign == "-")
    if verb == "created":
        return FileUse(path, verb, _changed_names("", "\n".join(added)), text="\n".join(each.new for each in hunks))
    names = () if was or verb == "deleted" else _changed_names("\n".join(removed), "\n".join(added))
    return FileUse(path, verb, names, was, replaced=() if verb == "deleted" else tuple(hunks))


_COMMAND = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?<!&)&(?!&)|[^&;|\n'\"]|['\"])+")
"""One of several commands; a separator in a quotation ends none."""

_REDIRECT = re.compile(r"(?<![0-9&>])(>>?)[ \t]*([^\s&|;<>()'\"]{1,200})")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_FILE_LIKE = re.compile(r"^(?!-)(?!https?:)[\w.@~+/-]{1,200}$")


def _from_command(command: str) -> Iterator[FileUse]:
    shell, bodies = without_heredocs(command[:MAX_TEXT])
    shell, body = shell[:MAX_SCANNED], "\n".join(bodies)
    written = [
        (sign, path)
        for sign, path in _REDIRECT.findall(_QUOTED.sub('""', shell))
        if not path.startswith(("/dev/", "&", "$", '"')) and not path.isdigit()
    ]
    text = body if bodies and command.count("<<") == 1 else None
    for sign, path in written:
        verb: Verb = "created" if sign == ">" else "edited"
        its = text if len(written) == 1 else None
        yield FileUse(path, verb, _definitions(body), text=its, appended=sign == ">>")
    for part in _COMMAND.findall(_REDIRECT.sub(" ", shell)):
        yield from _from_words(_words(part), None if written else text)


def _words(part: str) -> list[str]:
    try:
        return shlex.split(part)
    except ValueError:
        return part.split()


def staged_files(action: Action) -> list[str]:
    """The files that a call adds to Git's index by name: they were changed, perhaps by a sub-agent, whose own calls
    are not in the conversation."""
    command = action.command or ""
    if "git add " not in command or action.refused or action.failed:
        return []
    shell, _ = without_heredocs(command[:MAX_TEXT])
    parts = [_words(part) for part in _COMMAND.findall(shell[:MAX_SCANNED])]
    named = [word for words in parts if words[:2] == ["git", "add"] for word in words[2:] if _FILE_LIKE.match(word)]
    return [path_in(working_folder(action), path) for path in named if "." in path.rpartition("/")[2].strip(".")]


_READERS = frozenset({"cat", "head", "tail", "nl", "less", "bat", "wc"})
_SCRIPT = re.compile(r"/|\.[A-Za-z]{1,4}$")
"""A script has a short ending or a folder; the name of a test, such as `orders.test_refunds`, has neither."""

_RUNNERS = frozenset({"python", "python3", "node", "bash", "sh", "ruby", "perl", "deno", "bun", "tsx"})


def _from_words(words: Sequence[str], text: str | None) -> Iterator[FileUse]:
    """The uses of one of several commands; `text` is the only here-document among them."""
    while words and ("=" in words[0] or words[0] in ("sudo", "time", "env")):
        words = words[1:]
    if len(words) > 2 and words[0] == "git" and words[1] in ("rm", "mv"):
        words = words[1:]
    if len(words) < 2:
        return
    program, rest = words[0].rsplit("/", 1)[-1], words[1:]
    files = [word for word in rest if _FILE_LIKE.match(word)]
    if program in ("mv", "cp") and len(files) == 2:
        yield FileUse(files[1], "renamed" if program == "mv" else "created", was=files[0])
    elif program in ("rm", "touch"):
        yield from (FileUse(path, "deleted" if program == "rm" else "created") for path in files)
    elif program == "tee":
        yield from (FileUse(path, "created", text=text) for path in files)
    else:
        yield from _named_files(program, rest, [path for path in files if "/" in path or "." in path.strip(".")])


def _named_files(program: str, rest: Sequence[str], files: Sequence[str]) -> Iterator[FileUse]:
    """Uses by programs whose arguments are files only if they look like paths."""
    if program == "sed":
        verb: Verb = "edited" if any(word.startswith(("-i", "--in-place")) for word in rest) else "read"
        script = {rest[at + 1] for at, word in enumerate(rest[:-1]) if word in ("-e", "-f", "--expression")}
        script = script or {next((word for word in rest if word and not word.startswith("-")), "")}
        yield from (FileUse(path, verb) for path in files if path not in script)
    elif program in _READERS:
        yield from (FileUse(path, "read") for path in files)
    elif program in _RUNNERS and "-m" not in rest:
        yield from (FileUse(path, "run") for path in files[:1] if _SCRIPT.search(path))
