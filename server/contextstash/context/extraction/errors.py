"""The errors of a session that still stand, with what was changed since."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.context.extraction.actions import Action, as_run, bare_command
from contextstash.context.text.sanitize import one_line

MAX_COMMAND_LENGTH = 160
MAX_ERROR_LENGTH = 220
"""In characters. Together, an error takes about three lines of a summary."""

_FILE_TOOLS = frozenset({"Edit", "Write", "Read", "MultiEdit", "Glob", "Grep", "apply_patch"})
"""A misuse of one of the host's tools for files does not count as an error of the work."""

_ENTRY = re.compile(r"^failed(?: at (\d{1,12}))?: `([^`]{1,300})` — (.*?)(?: \(changed since: ([^()]*)\))?$", re.DOTALL)
"""A line of `Failure.line`."""

MAX_CHANGED = 4
"""Files that an error names as changed since, the newest: as many as fit one line."""

MAX_LATER_CALLS = 4
"""Calls after which a failed command, except a test or build, stops being an error: others have replaced it. Read on
recorded sessions: with 12, most of those told were got round by another command. The last state shows it a while
longer, with what followed it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A command or tool call that failed in message `seq`. If an earlier summary tells it, `seq` is negative, and `at`
    is the message. `since` names what was changed after it; `tests` are the tests that failed in it, as far as they are
    known; `place` is its position among the calls."""

    seq: int
    label: str
    error_message: str
    at: str = ""
    since: tuple[str, ...] = ()
    tests: frozenset[str] = frozenset()
    place: int = 0

    @property
    def key(self) -> str:
        """By which a later run of the same command is recognized."""
        return bare_command(self.label)

    @property
    def lasts(self) -> bool:
        """Whether a failure of long ago is still an error: a test or build that ran."""
        runners = [runner for part in self.key.split(" && ") if (runner := _runner(_program(part)))]
        missing = _NOT_THERE.search(self.error_message)
        return bool(runners) and not (missing and missing.group(1) in (None, runners[-1][-1]))

    def line(self) -> str:
        told = f" at {self.at}" if self.at else ""
        since = f" (changed since: {', '.join(self.since)})" if self.since else ""
        return f"failed{told}: `{self.label}` — {self.error_message}{since}"


def failures(
    actions: Sequence[Action], changed: Mapping[int, Sequence[str]], before: Iterable[str] = ()
) -> list[Failure]:
    """The failures that still stand, in order, each label once.

    A failure leaves with a later success of the same command, of the same runner on at least the same targets, of
    the same program with the same first argument unless it is a test or build, or of a run that shows that its tests
    pass. A later run of at least the same tests that fails takes its place. `changed` maps messages to the files that
    they changed. `before` are entries of an earlier summary. If there are newer actions, only its failed tests and
    builds are still errors, until they succeed: any other command that failed was replaced by others.
    """
    known = _Known()
    lines = list(before)
    for place, line in enumerate(lines):
        entry = _read(line, place - len(lines))
        if entry and (not actions or entry.lasts):
            known.open[entry.key] = entry
    for place, action in enumerate(actions):
        if action.output is not None and not action.refused and not action.output.running:
            known.take(action, place)
    standing = [
        each
        for each in known.open.values()
        if each.lasts or not actions or len(actions) - each.place <= MAX_LATER_CALLS
    ]
    standing = [replace(each, since=file_names([*each.since, *changes_from(changed, each.seq)])) for each in standing]
    return sorted(standing, key=lambda failure: failure.seq)


class _Known:
    """The failures that are open up to some call, by their keys."""

    def __init__(self) -> None:
        self.open: dict[str, Failure] = {}

    def take(self, action: Action, place: int) -> None:
        """The next call that ended."""
        label = label_of(action)
        key = bare_command(label)
        if not action.failed:
            for failure in [*self.open.values()]:
                self._passed(failure, action, key)
        elif not LOOKING.match(key) and label.split(" ", 1)[0] not in _FILE_TOOLS:
            for name in [name for name, failure in self.open.items() if _covers(key, name) and failure.lasts]:
                del self.open[name]
            self.open.pop(key, None)
            message = one_line(action.error_message, MAX_ERROR_LENGTH)
            tests = frozenset(action.tests.names if action.tests else ())
            self.open[key] = Failure(action.seq, label, message, at=str(action.seq), tests=tests, place=place)

    def _passed(self, failure: Failure, action: Action, key: str) -> None:
        """What a call without a failure says about an open one."""
        left = frozenset(name for name in _failed_tests(failure) if not _shows_passed(action, key, name))
        if _covers(key, failure.key) or (not left and _failed_tests(failure)):
            del self.open[failure.key]
        elif failure.tests and left != failure.tests:
            self.open[failure.key] = replace(failure, tests=left)


def _read(entry: str, seq: int) -> Failure | None:
    """The failure in an entry of an earlier summary; `seq` is negative, because it precedes message 0."""
    match = _ENTRY.match(entry)
    if not match:
        return None
    at, label, message, since = match.groups()
    return Failure(seq, label, message, at=at or "", since=tuple(since.split(", ")) if since else ())


def changes_from(changed: Mapping[int, Sequence[str]], first: int, last: float = math.inf) -> list[str]:
    """The paths that were changed in these messages."""
    return [path for at, paths in changed.items() if first <= at <= last for path in paths]


def file_names(paths: Sequence[str]) -> tuple[str, ...]:
    """The names of the files, the newest."""
    names = [path.rsplit("/", 1)[-1] for path in paths]
    return tuple(reversed([*dict.fromkeys(reversed(names))][:MAX_CHANGED]))


def label_of(action: Action) -> str:
    """A call in one line: a command as it was run, so that it can be run again."""
    call = f"{action.tool} {action.argument}" if action.command is None else as_run(action.command)
    return one_line(call.replace("`", "'"), MAX_COMMAND_LENGTH)


_NOT_THERE = re.compile(r"exit 127\b|command not found|No module named '?(\w+)")
"""What is said of a program that is not installed. A test may lack a module, too, but not the one that runs it."""

LOOKING = re.compile(
    r"^(?:rg|e?grep|ls|cat|find|sed -n|head|tail|wc|which|git (?:log|show|diff|status|grep|check-ignore)|test)\b"
)
"""Commands that only look at something: that it is missing does not stop the work."""

_ONE_FAILED = re.compile(r"(?:^|\D)1 (?:failed|error)\b[^;]*; first: (\S+)")
_TEST_PARTS = re.compile(r"::|/| > ")
MIN_TEST_NAME = 4
"""Characters. A shorter name of a test is found in any output."""


def _failed_tests(failure: Failure) -> frozenset[str]:
    """The tests that failed; of an entry of an earlier summary, only if it was one."""
    only = None if failure.tests else _ONE_FAILED.search(failure.error_message)
    return frozenset({only.group(1).strip(".:,")}) if only else failure.tests


def _shows_passed(action: Action, label: str, test: str) -> bool:
    """Whether a test run without failures ran a test: its command or its output names it, or its command selects it."""
    if action.output is None or not action.tests or action.tests.failed:
        return False
    name = _TEST_PARTS.split(test)[-1]
    if len(name) < MIN_TEST_NAME:
        return False
    named = rf"(?<!\w){re.escape(name)}(?!\w)"
    if re.search(named, label) or re.search(named, action.output.text):
        return True
    return any(chosen.strip("'\"^$") in name for part in label.split(" && ") for chosen in _read_run(part).filters)


def _covers(success: str, failure: str) -> bool:
    """Whether the success of one command shows that the failure of another is resolved."""
    if success == failure or failure.rsplit(" && ", 1)[-1] in success.split(" && "):
        return True
    runs = [_read_run(part) for part in success.split(" && ")]
    failed = [run for part in failure.split(" && ") if (run := _read_run(part)).runner]
    if failed:
        return all(any(run.covers(each) for run in runs) for each in failed)
    words = _program(failure.rsplit(" && ", 1)[-1])[:2]
    return len(words) == 2 and any(_program(part)[:2] == words for part in success.split(" && "))


_RUNNERS = (
    ("python", "-m", "pytest"), ("python3", "-m", "pytest"), ("uv", "run", "pytest"), ("pytest",),
    ("python", "-m", "unittest"), ("go", "test"), ("go", "build"), ("go", "vet"), ("cargo", "test"),
    ("cargo", "build"), ("cargo", "check"), ("npm", "test"), ("npm", "run", "test"), ("npm", "run", "build"),
    ("npx", "tsc"), ("npx", "jest"), ("npx", "vitest"), ("pnpm", "test"), ("yarn", "test"), ("bun", "test"),
    ("tsc",), ("mypy",), ("ruff", "check"), ("golangci-lint", "run"), ("mvn", "test"),
    ("gradle", "test"), ("./gradlew", "test"), ("dotnet", "test"), ("rspec",), ("phpunit",),
)  # fmt: skip
"""Programs that test or build what their arguments name, or everything if there are none."""

_OF_ALL = (("mise", "run", "test"), ("make", "test"), ("just", "test"), ("task", "test"), ("tox",), ("nox",))
"""Tasks that run a project's tests with whatever runs them."""

_FILTERS = frozenset({"-run", "--run", "-k", "-m", "-t", "-g", "--grep", "--filter", "--testNamePattern", "--tests"})
"""Options of these programs that select tests; the word after them does not name a target."""

_VARIANT = re.compile(r"--?(?:tags|features|tests-dir|project|workspace|package|p)(?:=|$)")
"""Options with which other tests run."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of tests or of a build: the program, what it is to test, which tests are selected."""

    runner: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    variant: tuple[str, ...] = ()

    def covers(self, other: _Run) -> bool:
        """Whether it runs at least what the other one runs."""
        if self.runner in _OF_ALL and not self.targets and "test" in other.runner[-1] and not other.variant:
            return True
        if not self.runner or self.runner != other.runner or self.variant != other.variant:
            return False
        if self.filters and self.filters != other.filters:
            return False
        if not self.targets or any(word in (".", "./...", "..") for word in self.targets):
            return True
        return bool(other.targets) and all(
            any(target.startswith(word.removesuffix("...")) for word in self.targets) for target in other.targets
        )


def _read_run(command: str) -> _Run:
    words = _program(command)
    runner = _runner(words)
    if not runner:
        return _Run()
    targets, filters, variant = list[str](), list[str](), list[str]()
    rest = iter(words[len(runner) :])
    for word in rest:
        name, _, value = word.partition("=")
        if name in _FILTERS:
            filters.append(value or next(rest, ""))
        elif _VARIANT.match(word):
            variant.append(word)
        elif not word.startswith(("-", "2>", ">", "|")):
            targets.append(word)
    return _Run(runner, tuple(targets), tuple(filters), tuple(variant))


_BEFORE_PROGRAM = re.compile(r"(?:(?:env|sudo|time|command|timeout(?: -\S+)* \S+|\w+=(?:'[^']*'|\"[^\"]*\"|\S*)) )+")


def _program(label: str) -> list[str]:
    """The words of a command without what only sets its environment: `env GOCACHE=/tmp go test` is `go test`."""
    label = label.strip()
    return _BEFORE_PROGRAM.sub("", label, count=1).split() if _BEFORE_PROGRAM.match(label) else label.split()


def _runner(words: Sequence[str]) -> tuple[str, ...]:
    for runner in (*_RUNNERS, *_OF_ALL):
        if tuple(words[: len(runner)]) == runner:
            return runner
    return ()
