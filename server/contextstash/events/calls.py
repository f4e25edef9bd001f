"""Tool calls, each with its result: what was run, what it printed, whether it failed or was refused; the line that
tells it; and what it did with Git, such as a commit."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from contextstash.events.turns import FileUse, Turn
from contextstash.messages.base import parsed
from contextstash.outputs.digest import (
    DEFINITION,
    TOOL_ERROR,
    Printed,
    TestRun,
    digest_output,
    ends_of,
    find_crash,
    find_test_run,
    still_running,
    unwrap,
    without_heredocs,
)
from contextstash.outputs.limits import error_line
from contextstash.safety.sanitize import MARKER, clip, one_line

MAX_SCANNED, MAX_TEXT, MAX_PRINTED = 20_000, 400_000, 20_000
"""Characters of a command that are searched; of one text that is followed, about 10,000 lines; and of what a command
that goes on printed so far, the newest. They bound the work."""

GO_TO = re.compile(r"^\s*(?:cd|pushd) ++['\"]?([^&;|\n'\"~$-][^&;|\n'\"]{0,200}?)['\"]?\s*(?:&&|;|\n)")

LOOKING = re.compile(
    r"^(?:\w+=\S+ )*(?:rg|ag|e?grep|ls|cat(?! *>)|find|sed -n|head|tail|nl|wc|which|stat|diff|cmp|pgrep|test|\["
    r"|git (?:log|show|diff|status|grep|check-ignore|blame|branch))\b"
)
"""Commands that only look at something: that it is missing, or differs, does not stop the work."""

TESTS_NOTHING = re.compile(rf"{LOOKING.pattern}|^(?:cat|git|gh|glab|codex|claude|curl|echo)\b")
"""Commands that test nothing themselves: what they print of tests, such as a log or a review, others ran."""

WENT = re.compile(r"^\s*(?:cd|pushd) [^&;|\n]{1,200}(?:&&|;|\n)\s*")
_LINE_END = re.compile(r"(?<![\\&|;({\s])[ \t]*\n\s*(?![)}])")
"""The end of a line that ends a command, too."""

QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_RUNNER = re.compile(
    r"(?:^|[;&|(] *|\b(?:exec|run|env) |-m |/|\w=\S{0,200} )"
    r"(?P<name>pytest|unittest|tox|nox|mypy|pyright|ruff|flake8|pylint|jest|vitest"
    r"|mocha|tsc|eslint|rspec|phpunit|ctest|gradlew?|mvn|bazel|golangci-lint|go (?:test|build|vet)"
    r"|cargo (?:test|build|check|clippy|nextest)|dotnet (?:test|build)"
    r"|(?:npm|pnpm|yarn|bun|deno|make|just|mise|rake|task)(?: run)? (?:\w+[:-])*(?:test|check|lint|build|ci)\w*)\b"
)
"""Programs that test, check or build."""


def as_run(command: str) -> str:
    """A command as it was run, its lines joined; of a here-document only its mark."""
    return _LINE_END.sub("; ", without_heredocs(command[:MAX_SCANNED], "<<…")[0].strip()).strip()


def bare_command(command: str) -> str:
    """What a command does, to compare it with others: in one line, without a `cd` before it."""
    return one_line(WENT.sub("", as_run(command), count=1), 600)


def runner_of(command: str) -> str:
    """The program that tests, checks or builds, such as `go test`; empty if the command runs none."""
    found = _RUNNER.search(QUOTED.sub('""', bare_command(command)))
    return found["name"] if found else ""


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


_PROCESS_KEYS = ("session_id", "bash_id", "task_id", "shell_id", "cell_id")
"""By which a call names the process whose output it only waits for."""


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
                waits = call.command is None and not call.arguments.get("chars")
                process = next((str(call.arguments[key]) for key in _PROCESS_KEYS if call.arguments.get(key)), "")
                if waits and (begun := running.pop(process, None)) and begun.output:
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

_TYPED = re.compile(r"\A<bash-input>(.*?)</bash-input>\Z", re.DOTALL)
_PRINTED = re.compile(r"\A<bash-stdout>(.*?)</bash-stdout>(?:<bash-stderr>(.*?)</bash-stderr>)?\Z", re.DOTALL)


def _typed_by_user(turns: Iterable[Turn]) -> Iterator[Call]:
    """The commands that the user ran, each with what it printed, which the next message says."""
    said = [(turn.seq, text) for turn in turns if turn.role == "user" for text in turn.said]
    for (_, before), (seq, text) in pairwise(said):
        if (typed := _TYPED.match(before)) and (printed := _PRINTED.match(text)):
            command, output = typed[1].strip(), unwrap("\n".join(filter(None, printed.groups())))
            tests = find_test_run(output.text)
            yield Call(seq, TYPED, command, command, {"command": command}, output, tests=tests)


CUT = re.compile(
    rf"{re.escape(MARKER)}|…\s*\d[\d,]* (?:tokens|chars|characters) truncated\s*…"
    r"|\[[^\[\]\n]{0,300}truncated[^\[\]\n]{0,300}\]",
    re.IGNORECASE,
)
"""What we, or a client, leave where the middle of an output was removed. Codex writes the second form."""

MAX_CALL, MAX_SHORT, MAX_FAILURES = 160, 800, 8
"""Characters that are shown of a call, and of an output that is told whole, such as a short list of records, of which
the first and the last line say nothing; lines that are told of a run that failed."""

WAITS = "no result yet"

MAX_CHANGED_LINE = 100
"""Characters that are shown of a line that was changed."""


def call_line(call: Call) -> str:
    """The call: a command as it was run, else the tool with its argument."""
    if call.command is not None:
        outside = " outside the sandbox" if "escalated" in str(call.arguments.get("sandbox_permissions", "")) else ""
        who = "the user ran" if call.tool == TYPED else "ran"
        return f"{who} `{one_line(as_run(call.command).replace('`', chr(39)), MAX_CALL)}`{outside}"
    argument = "" if call.argument.startswith("*** Begin Patch") else call.argument
    wanted = call.arguments.get("pattern", "")
    is_more = isinstance(wanted, str) and wanted not in ("", argument)
    searched = f" for `{one_line(wanted, MAX_CALL)}`" if is_more else ""
    within = next((given for key in ("glob", "include", "type") if (given := call.arguments.get(key))), "")
    searched += f" in `{one_line(str(within), MAX_CALL)}`" if is_more and within else ""
    return f"{one_line(call.tool, 40)} {one_line(argument, MAX_CALL)}".strip() + searched


def outcome_line(call: Call, uses: Sequence[FileUse] = ()) -> str:
    """The call with what came of it."""
    made = call_line(call)
    if call.output is None:
        return f"{made}: {'no result is recorded' if call.ended else WAITS}"
    if call.refused:
        return f"{made}: refused by the user"
    changed = next(((use.path, line) for use in uses if (line := change_line(use))), None)
    if changed and not call.failed:
        path, line = changed
        return f"{made}: {line if path.rpartition('/')[2] in made else f'{one_line(path, MAX_CALL)}: {line}'}"
    text = call.output.text.strip()
    state = f"exit {call.output.exit_code}: " if call.output.exit_code else still_running(call.output)
    if call.failed and (call.tests or runner_of(call.command or "")):
        return f"{made}: {state}{failures_of(call)}"
    if call.command is not None and 0 < len(text) <= MAX_SHORT:
        told = one_line(text.replace("\n", " / "), MAX_SHORT + 100)
    else:
        told = digest_output(call.tool, call.argument, call.output.text, call.is_error)
    return f"{made}: {state}{'of what a cut output shows: ' if CUT.search(call.output.text) else ''}{told}"


def change_line(use: FileUse) -> str:
    """What a change of a file adds: the first definition, or else the first line, marked as in a diff; if it only
    removes lines, the first of them. Empty if the call does not show it, and for a whole file."""
    for each in use.replaced:
        old, new = dict.fromkeys(each.old.split("\n")), dict.fromkeys(each.new.split("\n"))
        added = [f"+ {line.strip()}" for line in new if line.strip() and line not in old]
        removed = (f"- {line.strip()}" for line in old if line.strip() and line not in new)
        defined = (line for line in added if DEFINITION.match(line[2:]))
        line = next(defined, "") or next(iter(added), "") or next(removed, "")
        if line:
            return one_line(line, MAX_CHANGED_LINE)
    return ""


_FAILURE = re.compile(
    r"^[ \t]*+(--- FAIL: \S+.*|FAILED \S.*|ERROR \S.*|# \S+|FAIL[ \t]+\S+.*|E {2,}\S.*|panic: .*|test \S+ \.\.\. FAILED"
    r"|\S*\w\.\w{1,5}:\d+(?::\d+)?:? \S.*"
    r"|.*\b(?:[Ee]rror|[Cc]annot|[Nn]o such|not permitted|denied|please|undefined)\b.*)$",
    re.MULTILINE,
)
"""What says where and why a run failed."""


def failures_of(call: Call) -> str:
    """All places and reasons that a run which failed printed, up to MAX_FAILURES; else the line that says an error."""
    if call.output is None:
        return ""
    text, failed = call.output.text, call.tests if call.tests and call.tests.failed else None
    told = [*dict.fromkeys(one_line(line, MAX_CALL) for line in _FAILURE.findall(ends_of(text)))]
    if told:
        more = [f"[… {len(told) - MAX_FAILURES} more]"] * (len(told) > MAX_FAILURES)
        return "; ".join([*([f"{failed.failed} failed"] if failed else []), *told[:MAX_FAILURES], *more])
    return failed.line() if failed else find_crash(text) or error_line(text) or one_line(text, MAX_CALL)


COMMITTED = "committed"
"""How the text of a commit begins."""

MAX_SUBJECT, MAX_COMMAND, MAX_TREE = 160, 100_000, 360
"""Characters of a commit's message, of a command that is searched for a commit: a longer one writes a file; and of what
is told of the work tree."""

_COMMITTED = re.compile(r"^\[([^\]\n]{1,120}?)(?: \(root-commit\))? ([0-9a-f]{7,40})\] ([^\n]+)$", re.MULTILINE)
"""What Git prints of a new commit."""

_GIT = r"\bgit(?: -[Cc] (?:[^\s\"']|\"[^\"\n]*\"|'[^'\n]*')++| -[\w-]+(?:=\S+)?){0,20}+ "
"""Git with its own options, before a command of it."""

_COMMIT = re.compile(rf"{_GIT}commit\b(?![^\n]{{0,200}}--dry-run)")
_AMENDS = re.compile(r"\bcommit\b[^\n;&|]{0,80}--amend\b")
_MESSAGE = re.compile(
    r"commit\b[^\n]{0,200}?<<-?\s*['\"]?\w+['\"]?\n\s*([^\n]+)"
    r"|commit\b[^\n;&|]{0,200}? -\w*m ?(?:\"(?!\$\()([^\"\n]+)|'([^'\n]+))"
)
_QUIET = re.compile(r"\bcommit\b[^\n;&|]{0,80} (?:-\w*q|--quiet)")
_OPENED = re.compile(r"\b(?:gh|glab) (?:pr|mr|issue) create\b")
_ADDRESS = re.compile(r"https://[^\s\"'<>]+/(?:pull|merge_requests|issues)/\d+")
_OUTSIDE = re.compile(r"^mcp[_:.].*[_:.](?:create|update|add|post|send|publish|merge|close)_", re.IGNORECASE)
"""The names of tools of other MCP servers that change something there, such as an issue."""

_MOVES = re.compile(
    rf"{_GIT}(push|checkout|switch|pull|merge|rebase|cherry-pick|revert|reset --hard"
    r"|reset(?= --soft| (?:-q |--mixed )*(?:HEAD|@)[~^]))\b"
    r"(?! (?:[^\n;&|]{0,400} )?"
    r"(?:-[bBcC]|--|--abort|--orphan|--dry-run|--squash|--no-commit|\S+\.[a-zA-Z]{1,5})(?:\s|$))"
)
"""Commands that take other versions of files, or push, or take a commit back (`reset`). A name with an ending is that
of a file that is put back."""


_STATUS = re.compile(rf"{_GIT}status\b(?: -[^\s;&|]+)*+(?! *[^\s;&|\d>)\"'])")
_OF_TREE = re.compile(
    r"^(?:((?:On branch|Your branch|## |nothing to commit)[^\n]*)"
    r"|(?:([ MADRCU?]{2}) |\t(?:([a-z ]+): +|(?=\S+$)))(\S[^\n]*))$",
    re.MULTILINE,
)
"""`git status` of the whole work tree, and what it prints: of the branch; of a file, how it stands, and its path."""


def work_tree_of(call: Call) -> str:
    """What `git status` said of the branch and the work tree; empty if a call did not ask it."""
    asked = call.output is not None and not call.failed and _STATUS.search((call.command or "")[:MAX_COMMAND])
    printed = call.output.text[:MAX_COMMAND] if call.output and asked else ""
    told: dict[str, list[str]] = {}
    for said, short, long, path in _OF_TREE.findall(printed):  # in brackets, no blank is lost
        told.setdefault(said or (f"[{short}]" if short else f"{long or 'untracked'}:"), []).extend([path] * bool(path))
    return clip(" / ".join(one_line(f"{how} {', '.join(paths)}", MAX_TREE) for how, paths in told.items()), MAX_TREE)


_STAT = re.compile(rf"{_GIT}(?:diff|show)\b[^\n;&|]{{0,400}}? --stat\b[^\n;&|]*")
_OF_STAT = re.compile(r"^ (\S[^\n|]{0,300}?) +\| +(\d+|Bin)\b", re.MULTILINE)


def stat_of(call: Call) -> tuple[str, str]:
    """The command with which a call asked for the extent of a change, and the files with their changed lines; both
    empty if it did not."""
    asked = _STAT.search((call.command or "")[:MAX_COMMAND])
    found = _OF_STAT.findall(call.output.text[:MAX_COMMAND]) if asked and call.output and not call.failed else []
    told = clip(", ".join(f"{path} {lines}" for path, lines in found), MAX_TREE)
    return (one_line(asked.group(), MAX_SUBJECT), told) if asked and told else ("", "")


def moves_of(call: Call) -> list[str]:
    """The commands of Git in a call that pushed, took other versions of many files, such as "pull", or took commits
    back; a commit that goes on, whose end is not seen."""
    command = (call.command or "")[:MAX_COMMAND]
    if call.failed or call.refused:
        return []
    goes_on = call.output is not None and call.output.running and _COMMIT.search(command)
    shell = QUOTED.sub('""', without_heredocs(command)[0])  # a message may name commands of Git
    return [*_MOVES.findall(shell), *(["commit"] if goes_on else [])]


def commits_of(call: Call) -> Iterator[str]:
    """What a call committed, and what it changed elsewhere, such as the pull request that it opened, in this order."""
    if _OUTSIDE.match(call.tool) and call.output and not call.failed and not call.refused:
        yield f"called {one_line(outcome_line(call), MAX_SHORT)}"
    command = call.command or ""
    if call.output is None or call.refused or call.output.running or len(command) > MAX_COMMAND:
        return
    output = call.output.text
    if _COMMIT.search(command):
        amends = " (amends the commit before)" if _AMENDS.search(command) else ""
        printed = _COMMITTED.findall(output)
        for branch, commit, said in printed:
            yield f"{COMMITTED} {commit} on {one_line(branch, MAX_CALL)}: {one_line(said, MAX_SUBJECT)}{amends}"
        # Of a commit that was refused, or that a hook stopped, something else is printed; some formats do not flag it.
        quiet = not output.strip() or (_QUIET.search(command) and not is_refusal(output.strip()))
        if quiet and not printed and not call.failed:
            found = _MESSAGE.search(command)
            said = next(filter(None, found.groups()), "") if found else ""
            if said or amends:
                yield f"{COMMITTED}: {one_line(said, MAX_SUBJECT)}{amends}"
    if _OPENED.search(command) and (address := _ADDRESS.search(output)):
        yield f"opened {address.group()}"
