"""A call in one line: what was run or changed, what it printed; and what it did with Git, such as a commit."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from contextstash.events.calls import Call, as_run, bare_command, is_refusal, runner_of
from contextstash.events.files import CUT
from contextstash.events.turns import FileUse, Replaced
from contextstash.outputs.digest import DEFINITION, digest_output, ends_of, still_running
from contextstash.safety.sanitize import counted, one_line

MAX_CALL = 160
"""Characters that are shown of a call."""

WAITS = "no result yet"

RUNNING = ": still running, "
"""Behind a call whose command goes on."""

MAX_CHANGED_LINE = 100
"""Characters that are shown of a line that was changed."""


MIN_CHANGED_LINE = 16
"""Characters. A shorter line, or a mere string such as an import, says little of a change that has others."""

MAX_SHORT = 300
"""Characters of an output that is told whole, in one line."""

MAX_FAILURES = 8
"""Lines that are told of a run that failed."""

MAX_FOUND, MAX_FOUND_LINE = 10, 120
"""Lines that a search found which are told, if there are no more, and characters of each."""


def call_line(call: Call) -> str:
    """The call: a command as it was run, else the tool with its argument, a path with its end."""
    if call.command is not None:
        outside = " outside the sandbox" if "escalated" in str(call.arguments.get("sandbox_permissions", "")) else ""
        return f"ran `{one_line(as_run(call.command).replace('`', chr(39)), MAX_CALL)}`{outside}"
    argument = "" if call.argument.startswith("*** Begin Patch") else call.argument
    if argument.startswith("/") and len(argument) > MAX_CALL:
        argument = f"…{argument[1 - MAX_CALL :]}"
    wanted = call.arguments.get("pattern", "")
    searched = (
        f" for `{one_line(wanted, MAX_CALL)}`" if isinstance(wanted, str) and wanted not in ("", argument) else ""
    )
    return f"{one_line(call.tool, 40)} {one_line(argument, MAX_CALL)}".strip() + searched


def outcome_line(call: Call, uses: Sequence[FileUse]) -> str:
    """The call with what came of it."""
    made = call_line(call)
    if call.output is None:
        return f"{made}: {'no result is recorded' if call.ended else WAITS}"
    if call.refused:
        return f"{made}: refused by the user"
    text = call.output.text.strip()
    changes = [use for use in uses if use.verb not in ("read", "run")]
    silent = call.command is None or not text
    if changes and not call.failed and silent and (told := next(filter(None, map(change_line, changes)), "")):
        name = changes[0].path.rpartition("/")[2]
        return f"{made}: {'' if name in made else f'{one_line(changes[0].path, MAX_CALL)}: '}{told}"
    code = call.output.exit_code
    state = f"exit {code}: " if code else still_running(call.output)
    if call.failed and (call.tests or runner_of(call.command or "")):
        return f"{made}: {state}{failures_of(call)}"
    if call.command is not None and 0 < len(text) <= MAX_SHORT:
        return f"{made}: {state}{one_line(text.replace(chr(10), ' / '), MAX_SHORT + 100)}"
    part = "of what a cut output shows: " if CUT.search(call.output.text) else ""
    digest = _found(call, text) or digest_output(call.tool, call.argument, call.output.text, call.is_error)
    return f"{made}: {state}{part}{digest}"


def _found(call: Call, text: str) -> str:
    """The lines that a search found, if they are few."""
    if not _SEARCHES.search(bare_command(call.command) if call.command else call.tool):
        return ""
    lines = [one_line(line, MAX_FOUND_LINE) for line in text.split("\n") if line.strip()]
    return " / ".join(lines) if len(lines) <= MAX_FOUND else ""


_SEARCHES = re.compile(r"^(?:\w+=\S+ )*(?:rg|ag|e?grep|git grep)\b|^(?!.*web)\w*(?:grep|search)", re.IGNORECASE)
"""Commands and tools that look for lines."""


def change_line(use: FileUse) -> str:
    """What a change of a file adds: the first definition, or else the first line, marked as in a diff; if it only
    removes lines, the first of them; of a whole file how many lines it has. Empty if the call does not show it."""
    if use.text is not None:
        return f"wrote {counted(len(use.text.splitlines()), 'line')}"
    for each in use.replaced:
        old, new = each.old.split("\n"), each.new.split("\n")
        added = [f"+ {line.strip()}" for line in new if line.strip() and line not in old]
        removed = (f"- {line.strip()}" for line in old if line.strip() and line not in new)
        defined = (line for line in added if DEFINITION.match(line[2:]))
        long = (line for line in added if len(line) >= MIN_CHANGED_LINE and line[2] not in "\"'")
        if line := next(defined, "") or next(long, "") or next(iter(added), "") or next(removed, ""):
            return one_line(line, MAX_CHANGED_LINE)
    return ""


_PROSE = re.compile(r"\.(?:mdx?|txt|rst)$")
_HAS_BODY = re.compile(r"[({:=<;]")
"""What a line of code that defines something has, and a sentence that begins with "type" or "class" mostly has not."""


def changes_of(use: FileUse) -> dict[str, str]:
    """What a change is in, as far as the call shows it: the functions and classes, each behind "+ " if it is put in,
    "- " if it is taken out, or else "in "; of a change that is in none, a line of it."""
    found: dict[str, str] = {}
    for each in () if _PROSE.search(use.path) else (Replaced("", use.text or ""), *use.replaced):
        old, new = each.old.split("\n"), each.new.split("\n")
        before, after = ({name for line in lines if (name := _defined(line))} for lines in (old, new))
        for name in (*_touched(old, new, each.within), *_touched(new, old, each.within)):
            found[name] = "+ " if name in after - before else "- " if name in before - after else found.get(name, "in ")
    line = "" if found or use.text is not None else change_line(use)
    return {line: ""} if line and line[2] not in "\"'" else found  # an import says little


def _defined(line: str) -> str:
    found = DEFINITION.match(line)
    return str(found[1]) if found and _HAS_BODY.search(line) else ""


def _touched(lines: Sequence[str], others: Collection[str], within: str) -> Iterator[str]:
    """What defines the lines that are not among the others. A body is indented more than the line that defines it."""
    name, depth = _defined(within), _depth(within)
    for line in filter(str.strip, lines):
        if defined := _defined(line):
            name, depth = defined, _depth(line)
        elif _depth(line) <= depth and line.lstrip()[0] not in ")]}":
            name = ""
        if name and line not in others:
            yield name


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


_FAILURE = re.compile(
    r"^[ \t]*(--- FAIL: \S+.*|FAILED \S.*|ERROR \S.*|# \S+|FAIL[ \t]+\S+.*|E {2,}\S.*|panic: .*|test \S+ \.\.\. FAILED"
    r"|\S*\w\.\w{1,5}:\d+(?::\d+)?:? \S.*"
    r"|.*\b(?:[Ee]rror|[Cc]annot|[Nn]o such|not permitted|denied|please|undefined)\b.*)$",
    re.MULTILINE,
)
"""What says where and why a run failed."""

_NO_REASON = re.compile(r"task failed|^error: Recipe|exit (?:code|status) \d|^# \S+$|^FAIL\s+\S+\s+[\d.]+s$")
"""Of these only what else is said tells the reason."""


def failures_of(call: Call) -> str:
    """All places and reasons that a run which failed printed, up to MAX_FAILURES; else the line that says an error."""
    text = ends_of(call.output.text) if call.output else ""
    found = dict.fromkeys(one_line(line, MAX_CALL) for line in _FAILURE.findall(text))
    told = [line for line in found if not _NO_REASON.search(line)] or [*found]
    more = [f"and {len(told) - MAX_FAILURES} more"] if len(told) > MAX_FAILURES else []
    counts = [f"{call.tests.failed} failed"] if call.tests and call.tests.failed else []
    lines = [*counts, *told[:MAX_FAILURES], *more]
    return "; ".join(lines) if told else call.error_message


COMMITTED = "committed"
"""How the text of a commit begins."""

MAX_SUBJECT = 160
"""Characters of a commit's message: a line."""

MAX_COMMAND = 100_000
"""Characters of a command that is searched for a commit; a longer one writes a file."""

_COMMITTED = re.compile(r"^\[([^\]\n]{1,120}?)(?: \(root-commit\))? ([0-9a-f]{7,40})\] ([^\n]+)$", re.MULTILINE)
"""What git prints of a new commit."""

_COMMIT = re.compile(r"\bgit\b[^\n;&|]{0,80}? commit\b(?![^\n]{0,200}--dry-run)")
_AMENDS = re.compile(r"\bcommit\b[^\n;&|]{0,80}--amend\b")
_MESSAGE = re.compile(
    r"commit\b[^\n]{0,200}?<<-?\s*['\"]?(?P<end>\w+)['\"]?\n(?P<document>.*?)\n\s*(?P=end)\b"
    r"|commit\b[^\n;&|]{0,200}? -\w*m ?(?P<mark>[\"'])(?!\$\()(?P<quoted>.*?)(?<!\\)(?P=mark)",
    re.DOTALL,
)
_QUIET = re.compile(r"\bcommit\b[^\n;&|]{0,80} (?:-\w*q|--quiet)")
_PUSH = re.compile(r"\bgit\b[^\n;&|]{0,80}? push\b(?![^\n]{0,200}--dry-run)")
_PUSHED = re.compile(
    r"^ *[*+ -]? *(?:\[new branch\]|[0-9a-f]{7,40}\.\.\.?[0-9a-f]{7,40}) +(\S+) -> (\S+)", re.MULTILINE
)

_OPENED = re.compile(r"\b(?:gh pr|glab mr) create\b")
_ADDRESS = re.compile(r"https://[^\s\"'<>]+/(?:pull|merge_requests)/\d+")
_TITLE = re.compile(r"--title[ =]([\"'])(.+?)(?<!\\)\1")

_BRANCH = re.compile(
    r"(?:^(?:On branch |Switched to (?:a new )?branch '|## )|\(HEAD -> )(?P<name>[\w/@+-]+(?:\.(?!\.)[\w/@+-]+)*)",
    re.MULTILINE,
)
_ASKS_BRANCH = re.compile(r"\bgit\b[^\n;&|]{0,80}? (?:branch --show-current|rev-parse --abbrev-ref HEAD)\s*\Z")
"""How Git says on which branch it is; a commit names its own."""

_WENT_TO = re.compile(
    r"\bgit\b[^\n;&|]{0,80}? (?:checkout|switch)(?= [^\n;&|]*-q|[^\n;&|]*--quiet)(?: -{1,2}\w+)*"
    r" (?P<name>(?![0-9a-f]{7,40}\b)[\w/@+-]+)(?: -{1,2}\w+)* *(?:$|[;&|\n])",
    re.MULTILINE,
)
"""A command that goes to a branch and says nothing of it. A name with a dot may be a file's."""

_STATUS = re.compile(r"\bgit\b[^\n;&|]{0,80}? status\b")
_TRACKS = re.compile(r"^(?:Your branch .*|## \S+ \[.+\])$", re.MULTILINE)
_ENTRY = re.compile(
    r"^(?:(?P<sign>[ MADRCU?]{2}) (?=\S)|\t(?:modified|new file|deleted|renamed): +)(?P<path>\S.*)$", re.MULTILINE
)
"""What `git status` prints: of the branch, and of each file that is changed or, in the short form, not tracked."""

MAX_NAMED, MAX_TREE = 8, 800
"""Changed and untracked files that are named, of each so many, and characters of what is told of the work tree."""

_MOVES = re.compile(
    r"\bgit\b[^\n;&|]{0,80}? (push|checkout|switch|pull --rebase|pull|merge|rebase|reset --hard|cherry-pick)\b"
    r"(?! (?:[^\n;&|]* )?(?:-[bBcC]|--|--abort|--orphan|--dry-run)(?:\s|$))"
)


def branch_of(call: Call) -> str:
    """The branch that Git printed last in a call, else the one to which a quiet command went; empty if not known."""
    command = call.command or ""
    if call.output is None or call.refused or "git " not in command:
        return ""
    text = call.output.text[:MAX_COMMAND]
    printed = [each["name"] for each in _BRANCH.finditer(text)]
    if _ASKS_BRANCH.search(command) and not call.failed:
        printed += re.findall(r"^(?!HEAD$)[\w/@+.-]+$", text.strip().rpartition("\n")[2])
    went = [] if call.failed else [each["name"] for each in _WENT_TO.finditer(command[:MAX_COMMAND])]
    return next(reversed(printed or went), "")


def work_tree_of(call: Call) -> str:
    """What `git status` said of the work tree in a call; empty if it was not asked, or its output says nothing."""
    if call.output is None or call.refused or call.failed or not _STATUS.search(call.command or ""):
        return ""
    text = call.output.text[:MAX_COMMAND]
    tracks = [found.group().removeprefix("## ").rstrip(",.") for found in _TRACKS.finditer(text)][:1]
    changed = [each["path"] for each in _ENTRY.finditer(text) if each["sign"] != "??"]
    untracked = [each["path"] for each in _ENTRY.finditer(text) if each["sign"] == "??"]
    counts = [_counted(paths, what) for paths, what in ((changed, "changed"), (untracked, "untracked")) if paths]
    bare = not counts and len(text.strip().split("\n")) == 1 and text.startswith("## ")
    clean = ["clean"] if "working tree clean" in text or bare else []
    return one_line("; ".join([*tracks, *(counts or clean)]), MAX_TREE)


def _counted(paths: Sequence[str], what: str) -> str:
    names = ", ".join(f"`{path}`" for path in paths[:MAX_NAMED])
    return f"{len(paths)} {what} ({names}{', …' * (len(paths) > MAX_NAMED)})"


def moves_of(call: Call) -> list[str]:
    """The commands of Git in a call that pushed, or that took other versions of many files, such as "pull"."""
    return [] if call.failed or call.refused else _MOVES.findall((call.command or "")[:MAX_COMMAND])


def commits_of(call: Call) -> Iterator[str]:
    """What a call committed, and opened or else pushed, in this order."""
    command = call.command or ""
    if call.output is None or call.refused or call.output.running or len(command) > MAX_COMMAND:
        return
    if _COMMIT.search(command):
        yield from _commits(call, command, call.output.text)
    address = _ADDRESS.search(call.output.text) if _OPENED.search(command) else None
    if address is None and _PUSH.search(command) and (pushed := _PUSHED.search(call.output.text)):
        yield f"pushed {pushed.group(1)} to {pushed.group(2)}"
    if address is not None:
        found = _TITLE.search(command)
        title = f": {found[2]}".replace("\\", "") if found else ""
        yield one_line(f"opened {address.group()}{title}", 2 * MAX_SUBJECT)


def _commits(call: Call, command: str, output: str) -> Iterator[str]:
    amends = " (amends the commit before)" if _AMENDS.search(command) else ""
    printed = _COMMITTED.findall(output)
    for branch, commit, said in printed:
        yield f"{COMMITTED} {commit} on {branch}: {one_line(said, MAX_SUBJECT)}{amends}"
    # Of a commit that was refused, or that a hook stopped, something else is printed; some formats have no flag for it.
    quiet = not output.strip() or (_QUIET.search(command) and not is_refusal(output.strip()))
    if not quiet or printed or call.failed:
        return
    found = _MESSAGE.search(command)
    subject = (found["document"] or found["quoted"] or "").strip().partition("\n")[0] if found else ""
    if subject or amends:
        yield f"{COMMITTED}: {one_line(subject, MAX_SUBJECT)}{amends}"
