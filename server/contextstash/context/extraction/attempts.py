"""What was tried and failed: changes after which a command still failed, and what the agent itself gave up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.errors import label_of
from contextstash.context.extraction.statements import is_statement
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.imitations import defused
from contextstash.context.text.sanitize import one_line
from contextstash.context.text.sentences import own_sentences

MAX_FILES = 3
"""Changed files that an attempt names, the newest: as many as fit one line."""

MAX_REASON = 200
MAX_SENTENCE = 320
"""In characters: together an attempt takes about three lines of a summary."""

_GAVE_UP = re.compile(
    r"\b(?:(?:did|(?:approach|attempt|idea|workaround)\b[^.]{0,40}\b(?:does|would|will))(?:n['’]t| not)"
    r" (?:work|help|fix|solve)|still (?:fails?|failed|failing|breaks?)"
    r"|no effect|revert(?:ed|ing)?|made (?:it|things) worse|dead end|wrong approach|rolled back|backed out)\b"
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
    """The changes between two failures of the same command: they were to mend it, and did not."""
    found = []
    failed_at: dict[str, int] = {}
    for action in actions:
        if action.output is None or action.refused:
            continue
        label = label_of(action)
        if not action.failed:
            failed_at.pop(label, None)
            continue
        before = failed_at.get(label)
        failed_at[label] = action.seq
        between = [
            path for seq, paths in changed.items() if before is not None and before < seq < action.seq for path in paths
        ]
        if between:
            names = ", ".join(f"`{path.rsplit('/', 1)[-1]}`" for path in list(dict.fromkeys(between))[-MAX_FILES:])
            reason = one_line(action.error_message, MAX_REASON)
            found.append((action.seq, f"({action.seq}) changed {names}; then `{label}` still failed: {reason}"))
    return found


def _given_up(turns: Sequence[Turn]) -> list[tuple[int, str]]:
    """The agent's own sentences about what did not work."""
    found = []
    for turn in turns:
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if turn.role != "assistant" or block.type != "text":
                continue
            for sentence in own_sentences(text):
                if len(sentence) <= MAX_SENTENCE and _gave_up(sentence) and is_statement(sentence):
                    found.append((turn.seq, f"({turn.seq}) {defused(one_line(sentence, MAX_SENTENCE))}"))
    return found


def _gave_up(sentence: str) -> bool:
    match = _GAVE_UP.search(sentence)
    return match is not None and not _CONDITION.search(sentence[: match.start()])
