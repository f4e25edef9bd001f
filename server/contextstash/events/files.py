"""The files that calls used, and how: read, edited, created, deleted, renamed, run; with the texts that they show of
them or put into them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, starmap
from typing import Any

from contextstash.events.calls import CUT, MAX_SCANNED, MAX_TEXT, QUOTED, WENT, Call, runner_of
from contextstash.events.names import path_key
from contextstash.events.turns import FileUse, Replaced, Shown, Verb
from contextstash.outputs.digest import without_heredocs
from contextstash.safety.sanitize import one_line, unforged


def file_uses(call: Call) -> list[FileUse]:
    """The files that a call used, by absolute paths if it says where it ran; of a command that failed, those that it
    changed before it did, and the script that it ran; empty for another call that failed or was refused. A script in a
    command changes what it opens to write."""
    failed = call.is_error and call.failed
    if call.refused or (failed and call.command is None):
        return []
    patch = _patch_of(call)
    if patch is not None:
        # Codex applies all of a patch or nothing, and reports no exit code here.
        refused = call.output is not None and call.output.text.lstrip().startswith("apply_patch verification failed")
        _, *parts = _PATCH_FILE.split(patch.split("*** End Patch", 1)[0].removesuffix("\n"))
        uses = [] if call.failed or refused else list(starmap(_patched, zip(parts[::2], parts[1::2], strict=True)))
    elif call.command is not None:
        uses = list(_before_failure(call.command) if call.failed else files_of_command(call.command))
        uses = [use for use in uses if not failed or use.verb not in ("read", "git add")]
    else:
        uses = _from_arguments(call)
    if len(uses) == 1 and uses[0].verb == "read" and (shown := _shown(call)):
        uses = [replace(uses[0], shown=shown)]
    if not call.failed and all(use.verb != "created" for use in uses):  # it is run, not written
        uses += [FileUse(path, "edited") for path in _written_by_script(call.command or "")]
    return [_within(call.folder, use) for use in uses if not _in_vain(call, use)]


def _before_failure(command: str) -> Iterator[FileUse]:
    """The files that a command which failed used: none behind the first script or test that had to pass for them."""
    done: list[FileUse] = []
    for part in without_heredocs(command)[0].split("&&"):
        done += files_of_command(part)
        if runner_of(part) or any(use.verb == "run" for use in done):
            break
    known = {(use.path, use.verb) for use in done}
    return (use for use in files_of_command(command) if (use.path, use.verb) in known)


def _within(folder: str, use: FileUse) -> FileUse:
    """The use by absolute paths if a folder is given, in one line without our own markers: summaries tell them."""

    def path_in(path: str) -> str:
        relative = folder and path and not path.startswith(("/", "~", "$"))
        path = f"{folder}/{path.removeprefix('./')}" if relative else path
        return unforged(path) if path.isprintable() else one_line(path, MAX_PATH)

    path, was = path_in(use.path), path_in(use.was)
    return use if (path, was) == (use.path, use.was) else replace(use, path=path, was=was)


MAX_PATH, MAX_LISTING = 1_000, 20_000
"""Characters that are known of a path with line breaks or invisible characters, and of an output that are searched for
files that are not there."""

_REFUSALS = ("No such file", "Permission denied", "Read-only file system", "Is a directory")


def _in_vain(call: Call, use: FileUse) -> bool:
    """Whether the command says that it could not read or write a file; it may have done so with others."""
    if call.output is None or call.command is None:
        return False
    name = use.path.rpartition("/")[2]
    lines = call.output.text[:MAX_LISTING].split("\n")
    return any(name in line and any(each in line for each in _REFUSALS) for line in lines)


_PATH_KEYS = ("file_path", "path", "notebook_path", "filename", "file", "target_file", "relative_path", "filepath")
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


def _from_arguments(call: Call) -> list[FileUse]:
    arguments = call.arguments
    path = _text(arguments, _PATH_KEYS)
    verb = _verb_of(call)
    if not path or verb is None or any(key.startswith("repo") for key in arguments):
        return []  # of a repository on a server, the working folder has no file
    if verb not in ("created", "edited"):
        return [FileUse(path, verb)]
    edits = arguments.get("edits")
    parts = [item for item in edits if isinstance(item, dict)] if isinstance(edits, list) else [arguments]
    replaced = [
        Replaced(old, _text(part, _NEW_KEYS) or "", part.get("replace_all") is True)
        for part in parts
        if (old := _text(part, _OLD_KEYS))
    ]
    text = None if replaced else _text(arguments, _WHOLE_KEYS)
    if not replaced and text is None and (inserted := _text(arguments, _INSERTED_KEYS)) is not None:
        replaced = [Replaced("", inserted)]
    return [FileUse(path, verb, text=text, replaced=tuple(replaced))]


def _verb_of(call: Call) -> Verb | None:
    sub_command = call.arguments.get("command")
    name = f"{sub_command} {call.tool}".lower() if isinstance(sub_command, str) else call.tool.lower()
    first = (verb for verb, words in _WORDS.items() if name.startswith(words))
    within = (verb for verb, words in _WORDS.items() if any(word in name for word in words))
    return next(chain(first, within), None)


def _text(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((value for key in keys if isinstance(value := arguments.get(key), str)), None)


MAX_READ = 2_000
"""Lines that Claude Code's Read prints at most if no limit is given. As many lines may not be the whole file."""

_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t)(.*)$", re.DOTALL)


def _shown(call: Call) -> Shown | None:
    """The lines that a read of one file printed; None if the call does not say which ones they are."""
    if call.output is None or len(call.output.text) > MAX_TEXT:
        return None
    cut = CUT.search(call.output.text)
    text = call.output.text[: cut.start()] if cut else call.output.text
    numbered = _numbered(text)
    given = range_of(call.command) if call.command is not None else _range_of(call.arguments)
    if numbered is not None:
        first, lines = numbered
    elif given is None or not text.strip():
        return None
    else:
        first, lines = given[0], tuple(text.split("\n"))
        # The last line of a cut text may be half of one, and a text that ends with a line break has no line after it.
        lines = lines[:-1] if cut or text.endswith("\n") else lines
    whole = not cut and first == 1 and given is not None and given[0] == 1 and len(lines) < min(given[1], MAX_READ)
    return Shown(lines, first, whole)


def _numbered(text: str) -> tuple[int, tuple[str, ...]] | None:
    """The first number and the lines of a text whose lines are numbered, up to a gap; None if they are not."""
    first, lines = 0, list[str]()
    for line in text.lstrip("\n").split("\n"):
        match = _NUMBERED.match(line)
        if match is None or (lines and int(match.group(1)) != first + len(lines)):
            break
        first = first or int(match.group(1))
        lines.append(match.group(2))
    return (first, tuple(lines)) if lines else None


def _range_of(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """The first line that a reading tool was asked for, and how many; 0 if it was asked for a part."""
    pair, limit = arguments.get("view_range"), arguments.get("limit")
    named = [*(pair[:1] if isinstance(pair, list) else ()), arguments.get("offset"), arguments.get("start_line")]
    first = next((value for value in named if isinstance(value, int)), 1)
    part = 0 if pair or arguments.get("end_line") else TO_THE_END
    return max(1, first), limit if isinstance(limit, int) else part


_PATCH_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: ", re.MULTILINE)
_OF_PATCH: Mapping[str, Verb] = {"Add": "created", "Update": "edited", "Delete": "deleted"}


def _patch_of(call: Call) -> str | None:
    """The patch that a call applies, None if it applies none."""
    for text in (call.text, call.arguments.get("input"), call.arguments.get("patch"), call.command):
        if isinstance(text, str) and text.lstrip().startswith("*** Begin Patch"):
            return text
    command = call.command or ""
    start = command.find("*** Begin Patch")
    return command[start:] if start >= 0 and "apply_patch" in command[:start] else None


def _patched(kind: str, part: str) -> FileUse:
    """A file of a patch, with what is replaced in it."""
    head, *lines = part.removesuffix("\n").split("\n")
    path, verb = head.strip(), _OF_PATCH[kind]
    hunks: list[Replaced] = []
    old, new = list[str](), list[str]()
    was = ""
    for line in (*lines, "@@"):
        if line.startswith(("@@", "*** End")):
            if old or new:
                hunks.append(Replaced("\n".join(old), "\n".join(new), patched=True))
            old, new = [], []
        elif line.startswith("*** Move to: "):
            was, path, verb = path, line.removeprefix("*** Move to: ").strip(), "renamed"
        elif line[:1] in ("", " ", "+", "-"):
            sign, text = line[:1], line[1:]
            old += [text] * (sign != "+")
            new += [text] * (sign != "-")
    if verb == "created":
        return FileUse(path, verb, text="\n".join(each.new for each in hunks))
    return FileUse(path, verb, was, replaced=() if verb == "deleted" else tuple(hunks))


def is_same_file(one: str, other: str) -> bool:
    """Whether both paths may be those of one file: one is the other, or its end, as it may be relative."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")


class KnownPaths:
    """The paths by which files are known, as the keys of a dictionary."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._known = known
        self._by_end: dict[str, str] = {}
        for path in known:
            self._by_end[path_key(path)] = "" if path_key(path) in self._by_end else path

    def of(self, path: str) -> str:
        """The path by which a file is known: of those of which one is the end of the other, such as a relative one and
        an absolute one, the longest. If it was known by a shorter one, the key is changed."""
        path = path.removeprefix("./")
        known = self._by_end.setdefault(path_key(path), path)
        if not is_same_file(known, path):
            self._by_end[path_key(path)] = ""  # several files end so: a relative path may be any of them
            return path
        longest = self._by_end[path_key(path)] = max(path, known, key=len)
        if longest != known in self._known:
            self._known[longest] = self._known.pop(known)
        return longest


_COMMAND = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?<!&)&(?!&)|\\.|[^&;|\n'\"]|['\"])+")
"""One of several commands; a separator in a quotation ends none."""

_REDIRECT = re.compile(r"(?<![0-9&>])(>>?)[ \t]*([^\s&|;<>()'\"]{1,200})")
_FILE_LIKE = re.compile(r"^(?!-)(?!https?:)[\w.@~+/-]{1,200}$")


def files_of_command(command: str) -> Iterator[FileUse]:
    """The files that a command reads, writes or runs."""
    shell, bodies = without_heredocs(command[:MAX_TEXT])
    shell = shell[:MAX_SCANNED]
    written = [
        (sign, path)
        for sign, path in _REDIRECT.findall(QUOTED.sub('""', shell))
        if not path.startswith(("/dev/", "&", "$", '"')) and not path.isdigit()
    ]
    text = "\n".join(bodies) if bodies and command.count("<<") == 1 else None
    for sign, path in written:
        its = text if len(written) == 1 else None
        yield FileUse(path, "created" if sign == ">" else "edited", text=its, appended=sign == ">>")
    for part in _COMMAND.findall(_REDIRECT.sub(" ", shell)):
        yield from _files_of_words(_words(part), None if written else text)


def _words(part: str) -> list[str]:
    try:
        return shlex.split(part)
    except ValueError:
        return part.split()


_PROGRAMS: Mapping[Verb, str] = {
    "read": "cat head tail nl less bat wc sed",
    "run": "python python3 node bash sh ruby perl deno bun tsx",
    "created": "touch tee cp",
    "renamed": "mv",
    "deleted": "rm",
}
_VERBS = {program: verb for verb, programs in _PROGRAMS.items() for program in programs.split()}
"""What programs do with the files that are their arguments; sed only with an option edits them."""

_SCRIPT_NAME = re.compile(r"/|\.[A-Za-z]{1,4}$")
"""A script has a short ending or a folder; the name of a test, such as `orders.test_refunds`, has neither."""


def _files_of_words(words: Sequence[str], text: str | None) -> Iterator[FileUse]:
    """The uses of one of several commands; `text` is the only here-document among them."""
    verb: Verb | None
    while words and ("=" in words[0] or words[0] in ("sudo", "time", "env")):
        words = words[1:]
    if len(words) > 2 and words[0] == "git" and words[1] in ("checkout", "restore"):
        files = [] if _NOT_FILES & {*words} else [word for word in words[2:] if _FILE_LIKE.match(word)]
        named = words[2 : words.index("--")] if "--" in words else words[2:3]
        # What has no ending is another version, such as a branch: Git takes its text, and the file is changed.
        verb = "restored" if all(word in _NEWEST or _ENDING.search(word) for word in named) else "edited"
        yield from (FileUse(path, verb) for path in files if _ENDING.search(path))
        return
    if words[:2] == ["git", "add"]:  # a sub-agent or the user may have changed it
        yield from (FileUse(path, "git add") for path in words[2:] if _FILE_LIKE.match(path) and _ENDING.search(path))
        return
    if len(words) > 2 and words[0] == "git" and words[1] in ("rm", "mv") and "--cached" not in words:
        words = words[1:]
    program, rest = words[0].rsplit("/", 1)[-1] if words else "", words[1:]
    verb = _VERBS.get(program)
    files = [word for word in rest if _FILE_LIKE.match(word)]
    if verb in ("read", "run"):  # other arguments than files are only left out by their look
        files = [path for path in files if "/" in path or "." in path.strip(".")]
    if program == "sed":
        verb = "edited" if any(map(_IN_PLACE.match, rest)) else "read"
        script = {rest[at + 1] for at, word in enumerate(rest[:-1]) if _BEFORE_SCRIPT.fullmatch(word)}
        script = script or {next((word for word in rest if word and not word.startswith("-")), "")}
        files = [path for path in files if path not in script]
    elif verb == "run":
        files = [path for path in files[:1] if "-m" not in rest and _SCRIPT_NAME.search(path)]
    elif program in ("mv", "cp"):
        was, files = (files[0], files[1:]) if len(files) == 2 else ("", [])
        yield from (FileUse(path, verb, was=was if verb == "renamed" else "") for path in files if verb)
        return
    yield from (FileUse(path, verb, text=text if program == "tee" else None) for path in files if verb)


_ENDING = re.compile(r"\.[A-Za-z]\w{0,9}$")
"""Of a file. A branch may be called `release/1.2`."""

_NEWEST = frozenset({"HEAD", "--worktree", "-W"})
_NOT_FILES = frozenset({"-b", "-B", "--orphan", "--staged", "-S"})
"""Options with which Git puts no file back."""

_IN_PLACE = re.compile(r"-[a-zA-Z0]{0,3}i|--in-place")
_BEFORE_SCRIPT = re.compile(r"-\w*[ef]|--expression|--file")
"""Options of sed: what they print goes into the file; a script follows."""


_WRITES = re.compile(
    r"\bopen\(\s*([^\n]{1,200}?),\s*[\"'](?:w|a|r\+)|writeFile(?:Sync)?\(\s*([^,\n]{1,200}),"
    r"|(?:Path\(([^()\n]{1,200})\)|([\w.]{1,200})|[)\]])\.write_text\("
)
_LITERAL = re.compile(r"""(["'])([^"'\n]+)\1""")
_ASSIGNED = re.compile(r"""^[ \t]*(\w{1,60})\s*=\s*(?:Path\()?["']([^"'\n]{1,200})["']\)?\s*$""", re.MULTILINE)


def _written_by_script(command: str) -> list[str]:
    """The files that the script in a command opens to write, or that it writes into a file, as far as it names them."""
    script = command[:MAX_SCANNED]
    names = dict(_ASSIGNED.findall(script)) if "=" in script else {}
    named = ["".join(match.groups(default="")).strip() for match in _WRITES.finditer(script)]
    paths = [text[2] if (text := _LITERAL.fullmatch(name)) else names.get(name, "") for name in named]
    return [path for path in dict.fromkeys(paths) if path and not path.startswith(("/tmp/", "/dev/"))]


_PRINTS = re.compile(
    r"(?:(?:(?:cat|nl)(?: -\w+)? [^|\s]+ *\| *)?"
    r"sed -n ['\"]?(?P<first>\d{1,7})(?:,(?P<last>\d{1,7}|\$))?p['\"]?(?: [^|]*)?"
    r"|(?:cat|nl|bat)(?: -\w+)? [^-|\s][^|\s]*)(?: *\| *head(?: -n)? -?(?P<most>\d{1,7}))?"
    r"|head(?: -n)? -?(?P<lines>\d{1,7}) [^|\s]+"
)
"""Commands that print lines of a file that are next to each other."""

TO_THE_END = 10_000_000
"""A number of lines that no file has."""


def range_of(command: str) -> tuple[int, int] | None:
    """The first line and the number of lines that a command prints of a file; None if it does not say it."""
    prints = _PRINTS.fullmatch(WENT.sub("", without_heredocs(command)[0].strip()))
    if prints is None or re.search(r"&&|\|\||[;\n]", prints.group()):
        return None
    first, last = int(prints["first"] or 1), prints["last"] or prints["first"] or "$"
    count = TO_THE_END if last == "$" else int(last) - first + 1
    return first, min(count, int(prints["most"] or prints["lines"] or TO_THE_END))
