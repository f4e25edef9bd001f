"""Commits and pull requests that the agent made with Git and its companions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from contextstash.events.calls import Call, is_refusal
from contextstash.safety.sanitize import one_line

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
