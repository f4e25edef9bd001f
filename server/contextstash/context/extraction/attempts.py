"""Failed attempts: changes after which a command still failed, and what the agent itself gave up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.context.extraction.actions import Action, bare_command
from contextstash.context.extraction.errors import label_of
from contextstash.context.extraction.statements import is_statement, is_whole
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.imitations import defused
from contextstash.context.text.sanitize import one_line
from contextstash.context.text.sentences import own_sentences

MAX_FILES = 3
"""Changed files that an attempt names, the newest: as many as fit one line."""

MAX_REASON = 220
MAX_SENTENCE = 320
"""In characters: together an attempt takes about three lines of a summary."""

_GAVE_UP = re.compile(
    r"\b(?:(?:did|(?:approach|attempt|idea|workaround)\b[^.]{0,40}\b(?:does|would|will))(?:n['’]t| not)"
    r" (?:work|help|fix|solve)|no effect|revert(?:ed|ing)?|made (?:it|things) worse|dead end|wrong approach|rolled back"
    r"|backed out)\b"
    r"|funktioniert nicht|ne (?:marche|fonctionne) pas|no funciona|не работает|不起作用|没有效果|うまくいか",
    re.IGNORECASE,
)
"""How an agent says that what it tried failed. What does not work is more often the defect that it is to mend."""

_CONDITION = re.compile(r"\b(?:if|unless|whether|in case)\b[^,;]*$", re.IGNORECASE)
"""The text before such words if they say what could happen."""


def failed_attempts(
    turns: Sequence[Turn], actions: Sequence[Action], changed: Mapping[int, Sequence[str]]
) -> list[str]:
    """A line for each attempt that failed, in order. `changed` maps messages to the files that they changed."""
    found = [*_still_failing(actions, changed), *_given_up(turns)]
    found.sort(key=lambda entry: entry[0])
    return list(dict.fromkeys(line for _, line in found))


def _still_failing(actions: Sequence[Action], changed: Mapping[int, Sequence[str]]) -> list[tuple[int, str]]:
    """The changes between two failures of the same command: they were to mend it, and did not. One line for each
    command, with all these changes and the newest reason."""
    found: dict[str, _Attempt] = {}
    failed_at: dict[str, int] = {}
    for action in actions:
        if action.output is None or action.refused or action.output.running:
            continue
        label = label_of(action)
        key = bare_command(label)
        if not action.failed:
            failed_at.pop(key, None)
            if key in found:
                found[key] = replace(found[key], passed=action.seq)
            continue
        before = failed_at.get(key)
        failed_at[key] = action.seq
        between = [
            path for seq, paths in changed.items() if before is not None and before < seq < action.seq for path in paths
        ]
        if between:
            names = [f"`{path.rsplit('/', 1)[-1]}`" for path in dict.fromkeys(between)]
            reason = one_line(action.error_message, MAX_REASON)
            found[key] = found.pop(key, _Attempt(label)).again(action.seq, names, reason)
    return [(attempt.seqs[-1], attempt.line()) for attempt in found.values()]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Changes after which a command still failed, in the messages `seqs`; `passed` is that in which it passed later, 0
    if it did not."""

    label: str
    seqs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    reason: str = ""
    passed: int = 0

    def again(self, seq: int, names: Sequence[str], reason: str) -> _Attempt:
        """With another change, after which it still failed."""
        names = tuple(dict.fromkeys([*(name for name in self.names if name not in names), *names]))[-MAX_FILES:]
        return _Attempt(self.label, tuple(dict.fromkeys((*self.seqs, seq)))[-MAX_SEQS:], names, reason or self.reason)

    def line(self) -> str:
        seqs, names = ", ".join(map(str, self.seqs)), ", ".join(self.names)
        passed = f"; it passed at {self.passed}" if self.passed else ""
        return f"({seqs}) changed {names}; then `{self.label}` still failed: {self.reason}{passed}"


MAX_SEQS = 6
"""Messages that a line names. More do not help to find the attempt."""

_LINE = re.compile(
    r"\((\d[\d, ]*)\) changed (.+?); then `(.+?)` still failed: (.*?)(?:; it passed at (\d+))?", re.DOTALL
)


def joined_attempts(older: Sequence[str], newer: Sequence[str], actions: Iterable[Action] = ()) -> list[str]:
    """The lines of an earlier summary and new ones, those about the same command as one. `actions` are the newer calls,
    in which the command may have passed."""
    kept: dict[str, str | _Attempt] = {}
    for line in (*older, *newer):
        match = _LINE.fullmatch(line)
        if match is None:
            kept.pop(line, None)
            kept[line] = line
            continue
        seqs, names, label, reason, passed = match.groups()
        key = bare_command(label)
        attempt = kept.pop(key, None)
        attempt = attempt if isinstance(attempt, _Attempt) else _Attempt(label)
        for seq in map(int, seqs.split(", ")):
            attempt = attempt.again(seq, names.split(", "), reason)
        kept[key] = replace(attempt, passed=int(passed or 0))
    passed_at = {bare_command(label_of(action)): action.seq for action in actions if _succeeded(action)}
    for key, entry in kept.items():
        if isinstance(entry, _Attempt) and passed_at.get(key, 0) > entry.seqs[-1]:
            kept[key] = replace(entry, passed=passed_at[key])
    return [entry if isinstance(entry, str) else entry.line() for entry in kept.values()]


def _succeeded(action: Action) -> bool:
    """Whether a command ended without a failure."""
    ended = action.output is not None and not action.output.running
    return ended and action.command is not None and not action.failed and not action.refused


def _given_up(turns: Sequence[Turn]) -> list[tuple[int, str]]:
    """The agent's own sentences about what did not work."""
    found = []
    for turn in turns:
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if turn.role != "assistant" or block.type != "text":
                continue
            for sentence in own_sentences(text):
                if len(sentence) <= MAX_SENTENCE and _gave_up(sentence) and _states(sentence):
                    found.append((turn.seq, f"({turn.seq}) {defused(one_line(sentence, MAX_SENTENCE))}"))
    return found


def _states(sentence: str) -> bool:
    return not sentence.endswith(("?", "？")) and is_statement(sentence) and is_whole(sentence)


_DONE = re.compile(r"[✓✔✅☑]|\[[xX]\]")
"""What an agent ticked: it worked, also if that was to take something back."""


def _gave_up(sentence: str) -> bool:
    match = None if _DONE.search(sentence) else _GAVE_UP.search(sentence)
    return match is not None and not _CONDITION.search(sentence[: match.start()])
