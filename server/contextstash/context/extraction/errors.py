"""Errors met in a session, each with whether and after which changes it went away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contextstash.context.extraction.actions import Action, bare_command
from contextstash.context.text.sanitize import one_line

COMMAND_SHOWN = 100
COMPLAINT_SHOWN = 220

_EDITING_TOOLS = frozenset({"Edit", "Write", "Read", "MultiEdit", "Glob", "Grep", "apply_patch"})
_ENTRY = re.compile(r"^(unresolved|resolved): `([^`]{1,300})` — (.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A command or tool call that failed; `fix` says what was changed before it went well again."""

    seq: int
    label: str
    complaint: str
    resolved: bool = False
    fix: str = ""

    @property
    def is_slip(self) -> bool:
        """Whether this was a misuse of the host's own editing tool rather than a fault in the work."""
        return self.label.split(" ", 1)[0] in _EDITING_TOOLS

    def line(self) -> str:
        state = "resolved" if self.resolved else "unresolved"
        fix = f" (went away after {self.fix})" if self.fix else ""
        return f"{state}: `{self.label}` — {self.complaint}{fix}"


def troubles(
    actions: Sequence[Action], changed: Mapping[int, Sequence[str]], before: Iterable[str] = ()
) -> list[Trouble]:
    """Failures in order, each label once with its newest state.

    A failure is resolved by a later success of the same command, or of the same runner on at least the same
    targets; of a tool on the same file. `changed` names the files changed, by message; `before` are entries
    of an earlier summary, which new successes may resolve.
    """
    open_ones: dict[str, Trouble] = {}
    closed: dict[str, Trouble] = {}
    for entry in map(_read, before):
        if entry:
            (closed if entry.resolved else open_ones)[entry.label] = entry
    for action in actions:
        label = _label(action)
        if action.failed:
            closed.pop(label, None)
            open_ones.pop(label, None)
            open_ones[label] = Trouble(action.seq, label, one_line(action.complaint, COMPLAINT_SHOWN))
        elif action.output is not None and not action.refused:
            for other in [known for known in open_ones if _covers(label, known)]:
                closed[other] = _resolved(open_ones.pop(other), action.seq, changed)
    return sorted([*closed.values(), *open_ones.values()], key=lambda trouble: trouble.seq)


def _read(entry: str) -> Trouble | None:
    match = _ENTRY.match(entry)
    if not match:
        return None
    return Trouble(-1, match.group(2), match.group(3), match.group(1) == "resolved")


def _resolved(trouble: Trouble, seq: int, changed: Mapping[int, Sequence[str]]) -> Trouble:
    between = [path for at, paths in changed.items() if trouble.seq <= at <= seq for path in paths]
    names = list(dict.fromkeys(path.rsplit("/", 1)[-1] for path in between))
    fix = f"changes to {', '.join(names[:4])}" if names else ""
    return Trouble(trouble.seq, trouble.label, trouble.complaint, True, fix)


def _label(action: Action) -> str:
    if action.command is not None:
        return one_line(bare_command(action.command).replace("`", "'"), COMMAND_SHOWN)
    return one_line(f"{action.tool} {action.argument}".replace("`", "'"), COMMAND_SHOWN)


def _covers(success: str, failure: str) -> bool:
    """Whether a success of one command shows that the failure of another is gone."""
    if success == failure:
        return True
    good, bad = success.split(), failure.split()
    runner = _runner(good)
    if not runner or runner != _runner(bad):
        return False
    done = [word for word in good[len(runner) :] if not word.startswith("-")]
    wanted = [word for word in bad[len(runner) :] if not word.startswith("-")]
    if not done or any(word in (".", "./...", "..") for word in done):
        return True
    return all(any(target.startswith(word.removesuffix("...")) for word in done) for target in wanted)


_RUNNERS = (
    ("python", "-m", "pytest"), ("python3", "-m", "pytest"), ("uv", "run", "pytest"), ("pytest",),
    ("python", "-m", "unittest"), ("go", "test"), ("go", "build"), ("go", "vet"), ("cargo", "test"),
    ("cargo", "build"), ("cargo", "check"), ("npm", "test"), ("npm", "run", "test"), ("npm", "run", "build"),
    ("npx", "tsc"), ("npx", "jest"), ("npx", "vitest"), ("pnpm", "test"), ("yarn", "test"), ("bun", "test"),
    ("make", "test"), ("tsc",), ("mypy",), ("ruff", "check"), ("golangci-lint", "run"), ("mvn", "test"),
    ("gradle", "test"), ("./gradlew", "test"), ("dotnet", "test"), ("rspec",), ("phpunit",),
)  # fmt: skip
"""Programs that test or build what their arguments name, and everything if these name nothing."""


def _runner(words: Sequence[str]) -> tuple[str, ...]:
    for runner in _RUNNERS:
        if tuple(words[: len(runner)]) == runner:
            return runner
    return ()
