"""The work done: commits and pull requests, what the agent reported, and what it said when it changed files since."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.statements import takes_back
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.imitations import defused
from contextstash.context.text.sanitize import one_line
from contextstash.context.text.sentences import own_sentences

MAX_STEPS = 6
"""Changes since the last commit that are told, the newest: with more, they push out what is finished."""

MAX_SAID = 260
"""Characters that are quoted for such a change, in whole sentences: two lines."""

MAX_SUBJECT = 160
MAX_BODY = 800
"""Characters of a commit's message: a line, and about ten lines if there is room."""

MAX_FILES = 4
"""Files that a change names."""


@dataclass(frozen=True, slots=True)
class Done:
    """What was done in message `seq`, in a line; `more` is what a commit's message says besides."""

    seq: int
    text: str
    more: str = ""


_COMMITTED = re.compile(r"^\[([^\]\n]{1,120}?)(?: \(root-commit\))? ([0-9a-f]{7,40})\] ([^\n]+)$", re.MULTILINE)
"""What git prints of a new commit."""

_COMMIT = re.compile(r"\bgit\b[^\n;&|]{0,80}? commit\b(?![^\n]{0,200}--dry-run)")
_AMENDS = re.compile(r"\bcommit\b[^\n;&|]{0,80}--amend\b")
_MESSAGE = re.compile(
    r"commit\b[^\n]{0,200}?<<-?\s*['\"]?(?P<end>\w+)['\"]?\n(?P<document>.*?)\n\s*(?P=end)\b"
    r"|commit\b[^\n;&|]{0,200}? -\w*m ?(?P<mark>[\"'])(?!\$\()(?P<quoted>.*?)(?<!\\)(?P=mark)",
    re.DOTALL,
)
_TRAILER = re.compile(r"^(?:[A-Z][\w-]+-[Bb]y: |🤖 )")
_OPENED = re.compile(r"\b(?:gh pr|glab mr) create\b")
_ADDRESS = re.compile(r"https://[^\s\"'<>]+/(?:pull|merge_requests)/\d+")
_TITLE = re.compile(r"--title[ =]([\"'])(.+?)(?<!\\)\1")


def work_done(
    turns: Sequence[Turn], actions: Sequence[Action], changed: Mapping[int, Sequence[str]], reported: int
) -> list[Done]:
    """The commits and pull requests in order, then the changes after the last commit, and after the message `reported`
    in which the agent told what it had done, each with the agent's words."""
    kept: list[Done] = []
    for action in actions:
        command = action.command or ""
        if action.output is None or action.refused or action.output.running:
            continue
        if commits(action):
            made = [*_commits(action, command)]
            amended = [done for done in kept if _is_commit(done)][-1:] if made and _AMENDS.search(command) else []
            kept = [*(done for done in kept if done not in amended), *made]
        if _OPENED.search(command) and (address := _ADDRESS.search(action.output.text)):
            kept.append(_opened(action, command, address.group(), kept))
    since = max([reported, *(done.seq for done in kept if _is_commit(done))])
    return [*kept, *_steps(turns, {seq: paths for seq, paths in changed.items() if seq > since}, actions)[-MAX_STEPS:]]


def commits(action: Action) -> bool:
    """Whether a call makes a commit."""
    return bool(_COMMIT.search(action.command or ""))


def _is_commit(done: Done) -> bool:
    return done.text.startswith("committed")


def _opened(action: Action, command: str, address: str, kept: list[Done]) -> Done:
    """The pull request; if it has the title of the last commit, in the same line."""
    found = _TITLE.search(command)
    title = found[2].replace("\\", "") if found else ""
    if title and kept and kept[-1].text.endswith(f": {title}"):
        commit = kept.pop()
        return Done(commit.seq, f"{commit.text}; opened {address}", commit.more)
    return Done(action.seq, f"opened {address}{f': {title}' if title else ''}")


def _commits(action: Action, command: str) -> Iterator[Done]:
    found = _MESSAGE.search(command)
    message = (found["document"] or found["quoted"] or "").strip() if found else ""
    subject, _, body = message.partition("\n")
    body = "\n".join(line for line in body.strip().split("\n") if line.strip() and not _TRAILER.match(line))[:MAX_BODY]
    printed = _COMMITTED.findall(action.output.text) if action.output else []
    for place, (branch, commit, said) in enumerate(printed):
        text = f"committed {commit} on {branch}: {one_line(said, MAX_SUBJECT)}"
        yield Done(action.seq, text, body if place == len(printed) - 1 else "")
    if not printed and subject and not action.failed:
        yield Done(action.seq, f"committed: {one_line(subject, MAX_SUBJECT)}", body)


@dataclass(slots=True)
class _Said:
    """What the agent said in message `seq`, and the files that it changed then, until it said something else."""

    seq: int
    text: str
    files: dict[str, None] = field(default_factory=dict)


def _steps(turns: Sequence[Turn], changed: Mapping[int, Sequence[str]], actions: Iterable[Action]) -> list[Done]:
    tools = _scripts(actions, {path for paths in changed.values() for path in paths})
    said: list[_Said] = []
    for turn in turns:
        if turn.role == "assistant" and (text := _newest_words(" \n".join(turn.said))):
            said.append(_Said(turn.seq, text))
        elif turn.role == "user" and any(turn.said):
            said.append(_Said(turn.seq, ""))  # what was said before is not about what comes now
        if said and turn.seq in changed:
            said[-1].files.update(dict.fromkeys(path for path in changed[turn.seq] if path not in tools))
    return [Done(step.seq, f"changed {_names(step.files)}: “{step.text}”") for step in said if step.files and step.text]


def _newest_words(text: str) -> str:
    """The last sentences of a text, whole ones, which say what is done next; empty if they say little."""
    kept = ""
    for sentence in reversed(own_sentences(text)):
        joined = f"{sentence} {kept}".strip()
        if len(joined) > MAX_SAID or takes_back(sentence) or (kept and sentence.endswith(("?", ":"))):
            break
        kept = joined
    return defused(one_line(kept.rstrip(": "), MAX_SAID)) if len(kept.split()) > MIN_WORDS else ""


MIN_WORDS = 4
"""Words. "Let me fix this" tells nothing of a change."""


def _names(paths: Iterable[str]) -> str:
    names = [*dict.fromkeys(f"`{path.rsplit('/', 1)[-1]}`" for path in paths)]
    more = f" and {len(names) - MAX_FILES} more" if len(names) > MAX_FILES else ""
    return f"{', '.join(names[:MAX_FILES])}{more}"


_RUNS = re.compile(r"\b(?:python3?|node|bash|sh|ruby|perl|deno|bun|tsx|go run)\s+(?:-\S+\s+)*([^\s;&|<>-]\S*)")


def _scripts(actions: Iterable[Action], paths: Iterable[str]) -> set[str]:
    """The changed files that the agent runs itself, and copies to go back to: they are no work, but tools for it."""
    run = {name.rsplit("/", 1)[-1] for action in actions for name in _RUNS.findall(action.command or "")}
    return {path for path in paths if path.rsplit("/", 1)[-1] in run or path.endswith(_COPIES)}


_COPIES = (".bak", ".backup", ".orig", ".patch")
