"""The files that an action used, and how: read, edited, created, deleted, renamed, run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.facts import find_facts
from contextstash.context.tool_outputs.classifiers import DEFINITION
from contextstash.context.tool_outputs.shell_envelope import without_heredocs

Verb = Literal["read", "run", "edited", "created", "renamed", "deleted"]

MAX_SCANNED = 20_000
"""How many characters of a command or text are searched. It bounds the work on a huge here-document."""


@dataclass(frozen=True, slots=True)
class FileUse:
    """One use of one file. `names` are the definitions and identifiers that a change affects."""

    path: str
    verb: Verb
    names: tuple[str, ...] = ()


def file_uses(action: Action) -> list[FileUse]:
    """The files that a call used, by absolute paths if it says where it ran; empty for a call that failed or was
    refused."""
    folder = working_folder(action)
    uses = named_uses(action)
    return [_in_folder(use, folder) for use in uses] if folder else uses


_WENT_TO = re.compile(r"^\s*(?:cd|pushd) +['\"]?(/[^&;|\n'\"]{1,200}?)['\"]?\s*(?:&&|;|\n)")


def working_folder(action: Action) -> str:
    """The folder in which a call ran, empty if it does not say it."""
    went = _WENT_TO.match(action.command or "")
    folder = went.group(1) if went else action.arguments.get("workdir") or action.arguments.get("cwd")
    return folder.rstrip("/") if isinstance(folder, str) and folder.startswith("/") else ""


def path_in(folder: str, path: str) -> str:
    """The path as an absolute one if a folder is given."""
    return f"{folder}/{path.removeprefix('./')}" if folder and not path.startswith(("/", "~", "$")) else path


def _in_folder(use: FileUse, folder: str) -> FileUse:
    first, *rest = use.names or ("",)
    for word in (COPY, MOVED):
        if first.startswith(word):
            return FileUse(path_in(folder, use.path), use.verb, (word + path_in(folder, first[len(word) :]), *rest))
    return FileUse(path_in(folder, use.path), use.verb, use.names)


COPY, MOVED = "copy of ", "was "
"""Before the path that a file had, or of which it is a copy, in the names of its use."""


def is_backup(copy: str, original: str) -> bool:
    """Whether a copy is named like the file, with something added, such as `a.py.bak` or `a.py~`."""
    name, its = copy.rpartition("/")[2], original.rpartition("/")[2]
    return name.startswith(its) and name != its


def named_uses(action: Action) -> list[FileUse]:
    """The files that a call used, by the paths that it names."""
    if action.refused or (action.is_error and action.failed):
        return []
    patched = patched_files(action)
    if patched is not None:
        return [file.use for file in patched]
    if action.command is not None:
        return list(_from_command(action.command))
    return _from_arguments(action)


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
_VERBS: tuple[tuple[str, Verb], ...] = (
    ("delete", "deleted"),
    ("remove", "deleted"),
    ("move", "renamed"),
    ("rename", "renamed"),
    ("write", "created"),
    ("create", "created"),
    ("edit", "edited"),
    ("replace", "edited"),
    ("insert", "edited"),
    ("update", "edited"),
    ("patch", "edited"),
    ("append", "edited"),
    ("read", "read"),
    ("view", "read"),
    ("open", "read"),
    ("get", "read"),
    ("fetch", "read"),
)
_NEW_TEXT_KEYS = ("new_string", "new_str", "content", "file_text", "new_source", "insert_text", "replacement")
_OLD_TEXT_KEYS = ("old_string", "old_str")


def _from_arguments(action: Action) -> list[FileUse]:
    path = next((v for key in _PATH_KEYS if isinstance(v := action.arguments.get(key), str) and v), None)
    if path is None:
        return []
    sub_command = action.arguments.get("command")
    name = f"{sub_command} {action.tool}".lower() if isinstance(sub_command, str) else action.tool.lower()
    verb = next((verb for word, verb in _VERBS if name.startswith(word)), None)
    verb = verb or next((verb for word, verb in _VERBS if word in name), None)
    if verb is None:
        return []
    old, new = _texts(action)
    names = _definitions(new) if verb == "created" else _changed_names(old, new) if verb == "edited" else ()
    return [FileUse(path, verb, names)]


def _texts(action: Action) -> tuple[str, str]:
    edits = action.arguments.get("edits")
    sources = [item for item in edits if isinstance(item, dict)] if isinstance(edits, list) else [action.arguments]
    old = "\n".join(str(item[key]) for item in sources for key in _OLD_TEXT_KEYS if key in item)
    new = "\n".join(str(item[key]) for item in sources for key in _NEW_TEXT_KEYS if key in item)
    return old, new


def _definitions(text: str, most: int = 4) -> tuple[str, ...]:
    return tuple(dict.fromkeys(DEFINITION.findall(text[:MAX_SCANNED])))[:most]


def _changed_names(old: str, new: str, most: int = 4) -> tuple[str, ...]:
    """The names that a change affects: definitions in the new text first, then identifiers that it adds, then those
    that it removes."""
    new, old = new[:MAX_SCANNED], old[:MAX_SCANNED]
    defined = _definitions(new, most)
    if len(defined) == most:
        return defined
    before, after = find_facts(old, 60).identifiers, find_facts(new, 60).identifiers
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    return tuple(dict.fromkeys([*defined, *added[:most], *removed[:1]]))[:most]


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


_PATCH_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_PATCH_VERBS: dict[str, Verb] = {"Add": "created", "Update": "edited", "Delete": "deleted"}


@dataclass(slots=True)
class PatchedFile:
    """A file in a patch; `was` is its path before, if the patch moves it. A hunk is the text with its context before
    and after the change, and the line that it stands below, empty if the patch names none."""

    path: str
    verb: Verb
    was: str = ""
    hunks: list[tuple[str, str, str]] = field(default_factory=list)
    _old: list[str] = field(default_factory=list)
    _new: list[str] = field(default_factory=list)
    _below: str = ""
    _changed: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def add(self, line: str) -> None:
        """A line of the patch."""
        if line.startswith(("@@", "*** End")):
            self.end_hunk()
            self._below = line.removeprefix("@@").strip() if line.startswith("@@") else ""
        elif line.startswith("*** Move to: "):
            self.was, self.path, self.verb = self.path, line.removeprefix("*** Move to: ").strip(), "renamed"
        elif line.startswith(("+", "-")):
            (self._new if line[0] == "+" else self._old).append(line[1:])
            self._changed[line[0] == "+"].append(line[1:])
        elif line.startswith(" ") or not line:
            self._old.append(line[1:])
            self._new.append(line[1:])

    def end_hunk(self) -> None:
        """The lines so far are a hunk."""
        if self._old or self._new:
            self.hunks.append(("\n".join(self._old), "\n".join(self._new), self._below))
        self._old, self._new = [], []

    @property
    def use(self) -> FileUse:
        """The use of the file, with the names that the change affects."""
        if self.was:
            return FileUse(self.path, self.verb, (f"was {self.was}",))
        old, new = self._changed
        return FileUse(self.path, self.verb, _changed_names("\n".join(old), "\n".join(new)))


def patched_files(action: Action) -> list[PatchedFile] | None:
    """The files of the patch that a call applied; None if it applied none, or failed."""
    patch = None if action.refused or action.failed or _is_refused_patch(action) else _patch_of(action)
    if not patch:
        return None
    found: list[PatchedFile] = []
    for line in patch.split("*** End Patch", 1)[0].removesuffix("\n").split("\n"):
        header = _PATCH_FILE.match(line)
        if header:
            found.append(PatchedFile(header.group(2).strip(), _PATCH_VERBS[header.group(1)]))
        elif found:
            found[-1].add(line)
    for file in found:
        file.end_hunk()
    return found


_COMMAND = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?<!&)&(?!&)|[^&;|\n'\"]|['\"])+")
"""One of several commands; a separator in a quotation ends none."""

_REDIRECT = re.compile(r"(?<![0-9&>])(>>?)[ \t]*([^\s&|;<>()'\"]{1,200})")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_FILE_LIKE = re.compile(r"^(?!-)(?!https?:)[\w.@~+/-]{1,200}$")


def _from_command(command: str) -> Iterator[FileUse]:
    shell, bodies = without_heredocs(command[:MAX_SCANNED])
    for sign, path in _REDIRECT.findall(_QUOTED.sub('""', shell)):
        if not path.startswith(("/dev/", "&", "$", '"')) and not path.isdigit():
            names = _definitions("\n".join(bodies))
            yield FileUse(path, "created" if sign == ">" else "edited", names)
    for part in _COMMAND.findall(_REDIRECT.sub(" ", shell)):
        yield from _from_words(_words(part))


def _words(part: str) -> list[str]:
    try:
        return shlex.split(part)
    except ValueError:
        return part.split()


_READERS = frozenset({"cat", "head", "tail", "nl", "less", "bat", "wc"})
_SCRIPT = re.compile(r"/|\.[A-Za-z]{1,4}$")
"""A script has a short ending or a folder; the name of a test, such as `orders.test_refunds`, has neither."""

_RUNNERS = frozenset({"python", "python3", "node", "bash", "sh", "ruby", "perl", "deno", "bun", "tsx"})


def _from_words(words: Sequence[str]) -> Iterator[FileUse]:
    while words and ("=" in words[0] or words[0] in ("sudo", "time", "env")):
        words = words[1:]
    if len(words) > 2 and words[0] == "git" and words[1] in ("rm", "mv"):
        words = words[1:]
    if len(words) < 2:
        return
    program, rest = words[0].rsplit("/", 1)[-1], words[1:]
    files = [word for word in rest if _FILE_LIKE.match(word)]
    if program in ("mv", "cp") and len(files) == 2:
        verb: Verb = "renamed" if program == "mv" else "created"
        yield FileUse(files[1], verb, (f"{'was' if program == 'mv' else 'copy of'} {files[0]}",))
    elif program in ("rm", "touch", "tee"):
        yield from (FileUse(path, "deleted" if program == "rm" else "created") for path in files)
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
