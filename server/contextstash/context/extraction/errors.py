"""The errors of a session, with whether each was resolved, and after which changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contextstash.context.extraction.actions import Action, bare_command
from contextstash.context.text.sanitize import one_line

MAX_COMMAND_LENGTH = 100
MAX_ERROR_LENGTH = 220
"""In characters. Together, an error takes about three lines of a summary."""

_EDITING_TOOLS = frozenset({"Edit", "Write", "Read", "MultiEdit", "Glob", "Grep", "apply_patch"})
_ENTRY = re.compile(r"^(unresolved|resolved): `([^`]{1,300})` — (.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Failure:
    """A command or tool call that failed. `fix` describes what was changed before it succeeded again."""

    seq: int
    label: str
    error_message: str
    resolved: bool = False
    fix: str = ""

    @property
    def is_slip(self) -> bool:
        """Whether this was a misuse of the host's editing tool, not an error of the work."""
        return self.label.split(" ", 1)[0] in _EDITING_TOOLS

    @property
    def lasts(self) -> bool:
        """Whether a failure of long ago is still an error: a test or build that has not succeeded since."""
        return not self.resolved and bool(_runner(_program(self.label)))

    def line(self) -> str:
        state = "resolved" if self.resolved else "unresolved"
        fix = f" (resolved after {self.fix})" if self.fix else ""
        return f"{state}: `{self.label}` — {self.error_message}{fix}"


def failures(
    actions: Sequence[Action], changed: Mapping[int, Sequence[str]], before: Iterable[str] = ()
) -> list[Failure]:
    """The failures in order, each label once with its newest state.

    A failure is resolved by a later success of the same command, of the same runner on at least the same targets, or
    of the same tool on the same file. `changed` maps messages to the files that they changed. `before` are entries of
    an earlier summary. If there are newer actions, only its failed tests and builds are still errors, until they
    succeed: what was resolved before leaves, and any other command that failed was replaced by others.
    """
    open_ones: dict[str, Failure] = {}
    closed: dict[str, Failure] = {}
    lines = list(before)
    for place, line in enumerate(lines):
        entry = _read(line, place - len(lines))
        if entry and (not actions or entry.lasts):
            (closed if entry.resolved else open_ones)[entry.label] = entry
    for action in actions:
        label = label_of(action)
        if action.failed:
            closed.pop(label, None)
            open_ones.pop(label, None)
            open_ones[label] = Failure(action.seq, label, one_line(action.error_message, MAX_ERROR_LENGTH))
        elif action.output is not None and not action.refused:
            passed = [
                known for known, each in open_ones.items() if _covers(label, known) or _shows_passed(action, each)
            ]
            for other in passed:
                closed[other] = _resolved(open_ones.pop(other), action.seq, changed)
    return sorted([*closed.values(), *open_ones.values()], key=lambda failure: failure.seq)


def _read(entry: str, seq: int) -> Failure | None:
    """The failure in an entry of an earlier summary; `seq` is negative, because it precedes message 0."""
    match = _ENTRY.match(entry)
    if not match:
        return None
    return Failure(seq, match.group(2), match.group(3), match.group(1) == "resolved")


def _resolved(failure: Failure, seq: int, changed: Mapping[int, Sequence[str]]) -> Failure:
    between = [path for at, paths in changed.items() if failure.seq <= at <= seq for path in paths]
    names = list(dict.fromkeys(path.rsplit("/", 1)[-1] for path in between))
    fix = f"changes to {', '.join(names[:4])}" if names else ""
    return Failure(failure.seq, failure.label, failure.error_message, True, fix)


def label_of(action: Action) -> str:
    """A call in one line, by which its failure and its later success are matched."""
    if action.command is not None:
        return one_line(bare_command(action.command).replace("`", "'"), MAX_COMMAND_LENGTH)
    return one_line(f"{action.tool} {action.argument}".replace("`", "'"), MAX_COMMAND_LENGTH)


_FIRST_TEST = re.compile(r"; first: (\S+)")
_TEST_PARTS = re.compile(r"::|/| > ")


def _shows_passed(action: Action, failure: Failure) -> bool:
    """Whether a test run without failures names the test that had failed, whatever the command is."""
    failed = _FIRST_TEST.search(failure.error_message)
    if not failed or action.output is None or not action.tests or action.tests.failed or not action.tests.passed:
        return False
    name = _TEST_PARTS.split(failed.group(1))[-1].strip(".:,")
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", action.output.text)) if len(name) > 3 else False


def _covers(success: str, failure: str) -> bool:
    """Whether the success of one command shows that the failure of another is resolved."""
    if success == failure or failure.rsplit(" && ", 1)[-1] in success.split(" && "):
        return True
    good, bad = _program(success), _program(failure)
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
"""Programs that test or build what their arguments name, or everything if there are none."""


_BEFORE_PROGRAM = re.compile(r"(?:(?:env|sudo|time|command|timeout(?: -\S+)* \S+|\w+=(?:'[^']*'|\"[^\"]*\"|\S*)) )+")


def _program(label: str) -> list[str]:
    """The words of a command without what only sets its environment: `env GOCACHE=/tmp go test` is `go test`."""
    return _BEFORE_PROGRAM.sub("", label, count=1).split() if _BEFORE_PROGRAM.match(label) else label.split()


def _runner(words: Sequence[str]) -> tuple[str, ...]:
    for runner in _RUNNERS:
        if tuple(words[: len(runner)]) == runner:
            return runner
    return ()
