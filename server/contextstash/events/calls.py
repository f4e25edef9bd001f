"""Tool calls, each with its result: what was run, what it printed, whether it failed or was refused; shell
commands, with the files that they use."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from contextstash.events.turns import FileUse, Turn, Verb
from contextstash.messages.base import parsed
from contextstash.outputs.digest import (
    TOOL_ERROR,
    Printed,
    TestRun,
    find_crash,
    find_test_run,
    unwrap,
    without_heredocs,
)
from contextstash.safety.sanitize import one_line

MAX_SCANNED, MAX_TEXT, MAX_PRINTED = 20_000, 400_000, 20_000
"""Characters of a command that are searched; of one text that is followed, about 10,000 lines; and of what a command
that goes on printed so far, the newest. They bound the work."""

GO_TO = re.compile(r"^\s*(?:cd|pushd) +['\"]?([^&;|\n'\"~$-][^&;|\n'\"]{0,200}?)['\"]?\s*(?:&&|;|\n)")

LOOKING = re.compile(
    r"^(?:\w+=\S+ )*(?:rg|ag|e?grep|ls|cat(?! *>)|find|sed -n|head|tail|nl|wc|which|stat|diff|cmp|pgrep|test|\["
    r"|git (?:log|show|diff|status|grep|check-ignore|blame|branch))\b"
)
"""Commands that only look at something: that it is missing, or differs, does not stop the work."""

TESTS_NOTHING = re.compile(rf"{LOOKING.pattern}|^(?:cat|git|gh|glab|codex|claude|curl|echo)\b")
"""Commands that test nothing themselves: what they print of tests, such as a log or a review, others ran."""

_WENT = re.compile(r"^\s*(?:cd|pushd) [^&;|\n]{1,200}(?:&&|;|\n)\s*")
_LINE_END = re.compile(r"(?<![\\&|;({\s])[ \t]*\n\s*(?![)}])")
"""The end of a line that ends a command, too."""

_SCRIPT = re.compile(r"\"(?:[^\"\\]|\\.)*\n(?:[^\"\\]|\\.)*\"|'[^']*\n[^']*'")
_RUNNER = re.compile(
    r"(?:^|[;&|(] *|\b(?:exec|run|env) |-m |/|\w=\S{0,200} )"
    r"(?P<name>pytest|unittest|tox|nox|mypy|pyright|ruff|flake8|pylint|jest|vitest"
    r"|mocha|tsc|eslint|rspec|phpunit|ctest|gradlew?|mvn|bazel|golangci-lint|go (?:test|build|vet)"
    r"|cargo (?:test|build|check|clippy|nextest)|dotnet (?:test|build)"
    r"|(?:npm|pnpm|yarn|bun|deno|make|just|mise|rake|task)(?: run)? (?:\w+[:-])*(?:test|check|lint|build|ci)\w*)\b"
)
"""Programs that test, check or build."""


def as_run(command: str) -> str:
    """A command as it was run, its lines joined; of a here-document only its mark, and of a script in its arguments the
    number of lines."""
    shell = without_heredocs(command[:MAX_SCANNED], "<<…")[0].strip()
    shell = _SCRIPT.sub(lambda script: f"<{len(script.group().strip().splitlines())} lines>", shell)
    return _LINE_END.sub("; ", shell).strip()


def bare_command(command: str) -> str:
    """What a command does, to compare it with others: in one line, without a `cd` before it."""
    return one_line(_WENT.sub("", as_run(command), count=1), 600)


def runner_of(command: str) -> str:
    """The program that tests, checks or builds, such as `go test`; empty if the command runs none."""
    found = _RUNNER.search(_QUOTED.sub('""', bare_command(command)))
    return found["name"] if found else ""


_COMMAND = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?<!&)&(?!&)|[^&;|\n'\"]|['\"])+")
"""One of several commands; a separator in a quotation ends none."""

_REDIRECT = re.compile(r"(?<![0-9&>])(>>?)[ \t]*([^\s&|;<>()'\"]{1,200})")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_FILE_LIKE = re.compile(r"^(?!-)(?!https?:)[\w.@~+/-]{1,200}$")


def files_of_command(command: str) -> Iterator[FileUse]:
    """The files that a command reads, writes or runs."""
    shell, bodies = without_heredocs(command[:MAX_TEXT])
    shell = shell[:MAX_SCANNED]
    written = [
        (sign, path)
        for sign, path in _REDIRECT.findall(_QUOTED.sub('""', shell))
        if not path.startswith(("/dev/", "&", "$", '"')) and not path.isdigit()
    ]
    text = "\n".join(bodies) if bodies and command.count("<<") == 1 else None
    for sign, path in written:
        verb: Verb = "created" if sign == ">" else "edited"
        its = text if len(written) == 1 else None
        yield FileUse(path, verb, text=its, appended=sign == ">>")
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
    if len(words) > 2 and words[0] == "git" and words[1] == "add":
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

_NOT_FILES = frozenset({"-b", "-B", "--orphan", "--staged", "-S"})
"""Options with which Git puts no file back."""

_NEWEST = frozenset({"HEAD", "--worktree", "-W"})
"""Words before the files that Git puts back as they were in the newest commit."""

_IN_PLACE = re.compile(r"-[a-zA-Z0]{0,3}i|--in-place")
_BEFORE_SCRIPT = re.compile(r"-\w*[ef]|--expression|--file")
"""Options of sed: what they print goes into the file; a script follows."""


_WRITES = re.compile(
    r"\bopen\(\s*([^\n]{1,200}?),\s*[\"'](?:w|a|r\+)|writeFile(?:Sync)?\(\s*([^,\n]{1,200}),"
    r"|(?:Path\(([^()\n]{1,200})\)|([\w.]{1,200})|[)\]])\.write_text\("
)
_LITERAL = re.compile(r"""(["'])([^"'\n]+)\1""")
_PATH_LITERAL = re.compile(r"""["']([\w.@+~/-]{1,200}\.[A-Za-z]\w{0,9})["']""")
_ASSIGNED = re.compile(r"""^[ \t]*(\w{1,60})\s*=\s*(?:Path\()?["']([^"'\n]{1,200})["']\)?\s*$""", re.MULTILINE)


def written_by_script(command: str, used: Iterable[str] = ()) -> list[str]:
    """The files that the script in a command opens to write, or that it writes into a file. If it does not say which
    ones, such as in a loop, they are those that it names of the ones `used` before."""
    script = command[:MAX_SCANNED]
    names = dict(_ASSIGNED.findall(script)) if "=" in script else {}
    named = ["".join(match.groups(default="")).strip() for match in _WRITES.finditer(script)]
    paths = [text[2] if (text := _LITERAL.fullmatch(name)) else names.get(name, "") for name in named]
    if "" in paths:
        # Each package has a file of the name that is left out: alone it names none.
        ends = tuple(f"/{path}" for path in _PATH_LITERAL.findall(script) if path != "__init__.py")
        paths += [path for path in used if f"/{path}".endswith(ends)]
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
    prints = _PRINTS.fullmatch(_WENT.sub("", without_heredocs(command)[0].strip()))
    if prints is None or re.search(r"&&|\|\||[;\n]", prints.group()):
        return None
    first, last = int(prints["first"] or 1), prints["last"] or prints["first"] or "$"
    count = TO_THE_END if last == "$" else int(last) - first + 1
    return first, min(count, int(prints["most"] or prints["lines"] or TO_THE_END))


COMMAND_KEYS = ("command", "cmd", "script")
_REFUSAL = re.compile(
    r"\A\s*(?:Error:\s*)?(?:(?:the )?user (?:doesn['’]t want|does not want|rejected|denied|declined)"
    r"|(?:[\w-]{1,20} ){0,4}rejected by (?:the )?user|plan (?:was )?rejected\b)",
    re.IGNORECASE,
)
"""How a host's text begins if it stands for an output. Anywhere else, the same words belong to the output itself."""

ASKING_TOOLS = frozenset({"AskUserQuestion", "question"})
"""The tools of Claude Code and of OpenCode that ask the user. An MCP server's tool is recorded with the server's name,
and the gateway offers none under such a name."""

PLAN_TOOLS = frozenset({"exitplanmode", "exit_plan_mode"})


def is_refusal(text: str) -> bool:
    """Whether this is what a host puts in the place of an output if the user refused the call."""
    return bool(_REFUSAL.match(text[:500]))


def is_dialog(tool: str) -> bool:
    """Whether a tool asks the user, so that its output holds the user's words."""
    return tool in ASKING_TOOLS or tool.lower() in PLAN_TOOLS


_MCP_TOOL = re.compile(r"mcp[_:.]", re.IGNORECASE)
_TOOL_ERROR = re.compile(r"\A\s*(?:Error:|error:|ERROR:|Error executing)")


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments` is empty if the call's text is not a JSON object. `output` is None
    without a result, and `ended` is then whether the assistant went on: it will not come. `seq` is the message with the
    result, or else with the call."""

    seq: int
    tool: str
    argument: str
    text: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    output: Printed | None = None
    is_error: bool = False
    handle: str | None = None
    tests: TestRun | None = None
    ended: bool = True

    @cached_property
    def command(self) -> str | None:
        """The shell command, None if this is not one."""
        for key in COMMAND_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, str) and value.strip() and not self.arguments.get("path"):
                return value
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return str(value[-1]) if len(value) == 3 and value[1] in ("-c", "-lc") else " ".join(value)
        return None

    @property
    def written(self) -> str:
        """The texts in the arguments, without their names; the whole call if it has no arguments."""
        return "\n".join(_strings(self.arguments)) if self.arguments else self.text

    @property
    def folder(self) -> str:
        """The folder in which it ran, as far as it says it; it may be relative to an unknown one."""
        given = self.arguments.get("workdir") or self.arguments.get("cwd")
        folder = given.rstrip("/") if isinstance(given, str) and given.startswith("/") else ""
        went = GO_TO.match(self.command or "")
        return posixpath.normpath(posixpath.join(folder, went.group(1))) if went else folder

    @property
    def refused(self) -> bool:
        """Whether the user refused the call. Only the host's own text counts, not the output of a program or MCP
        server. All that a dialog returns is the host's; some formats have no flag for an error."""
        own = self.is_error or is_dialog(self.tool)
        if not own or self.output is None or self.output.exit_code is not None:
            return False
        return not _MCP_TOOL.match(self.tool) and is_refusal(self.output.text)

    @property
    def failed(self) -> bool:
        """Whether the call failed in a way that matters; a search without results is not a failure."""
        if self.output is None or self.refused:
            return False
        if self.tests and self.tests.failed:
            return True
        if self.is_error or self.output.exit_code not in (None, 0):
            # A search or comparison that prints more than 2,000 characters has found something.
            looked = self.output.exit_code in (None, 1) and len(self.output.text) < 2_000
            return not (looked and LOOKING.match(bare_command(self.command or "")))
        if self.tests or _TOOL_ERROR.match(self.output.text[:200]):
            return self.command is None
        return self.command is not None and self.output.exit_code is None and bool(find_crash(self.output.text))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(each)


def calls_of(turns: Sequence[Turn], running: dict[str, Call] | None = None) -> list[Call]:
    """All tool calls in order, each with its result, wherever in the turns that is. The result of a call that only
    waits for a process is that of the command that began it; `running` are such commands by their processes, those of
    earlier turns, and then those that still go on."""
    calls: dict[str, Call] = {}
    running = {} if running is None else running
    done: list[Call] = []
    answered: set[str] = set()
    newest, spoke = -1, ""  # where the assistant's newest step begins, of one or more messages
    for turn in turns:
        newest = turn.seq if turn.role == "assistant" != spoke else newest
        spoke = turn.role
        for index, (block, text) in enumerate(zip(turn.blocks, turn.texts, strict=True)):
            call_id, tool = block.call_id or "", block.tool or "tool"
            if block.type == "tool_call":
                given = parsed(text)
                arguments = given if isinstance(given, dict) else {}
                called = Call(turn.seq, tool, block.argument or "", text, arguments)
                calls[call_id or f"{turn.seq}.{index}"] = called
            elif block.type == "tool_result":
                call = calls.get(call_id) or Call(0, tool, "", "")
                answered.add(call_id)
                output = unwrap(text)
                if (begun := running.pop(_waits_for(call), None)) and begun.output:
                    call, output = begun, replace(output, text=f"{begun.output.text}\n{output.text}".lstrip("\n"))
                tests = find_test_run(output.text) if any(key in call.arguments for key in COMMAND_KEYS) else None
                # Some formats have no flag for it. A refusal with this tag is what a program printed.
                is_error = block.is_error or (text.startswith(TOOL_ERROR) and not is_refusal(output.text))
                handle = turn.handles.get(index)
                call = replace(call, seq=turn.seq, output=output, is_error=is_error, handle=handle, tests=tests)
                if output.running:
                    running[output.running] = replace(call, output=replace(output, text=output.text[-MAX_PRINTED:]))
                done.append(call)
    done += [replace(call, ended=call.seq < newest) for call_id, call in calls.items() if call_id not in answered]
    return sorted([*done, *_typed_by_user(turns)], key=lambda call: call.seq)


TYPED = "!"
"""The tool of a command that the user typed behind this sign in Claude Code."""

_TYPED = re.compile(r"\A<bash-(input|stdout)>(.*?)</bash-\1>(?:<bash-stderr>(.*?)</bash-stderr>)?\Z", re.DOTALL)


def _typed_by_user(turns: Iterable[Turn]) -> Iterator[Call]:
    """The commands that the user ran, each with what it printed, which the next message says."""
    command = ""
    said = ((turn.seq, text) for turn in turns if turn.role == "user" for text in turn.said)
    for seq, typed in ((seq, _TYPED.match(text)) for seq, text in said):
        if typed and typed[1] == "input":
            command = typed[2].strip()
        elif typed and command:
            output = unwrap("\n".join(filter(None, typed.group(2, 3))))
            tests = find_test_run(output.text)
            yield Call(seq, TYPED, command, command, {"command": command}, output, tests=tests)
            command = ""


def _waits_for(call: Call) -> str:
    """The process whose output a call only waits for."""
    given = call.arguments
    named = [given[key] for key in ("session_id", "bash_id", "task_id", "shell_id", "cell_id") if given.get(key)]
    return str(named[0]) if named and call.command is None and not given.get("chars") else ""
