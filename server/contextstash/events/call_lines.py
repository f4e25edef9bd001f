"""A call in one line: what was run or changed, what it printed; and what it did with Git, such as a commit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from contextstash.events.calls import TYPED, Call, as_run, bare_command, is_refusal, runner_of
from contextstash.events.files import CUT
from contextstash.events.turns import FileUse
from contextstash.outputs.digest import DEFINITION, digest_output, ends_of, find_crash, still_running
from contextstash.outputs.limits import error_line
from contextstash.safety.sanitize import counted, one_line

MAX_CALL, MAX_SHORT, MAX_FAILURES = 160, 800, 8
"""Characters that are shown of a call, and of an output that is told whole, such as a short list of records, of which
the first and the last line say nothing; lines that are told of a run that failed."""

WAITS = "no result yet"

RUNNING = ": still running as "
"""Behind a call whose command goes on."""

MIN_CHANGED_LINE, MAX_CHANGED_LINE = 16, 100
"""Characters that are shown of a line that was changed. A shorter line, or a mere string such as an import, says little
of a change that has others."""

MAX_FOUND, MAX_FOUND_LINE, MAX_FIRSTS = 10, 120, 4
"""Lines that a search found which are told, if there are no more, and characters of each; else the first of so many
files."""

_SEARCHES = re.compile(r"^(?:\w+=\S+ )*(?:rg|ag|e?grep|git grep)\b|^(?!.*web)\w*(?:grep|search)", re.IGNORECASE)
_FOUND = re.compile(r"(?:([^\s:]*[^\s:\d][^\s:]*):)?(\d+):")
"""Commands and tools that look for lines, and how a line that matches begins; those around it have other signs."""


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
    first = call.arguments.get("offset")
    searched += f" from line {first}" if isinstance(first, int) and first > 1 else ""
    return f"{one_line(call.tool, 40)} {one_line(argument, MAX_CALL)}".strip() + searched


def outcome_line(call: Call, uses: Sequence[FileUse]) -> str:
    """The call with what came of it."""
    made = call_line(call)
    if call.output is None:
        return f"{made}: {'no result is recorded' if call.ended else WAITS}"
    if call.refused:
        return f"{made}: refused by the user"
    text = call.output.text.strip()
    changes = [use for use in uses if use.changes]
    silent = call.command is None or not text
    if changes and not call.failed and silent and (told := next(filter(None, map(change_line, changes)), "")):
        name = changes[0].path.rpartition("/")[2]
        return f"{made}: {'' if name in made else f'{one_line(changes[0].path, MAX_CALL)}: '}{told}"
    state = f"exit {call.output.exit_code}: " if call.output.exit_code else still_running(call.output)
    if call.failed and (call.tests or runner_of(call.command or "")):
        return f"{made}: {state}{failures_of(call)}"
    lines = [one_line(line, MAX_FOUND_LINE) for line in text.split("\n") if line.strip()]
    is_search = bool(_SEARCHES.search(bare_command(call.command) if call.command else call.tool))
    if call.command is not None and 0 < len(text) <= MAX_SHORT:
        told = one_line(text.replace("\n", " / "), MAX_SHORT + 100)
    elif 0 < len(lines) <= MAX_FOUND and is_search:
        told = " / ".join(lines)
    else:
        told = digest_output(call.tool, call.argument, call.output.text, call.is_error)
        firsts = dict[str, str]()  # of each file, or each line of one
        for found in filter(None, map(_FOUND.match, lines if is_search else ())):
            firsts.setdefault(found[1] or found[2], found.string)
        told += f", among them: {' / '.join([*firsts.values()][:MAX_FIRSTS])}" if firsts else ""
    return f"{made}: {state}{'of what a cut output shows: ' if CUT.search(call.output.text) else ''}{told}"


def change_line(use: FileUse) -> str:
    """What a change of a file adds: the first definition, or else the first line, marked as in a diff; if it only
    removes lines, the first of them; of a whole file how many lines it has. Empty if the call does not show it, or if
    it is a mere import."""
    if use.text is not None:
        return f"wrote {counted(len(use.text.splitlines()), 'line')}"
    for each in use.replaced:
        old, new = dict.fromkeys(each.old.split("\n")), dict.fromkeys(each.new.split("\n"))
        added = [f"+ {line.strip()}" for line in new if line.strip() and line not in old]
        removed = (f"- {line.strip()}" for line in old if line.strip() and line not in new)
        defined = (line for line in added if DEFINITION.match(line[2:]))
        long = (line for line in added if len(line) >= MIN_CHANGED_LINE and line[2] not in "\"'")
        line = next(defined, "") or next(long, "") or next(iter(added), "") or next(removed, "")
        if line and not _IMPORT.match(line[2:]):
            return one_line(line, MAX_CHANGED_LINE)
    return ""


_IMPORT = re.compile(r"[\"'][\w./@-]+[\"'],?$|(?:import|from|use|using|#include|require)\b")

_FAILURE = re.compile(
    r"^[ \t]*+(--- FAIL: \S+.*|FAILED \S.*|ERROR \S.*|# \S+|FAIL[ \t]+\S+.*|E {2,}\S.*|panic: .*|test \S+ \.\.\. FAILED"
    r"|\S*\w\.\w{1,5}:\d+(?::\d+)?:? \S.*"
    r"|.*\b(?:[Ee]rror|[Cc]annot|[Nn]o such|not permitted|denied|please|undefined)\b.*)$",
    re.MULTILINE,
)
"""What says where and why a run failed."""

_NO_REASON = re.compile(
    r"\b(?:INFO|DEBUG)\b|task failed|^error: Recipe|exit (?:code|status) \d|^# \S+$|^FAIL\s+\S+\s+[\d.]+s$"
)
"""Of these only what else is said tells the reason."""


def failures_of(call: Call) -> str:
    """All places and reasons that a run which failed printed, up to MAX_FAILURES; else the line that says an error."""
    if call.output is None:
        return ""
    text, failed = call.output.text, call.tests if call.tests and call.tests.failed else None
    found = dict.fromkeys(one_line(line, MAX_CALL) for line in _FAILURE.findall(ends_of(text)))
    told = [line for line in found if not _NO_REASON.search(line)] or [*found]
    if told:
        more = [f"[… {len(told) - MAX_FAILURES} more]"] * (len(told) > MAX_FAILURES)
        return "; ".join([*([f"{failed.failed} failed"] if failed else []), *told[:MAX_FAILURES], *more])
    code = f"exit {call.output.exit_code}: " if call.output.exit_code else ""
    said = find_crash(text) or error_line(text) or one_line(text, MAX_CALL)
    return failed.line() if failed else f"{code}{said}"


COMMITTED = "committed"
"""How the text of a commit begins."""

MAX_SUBJECT, MAX_TREE, MAX_COMMAND, MAX_PATHS = 160, 600, 100_000, 6
"""Characters of a commit's message, of what is told of the work tree, and of a command that is searched for a commit: a
longer one writes a file; and files that are told of one state in the work tree."""

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

_BRANCH = re.compile(
    r"(?:^(?:On branch |Switched to (?:a new )?branch '|## )|\(HEAD -> )([\w/@+-]+(?:\.(?!\.)[\w/@+-]+)*)"
    r"(?:, ([^)\n]+)\))?",
    re.MULTILINE,
)
"""How Git says on which branch it is; a commit names its own."""

_NEW_BRANCH = re.compile(rf"{_GIT}(?:checkout -[bB]|switch -[cC]) ([\w/@+.-]+)")
"""A new branch, of which Git says nothing if it is told to be quiet."""

_STATUS = re.compile(rf"{_GIT}status\b(?: -[^\s;&|]+)*+(?! *[^\s;&|\d>)\"'])")
_ALL_SHORT = re.compile(r"git status (?:-s|--short|--porcelain)")
_OF_TREE = re.compile(
    r"^(?:(Your branch.*|## .*|nothing to commit.*)|([ MADRCU?]{2}) (\S.*)|\t(?:([a-z ]+): +)?(\S+(?: -> \S+)?))$",
    re.MULTILINE,
)
"""`git status` of the whole work tree, and what it prints: of the branch; and of each file how it stands in index and
work tree, or so in words."""

_SAID = re.compile(r" (?:-\w*m|--message) ?=?(?:\"(?:[^\"\\]|\\.)*\"|'[^']*')", re.DOTALL)
"""A message in a command, which may name commands of Git."""

_MOVES = re.compile(
    rf"{_GIT}(push|checkout|switch|pull|merge|rebase|cherry-pick|revert|reset --hard"
    r"|reset(?= --soft| (?:-q |--mixed )*(?:HEAD|@)[~^]))\b"
    r"(?! (?:[^\n;&|]* )?(?:-[bBcC]|--|--abort|--orphan|--dry-run|--squash|--no-commit|\S+\.[a-zA-Z]{1,5})(?:\s|$))"
)
"""Commands that take other versions of files, or push, or take a commit back (`reset`). A name with an ending is that
of a file that is put back."""


def branch_of(call: Call) -> str:
    """The branch that Git printed last in a call, and what is at its commit, too; empty if it named none."""
    if call.output is None or call.refused or "git " not in (call.command or ""):
        return ""
    text = call.output.text[:MAX_COMMAND]
    if bare_command(call.command or "") == "git branch --show-current" and not call.failed:
        return f"`{one_line(text, MAX_SUBJECT)}`" if text.strip() else ""
    made = [] if call.failed else [(name, "") for name in _NEW_BRANCH.findall((call.command or "")[:MAX_COMMAND])]
    name, others = next(reversed(_BRANCH.findall(text) or made), ("", ""))
    same = f", at the same commit as {one_line(others, MAX_SUBJECT)}" if others else ""
    return f"`{name}`{same}" if name else ""


def work_tree_of(call: Call) -> str:
    """What `git status` said of the work tree in a call; empty if it was not asked, or its output says nothing."""
    if call.output is None or call.refused or call.failed or not _STATUS.search(call.command or ""):
        return ""
    bare = bare_command(call.command or "")
    if not call.output.text.strip() and _ALL_SHORT.fullmatch(bare):
        return f"no output of `{bare}`"
    told: list[str] = []
    files: dict[str, list[str]] = {}
    for of_branch, short, path, long, other in _OF_TREE.findall(call.output.text[:MAX_COMMAND]):
        if of_branch:
            told.append(of_branch)
        else:  # in brackets, no blank is lost
            files.setdefault(f"[{short}] " if short else f"{long}: " if long else "", []).append(path or other)
    for mark, paths in files.items():
        more = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
        told.append(f"{mark}{', '.join(paths[:MAX_PATHS])}{more}")
    return one_line(" / ".join(told), MAX_TREE)


def moves_of(call: Call) -> list[str]:
    """The commands of Git in a call that pushed, took other versions of many files, such as "pull", or took commits
    back."""
    return [] if call.failed or call.refused else _MOVES.findall(_SAID.sub("", (call.command or "")[:MAX_COMMAND]))


def may_have_committed(call: Call) -> bool:
    """Whether a commit goes on whose end is not seen."""
    return bool(call.output and call.output.running and _COMMIT.search((call.command or "")[:MAX_COMMAND]))


def commits_of(call: Call) -> Iterator[str]:
    """What a call committed, and what it changed elsewhere, such as the pull request that it opened, in this order."""
    if _OUTSIDE.match(call.tool) and call.output and not call.failed and not call.refused:
        yield f"called {one_line(outcome_line(call, ()), MAX_SHORT)}"
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
