"""The state of a session: the fold of its events. Summaries, hand-offs and audits are queries on it.

state = fold(turns)                    # of a whole session
state = fold(newer_turns, state)       # the same as of all turns at once, and costs what is new
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from contextstash.events import kinds
from contextstash.events.call_lines import call_line, outcome_line
from contextstash.events.calls import is_dialog
from contextstash.events.files import STAGED
from contextstash.events.kinds import Asked, FileUse
from contextstash.events.names import NamesInUse, name_key, path_key
from contextstash.events.plans import NEW, is_plan_call
from contextstash.events.read import Event, Ran, events_of
from contextstash.events.requests import SKILL
from contextstash.events.revisions import takes_back_last
from contextstash.events.sentences import own_sentences
from contextstash.events.shell import bare_command, runner_of
from contextstash.events.turns import Turn
from contextstash.safety.imitations import defused
from contextstash.safety.sanitize import clip, one_line

MAX_CALLS = 6
"""Newest calls that are told with what came of them."""

MAX_OPEN = 4
"""Requests that are under way at once, the newest. With more, the agent never says that it ends a turn."""

MAX_LINES = 60
"""Entries that are known of each list that grows with the session, the newest: a summary shows fewer."""

MAX_FILES = 400
"""Files that are known, those that were used last. A summary names about a hundred."""

MAX_QUOTED = 600
"""Quoted texts that are known, those that were written last."""

MAX_HOMES, MAX_SHOWN = 40, 120
"""Files whose names are known as those that were shown of them, and names of each."""

MAX_NEAR = 20
"""Files whose last two parts of the path are the same; with more, relative paths are not compared with theirs."""

MAX_TEXT = 6_000
"""Characters of a text that is known: more than a summary shows of it."""

MAX_REQUEST = 20_000
"""Characters of a request that are known: a rule may stand below a long report."""

MAX_CLOSING = 200
"""Characters of what is told of the text with which the agent ended a turn: two lines."""

MIN_OPENING = 60
"""Characters. A shorter first line, such as "Here is the result:", says nothing without the next one."""

MIN_INDEXED = 400
"""Outputs with fewer characters are not listed by handle: their line already says most of it."""

MAX_NAMES = 6
"""Names of a changed file, the newest ones: as many as fit one line."""

MAX_SINCE = 4
"""Files that are told as changed since a run, the newest: as many as fit one line."""


@dataclass(slots=True)
class FileState:
    """What was done to a file, with the names that its changes affect, and the message of the last use."""

    verbs: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    seq: int = -1

    @property
    def changed(self) -> bool:
        return any(verb not in ("read", "run") for verb in self.verbs)

    @property
    def deleted(self) -> bool:
        return self.verbs == ["deleted"]


@dataclass(slots=True)
class Run:
    """A run of tests, a check or a build, with the files that were changed after it. `told` is the error of one that
    failed, or how many tests passed."""

    seq: int
    line: str
    told: str
    since: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Told:
    """A text of message `seq`."""

    seq: int
    text: str


@dataclass
class State:
    """Where a session stands after message `seq`.

    `files` are those that were used, the last one last. `done` are commits and what the agent said at the end of its
    turns, `said` is what it said last. `asked` and `decided` are the user's words, `open` those requests on which the
    agent has not ended its turn, and `skill` the one that it carries out. `plan` has the tasks of the newest plan.
    `failed` are the runs that failed last, by their programs, `passed` is the newest test run if its tests passed.
    `calls` and `outputs` are the newest calls, and large outputs by their handles.
    """

    seq: int = -1
    files: dict[str, FileState] = field(default_factory=dict)
    done: list[Told] = field(default_factory=list)
    said: Told | None = None
    earlier: Told | None = None
    asked: list[Asked] = field(default_factory=list)
    decided: list[Told] = field(default_factory=list)
    open: list[Asked] = field(default_factory=list)
    ended: bool = True
    decision: Told | None = None
    skill: Asked | None = None
    plan: dict[str, tuple[str, str]] = field(default_factory=dict)
    plan_seq: int = -1
    since_plan: list[int] = field(default_factory=list)
    calls_since_plan: int = 0
    failed: dict[str, Run] = field(default_factory=dict)
    passed: Run | None = None
    calls: list[Told] = field(default_factory=list)
    outputs: dict[str, Told] = field(default_factory=dict)
    names: NamesInUse = field(default_factory=NamesInUse)
    homes: dict[str, list[str]] = field(default_factory=dict)
    quoted: dict[str, list[int]] = field(default_factory=dict)

    @property
    def changed(self) -> dict[str, FileState]:
        """The changed files that are there."""
        return {path: file for path, file in self.files.items() if file.changed and not file.deleted}


def fold(turns: Sequence[Turn], before: State | None = None) -> State:
    """The state after these turns, which follow those of `before`. That one stays as it is."""
    state = State() if before is None else deepcopy(before)
    folding = _Fold(state)
    for event in events_of(turns):
        folding.add(event)
    state.seq = max(state.seq, turns[-1].seq if turns else -1)
    folding.finish()
    return state


class _Fold:
    """Adds events to a state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._runs: list[Ran] = []
        self._large: dict[tuple[str, str], Ran] = {}
        self._near: dict[str, dict[str, None]] = {}
        for path in state.files:
            self._near.setdefault(path_key(path), {})[path] = None
        self._handlers: Mapping[type, Callable[[Any], None]] = {
            kinds.Asked: self._asked, kinds.Decided: self._decided, kinds.CarriedOver: self._carried,
            kinds.Said: self._said, kinds.Used: self._used, Ran: self._ran, kinds.Planned: self._planned,
            kinds.Committed: self._committed, kinds.Named: self._named, kinds.Quoted: self._quoted,
        }  # fmt: skip

    def add(self, event: Event) -> None:
        """The next event."""
        self._handlers[type(event)](event)

    def finish(self) -> None:
        """Write the lines of the newest calls, and leave out what is too old."""
        state = self._state
        told = [Told(ran.seq, outcome_line(ran.call, ran.uses)) for ran in self._runs[-2 * MAX_CALLS :]]
        # Of equal lines, such as several changes of one file, the newest.
        state.calls = list({each.text: each for each in [*state.calls, *told]}.values())[-MAX_CALLS:]
        for ran in [*self._large.values()][-MAX_LINES:]:
            state.outputs.pop(ran.call.handle or "", None)
            state.outputs[ran.call.handle or ""] = Told(ran.seq, outcome_line(ran.call, ran.uses))
        for known, most in (
            (state.outputs, MAX_LINES),
            (state.files, MAX_FILES),
            (state.quoted, MAX_QUOTED),
            (state.homes, MAX_HOMES),
        ):
            for key in [*known][: max(0, len(known) - most)]:
                del known[key]
        del state.done[:-MAX_LINES], state.decided[:-MAX_LINES], state.asked[1 : 1 - MAX_LINES]
        state.names.shorten(state.seq)

    def _asked(self, event: Asked) -> None:
        state = self._state
        if event.command.startswith(SKILL):
            state.skill = Asked(event.seq, event.text[:MAX_TEXT], "", event.command)
            return
        request = Asked(event.seq, event.text[:MAX_REQUEST], event.said[-MAX_TEXT:], event.command)
        self._end_turn()
        if takes_back_last(event.text):
            state.open = []
        state.open = [*state.open, request][-MAX_OPEN:]
        state.asked.append(request)
        state.since_plan.append(event.seq)
        state.ended, state.decision, state.skill = False, None, None

    def _decided(self, event: kinds.Decided) -> None:
        state = self._state
        self._end_turn()
        told = Told(event.seq, event.text)
        state.decided.append(told)
        state.ended, state.decision = False, told

    def _carried(self, event: kinds.CarriedOver) -> None:
        self._state.earlier = Told(event.seq, defused(event.text))

    def _said(self, event: kinds.Said) -> None:
        state, text = self._state, event.text
        if len(text) > 2 * MAX_TEXT:
            text = f"{text[:MAX_TEXT]}\n[…]\n{text[-MAX_TEXT:]}"
        state.said = Told(event.seq, text)
        state.ended = event.ends
        if event.ends:
            state.skill = None

    def _end_turn(self) -> None:
        """The user says something: what the agent said last ended its turn, if no call came after it."""
        state = self._state
        if state.ended and state.said is not None:
            state.open = []
            if all(each.seq != state.said.seq for each in state.done[-1:]):
                state.done.append(Told(state.said.seq, closing(state.said.text)))

    def _committed(self, event: kinds.Committed) -> None:
        done = self._state.done
        last = next((each for each in reversed(done) if each.text.startswith("committed")), None)
        if event.amends and last is not None:
            done.remove(last)
        done.append(Told(event.seq, event.text))

    def _planned(self, event: kinds.Planned) -> None:
        state = self._state
        if event.whole:
            state.plan = dict(event.entries)
        for number, (now, text) in event.entries.items() if not event.whole else ():
            if number == NEW or (number not in state.plan and text and now):
                number = str(len(state.plan) + 1) if number == NEW else number
                state.plan[number] = (now, f"#{number}: {text}")  # the agent needs the number to update the task
            elif number in state.plan:
                before, known = state.plan[number]
                state.plan[number] = (now or before, f"#{number}: {text}" if text else known)
        state.plan_seq, state.calls_since_plan, state.since_plan = event.seq, 0, []

    def _named(self, event: kinds.Named) -> None:
        names, homes = self._state.names, self._state.homes
        if not event.file:
            names.add(event.seq, event.names, by_agent=event.by_agent)
            return
        home = path_key(event.file)
        known = dict.fromkeys([*map(name_key, event.names), *homes.pop(home, ())])
        homes[home] = [*known][:MAX_SHOWN]
        if any(path_key(path) == home for path in self._state.changed):
            names.own |= set(homes[home])

    def _quoted(self, event: kinds.Quoted) -> None:
        for text in event.texts:
            uses = self._state.quoted.pop(text, [])
            self._state.quoted[text] = [*uses, event.seq][-2:] if event.seq not in uses else uses

    def _ran(self, event: Ran) -> None:
        state, call = self._state, event.call
        state.calls_since_plan += 1
        state.ended = False
        if not is_plan_call(call) and not is_dialog(call.tool):
            self._runs.append(event)
        if call.handle and call.output is not None and len(call.output.text) >= MIN_INDEXED:
            self._large.pop((call.tool, call.argument), None)
            self._large[call.tool, call.argument] = event
        command = call.command
        if command is None or call.output is None or call.refused or call.output.running:
            return
        runner = runner_of(command)
        if not runner and call.tests:
            runner = " ".join(bare_command(command).split()[:2])
        if not runner:
            return
        if call.failed:
            state.failed[runner] = Run(call.seq, call_line(call), one_line(call.error_message, 220))
        else:
            state.failed.pop(runner, None)
        if call.tests:
            passed = f"{call.tests.passed} passed" if call.tests.passed else ""
            state.passed = None if call.failed else Run(call.seq, call_line(call), passed)

    def _used(self, event: kinds.Used) -> None:
        state, use = self._state, event.use
        path = self._known_path(use.path)
        if use.verb == "renamed" and use.was:
            state.files.pop(self._known_path(use.was), None)
        file = state.files.pop(path, FileState())
        if use.names == STAGED and file.changed:
            state.files[path] = file
            return
        _touch(file, use, event.seq)
        state.files[path] = file
        if use.verb in ("read", "run"):
            return
        state.names.own |= set(state.homes.get(path_key(path), ()))
        name = path.rpartition("/")[2]
        for run in [*state.failed.values(), *filter(None, [state.passed])]:
            run.since = [*[each for each in run.since if each != name][1 - MAX_SINCE :], name]

    def _known_path(self, path: str) -> str:
        """The path by which a file is known: the longest of those of which one is the end of the other, such as a
        relative one and an absolute one."""
        path = path.removeprefix("./")
        near = self._near.setdefault(path_key(path), {})
        same = [known for known in near if is_end_of(path, known) or is_end_of(known, path)]
        if len(same) != 1 or len(near) > MAX_NEAR:
            near[path] = None
            return path
        if len(path) > len(same[0]):
            del near[same[0]]
            near[path] = None
            if same[0] in self._state.files:
                self._state.files[path] = self._state.files.pop(same[0])
        return max(path, same[0], key=len)


def is_end_of(path: str, whole: str) -> bool:
    """Whether a path is the end of another one, or the same."""
    return path == whole or whole.endswith(f"/{path}")


def _touch(file: FileState, use: FileUse, seq: int) -> None:
    if use.verb == "deleted":
        file.verbs, file.names = [], []
    elif "deleted" in file.verbs:
        file.verbs.remove("deleted")
    # A file that was used before was there before: writing it as a whole is a change of it.
    verb = "edited" if use.verb == "created" and file.verbs and "created" not in file.verbs else use.verb
    if verb not in file.verbs:
        file.verbs.append(verb)
    names = (f"{'was' if use.verb == 'renamed' else 'copy of'} {use.was}",) if use.was else use.names
    names = () if names == STAGED else names
    file.names = [name for name in file.names if name not in names] + list(names)
    file.names = [one_line(name, 200) for name in file.names[-MAX_NAMES:]]
    file.seq = seq


_OF_USER = re.compile(
    r"\b(?:user|human)(?:['’]s)?\b[^.;]{0,30}\b(?:agree|approv|confirm|decid|decision|request|allow|answer|permission)"
    r"|\byou(?:r|['’]ve| have)?\b[^.;]{0,30}\b(?:told|agreed|approved|confirmed|decided|allowed|instruct|permission)"
    r"|\bdecided with the user\b|用户",
    re.IGNORECASE,
)
"""What the agent says of the user's decisions. Those stand in the user's own words, and nothing else is one."""


def closing(text: str) -> str:
    """The first of the agent's own sentences with which it ended a turn, as many as make a line or two."""
    told = ""
    for sentence in own_sentences(text):
        if _OF_USER.search(sentence):
            continue
        if told and len(told) + len(sentence) >= MAX_CLOSING:
            break
        told = f"{told} {sentence}".strip()
        if len(told) >= MIN_OPENING and not told.endswith(":"):
            break
    return clip(defused(one_line(told, len(told) + 1)), MAX_CLOSING)
