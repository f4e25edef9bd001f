"""The state of a session: the fold of its messages, with the agent's plan. Summaries and hand-offs are queries on it.

state = fold(turns)                    # of a whole session
state = fold(newer_turns, state)       # the same as of all turns at once, and costs what is new
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from itertools import takewhile
from typing import Any

from contextstash.events.calls import (
    COMMITTED,
    TESTS_NOTHING,
    Call,
    bare_command,
    call_line,
    calls_of,
    change_line,
    commits_of,
    failures_of,
    is_dialog,
    moves_of,
    outcome_line,
    runner_of,
    stat_of,
    work_tree_of,
)
from contextstash.events.files import KnownPaths, file_uses, is_same_file
from contextstash.events.names import MAX_SCANNED, NamesInUse, names_of, path_key
from contextstash.events.sentences import ANNOUNCES, conclusion, note_of, own_sentences
from contextstash.events.turns import FileUse, Said, Told, Turn
from contextstash.events.words import (
    CARRIED_OVER,
    COMMAND_OUTPUT,
    INTERRUPTION,
    PROGRAM,
    SKILL,
    Newest,
    UserWords,
    answered,
    client_rules,
    command_of,
    command_text,
    decisions_of,
    not_loaded,
    skill_of,
    user_rules,
    waits_for_words,
    without_host_text,
    words_handed_over,
)
from contextstash.outputs.digest import digest_output
from contextstash.safety.sanitize import defused, one_line

MAX_CALLS, MAX_RUNNING, MAX_OPEN = 6, 16, 4
"""Newest calls that are told with what came of them, commands that go on and whose output is waited for, and requests
that are under way at once: with more, the agent never says that it ends a turn."""

MAX_LINES, MAX_NOTES, MAX_WORDS = 60, 8, 200
"""Entries that are known, the newest, of commits and ends of turns, of what the agent said between its calls, and of
the user's words beside the first and beside as many with a rule. A summary and a hand-off show fewer."""

MAX_FILES, MAX_QUOTED = 400, 600
"""Files and quoted texts that are known, those that were used last. A summary names about a hundred files."""

MAX_TEXT, MAX_REQUEST = 6_000, 20_000
"""Characters that are known of a text, more than a summary shows of it; and of the beginning and of the end of a
request, in which a rule may stand below a long report."""

MIN_HANDLED, MAX_FAILED = 400, 900
"""Characters: the handle of a shorter output is not told; and what is told of a run that failed, some eight places with
their reasons."""

MAX_ANNOUNCED, MIN_WITHIN, MAX_SINCE = 3, 2, 4
"""Sentences of a message that only says what the agent does next: an answer that is as short seldom says that, too.
Files that say in which folder the session works: one alone may be a copy elsewhere. Files that are told as changed
since a run, as many as fit one line; one more is kept, so that the line does not read as complete if it is not."""

_TASK_STATES = {
    "completed": "done", "done": "done", "in_progress": "doing", "cancelled": "done", "deleted": "gone",
}  # fmt: skip
_TEXT_KEYS = ("content", "step", "subject", "title", "task", "text", "description")
_LIST_KEYS = ("todos", "plan", "items", "tasks", "todo_list")
PLAN_TOOLS = re.compile(r"todo|plan|task_?(?:list|create|update|get)|checklist", re.IGNORECASE)
_TASK_CREATED = re.compile(r"[Tt]ask #?(\d{1,6})")
_TASK_LISTED = re.compile(r"^#(\d{1,6}) \[(\w+)\] ([^\n]+)$", re.MULTILINE)
"""What Claude Code's TaskCreate says of a new task, and its TaskList of each."""


@dataclass(slots=True)
class FileState:
    """What was done to a file but reading it, what its newest change put in (see `change_line`), the path that it was
    renamed from, and the message of its last use."""

    verbs: list[str] = field(default_factory=list)
    line: str = ""
    was: str = ""
    seq: int = -1

    @property
    def changed(self) -> bool:
        return any(verb != "run" for verb in self.verbs)

    @property
    def deleted(self) -> bool:
        return self.verbs == ["deleted"]

    @property
    def put_back(self) -> bool:
        """Whether Git took its changes away."""
        return "restored" in self.verbs

    def use(self, use: FileUse, seq: int) -> None:
        """Take over a use of the file."""
        was_there = self.seq >= 0 and not self.deleted
        self.seq = seq
        if use.verb == "read" or (use.verb == "git add" and self.changed):
            return
        if use.verb in ("deleted", "restored") or (use.changes and (self.put_back or self.deleted)):
            self.verbs, self.was = [], ""
        # A file that was used before was there before: writing it as a whole is a change of it.
        verb = "edited" if use.verb == "created" and was_there and "created" not in self.verbs else use.verb
        self.verbs += [verb] * (verb not in self.verbs)
        self.line = change_line(use) if use.changes else self.line
        self.was = f"was {one_line(use.was, 200)}" if use.was else self.was


@dataclass(slots=True)
class Run:
    """A run of tests, a check or a build, or a commit, with the files that were changed after it. `told` is the error
    of one that failed, how many tests passed or what else it printed, or which commit; `whole` is whether it was a run
    of everything, `tests` whether it ran tests."""

    seq: int
    line: str
    told: str
    since: list[str] = field(default_factory=list)
    whole: bool = False
    tests: bool = False


IN_DETAIL = " — "
"""Between the name of a task and what is to be done."""


@dataclass(slots=True)
class Plan:
    """The tasks of the newest plan by their numbers, as the call in message `seq` left them, each with its state,
    "todo", "doing", "done" or "gone", and its text."""

    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    seq: int = -1

    def take(self, call: Call) -> None:
        """Take over what a call says of the plan, if it says anything."""
        if call.is_error or call.refused:
            return
        tool, arguments = call.tool.lower().replace("_", ""), call.arguments
        state = _TASK_STATES.get(str(arguments.get("status")).lower(), "")
        subject = arguments.get("subject")
        text = subject if isinstance(subject, str) else ""
        if tool == "taskcreate" and text:  # Claude Code tells single tasks
            created = _TASK_CREATED.search(call.output.text[:400]) if call.output else None
            what = arguments.get("description")
            self._change(created[1] if created else "", "todo", f"{text}{IN_DETAIL}{what}" if what else text)
        elif tool == "taskupdate":
            self._change(str(arguments.get("taskId", "")), state, text)
        elif tool == "tasklist" and call.output and (listed := _TASK_LISTED.findall(call.output.text)):
            for number, status, text in listed:
                self._change(number, _TASK_STATES.get(status, "todo"), text)
        elif PLAN_TOOLS.search(call.tool) and (tasks := _tasks_in(arguments)) is not None:
            self.tasks = tasks
        else:
            return
        self.seq = call.seq

    def _change(self, number: str, state: str, text: str) -> None:
        if number in self.tasks:
            before, known = self.tasks[number]
            same = not text or known.startswith(f"#{number}: {text}{IN_DETAIL}")
            self.tasks[number] = (state or before, known if same else f"#{number}: {text}")
        elif text and state:
            number = number or str(len(self.tasks) + 1)
            self.tasks[number] = (state, f"#{number}: {text}")  # the agent needs the number to update the task


def _tasks_in(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]] | None:
    items = next((items for key in _LIST_KEYS if isinstance(items := arguments.get(key), list)), None)
    if items is None:
        return None
    found: dict[str, tuple[str, str]] = {}
    for place, item in enumerate(items):
        given = item if isinstance(item, dict) else {"text": item}
        text = next((given[key] for key in _TEXT_KEYS if isinstance(given.get(key), str)), "")
        if text:
            found[str(place)] = (_TASK_STATES.get(str(given.get("status", "")).lower(), "todo"), text)
    return found


@dataclass
class State:
    """Where a session stands after message `seq`.

    `files` are those that were used, the one used last is the last. `done` are commits and what the agent said at
    the end of its turns, `said` is what it said last, `said_before` what before that, `notes` what it said before
    that since the end of a turn, `newest` its newest message, `earlier` a client's summary. `words` are the user's,
    `command` the one whose text the client puts into its next message, `skill` the one that the agent carries out.
    `failed` are the runs that failed last, by their programs, `passed` the newest ones that did not, unless the
    same command failed since, the last is the newest. `commit` is the newest one that a call of the session made,
    `tree` and `stat` what Git said since of the work tree and of the extent of a change, `pushed` the message of
    its newest push. `calls` are the newest calls, `running` the commands that went on, by their processes. `quoted`
    counts the quoted wordings and the numbers that the agent wrote.
    """

    seq: int = -1
    files: dict[str, FileState] = field(default_factory=dict)
    done: list[Told] = field(default_factory=list)
    said: Told | None = None
    said_before: Told | None = None
    notes: list[Told] = field(default_factory=list)
    newest: Newest = field(default_factory=Newest)
    earlier: Told | None = None
    words: UserWords = field(default_factory=UserWords)
    skill: Said | None = None
    command: str = ""
    plan: Plan = field(default_factory=Plan)
    failed: dict[str, Run] = field(default_factory=dict)
    passed: dict[str, Run] = field(default_factory=dict)
    commit: Run | None = None
    tree: Run | None = None
    stat: Run | None = None
    pushed: int = -1
    calls: list[Told] = field(default_factory=list)
    running: dict[str, Call] = field(default_factory=dict)
    names: NamesInUse = field(default_factory=NamesInUse)
    quoted: dict[str, int] = field(default_factory=dict)

    @property
    def answered(self) -> dict[int, int]:
        """The newest entry of the user's words with the newest message, if that ends the agent's turn on it."""
        last, newest = self.words.open, self.newest
        # Some clients record calls as messages of their own: one sentence may be what the agent says before the next.
        said = self.said.text if newest.ends and self.said and self.said.seq == newest.seq else ""
        sentences = own_sentences(said[-MAX_TEXT:])
        # In a few sentences that say what it does now, the last one may say how.
        telling = sentences if len(sentences) <= MAX_ANNOUNCED else sentences[-1:]
        asks = bool(sentences) and (sentences[-1][-1] in "?？" or _OFFERS.search(sentences[-1]) is not None)
        ends = len(sentences) > 1 and (asks or not any(map(ANNOUNCES.match, telling)))
        ends = ends or said.lstrip()[:1] == "{"  # a result as JSON
        return {last.seq: newest.seq} if last and ends and newest.seq > last.seq else {}

    @property
    def said_is_done(self) -> bool:
        """Whether what the agent said last is among what it said at the end of its turns."""
        return self.said is not None and any(each.seq == self.said.seq for each in self.done[-MAX_LINES:])

    @property
    def under_way(self) -> list[Said]:
        """What the agent works on, the newest last: the requests behind the newest one that is answered or withdrawn,
        and a decision in a dialog if none follows it."""
        words = self.words
        over = {*words.answered, *words.withdrawn}
        behind = takewhile(lambda entry: entry.seq not in over, reversed(words.entries))
        found = [entry for entry in behind if not entry.source and not entry.stopped][:MAX_OPEN]
        decided = [entry for entry in found[:1] if entry.dialog and not waits_for_words(entry)]
        asked = [entry for entry in reversed(found) if not entry.dialog]
        return [] if self.answered else [*asked, *decided]

    @property
    def stopped(self) -> bool:
        """Whether the user stopped the work on what is under way, and the agent has not gone on since."""
        stops = [self.words.interrupted.get(each.seq, -1) for each in self.under_way]
        last = self.words.open
        waits = last is not None and last.dialog and waits_for_words(last)
        at = max(last.seq, *stops) if waits and last else min(stops, default=-1)
        return at > self.newest.seq

    @property
    def folder(self) -> str:
        """The folder in which the session works, with a slash at its end: most of its files that are named by their
        place in it are there. Empty if it is not known."""
        found: Counter[str] = Counter()
        for path in self.files:
            name = self.names.known.get(path_key(path))
            if name is not None and path.startswith("/") and path.endswith(f"/{name.form}"):
                found[path.removesuffix(name.form)] += 1
        folder, files = next(iter(found.most_common(1)), ("", 0))
        return folder if files >= MIN_WITHIN else ""


def fold(turns: Sequence[Turn], before: State | None = None) -> State:
    """The state after these turns, which follow those of `before`, which becomes it."""
    folding = _Fold(before or State())
    state = folding.state
    calls = calls_of(turns, state.running)
    state.running = dict([*state.running.items()][-MAX_RUNNING:])
    done: dict[int, list[Call]] = {}
    for call in calls:
        done.setdefault(call.seq, []).append(call)
    for turn in turns:
        for call in done.get(turn.seq, ()):
            for decision in decisions_of(call):
                state.words.add(decision, state.newest)
        folding.heard(turn)
        folding.turn(turn)
        for call in done.get(turn.seq, ()):
            folding.called(call)
    folding.finish(turns[-1].seq if turns else -1)
    return state


class _Fold:
    """Adds what happened to a state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._paths = KnownPaths(state.files)
        self._told: list[Call] = []

    def finish(self, seq: int) -> None:
        """Write the lines of the newest calls, and leave out what is too old."""
        state = self.state
        state.seq = max(state.seq, seq)
        self._forget_words()
        going = {call.seq for call in state.running.values()}
        late = [call for call in self._told[: -2 * MAX_CALLS] if call.seq in going] + self._told[-2 * MAX_CALLS :]
        told = [Told(call.seq, _line(call)) for call in late]
        told = [each for each in [*state.calls, *told] if each.seq in going or not _WENT_ON.match(each.text)]
        # Of equal lines, such as several changes of one file, the newest; what goes on is told whatever its age.
        calls = sorted({each.text: each for each in told}.values(), key=lambda each: each.seq)
        state.calls = [*(each for each in calls[:-MAX_CALLS] if each.seq in going), *calls[-MAX_CALLS:]]
        for known, most in ((state.files, MAX_FILES), (state.quoted, MAX_QUOTED)):
            for key in [*known][: max(0, len(known) - most)]:
                del known[key]
        del state.done[:-MAX_LINES]
        state.notes.sort(key=lambda each: each.seq)
        del state.notes[:-MAX_NOTES]
        state.names.shorten(state.seq)

    def _forget_words(self) -> None:
        words, entries = self.state.words, self.state.words.entries
        first = next((place for place, each in enumerate(entries) if not each.source), 0) + 1
        older, newest = entries[first:][:-MAX_WORDS], entries[first:][-MAX_WORDS:]
        rules = [each for each in older if each.source not in ("", PROGRAM) or user_rules(each.text)][-MAX_WORDS:]
        kept = (*entries[:first], *rules, *newest)
        gone = {each.seq for each in older} - {each.seq for each in kept}
        words.forgotten = (*words.forgotten, *sorted(gone))
        words.entries = tuple(replace(each, text=_ends_of(each.text, MAX_REQUEST)) for each in kept)

    def heard(self, turn: Turn) -> None:
        """What the user says in a message, and what the client puts there."""
        state, words = self.state, self.state.words
        awaited = "" if not_loaded(turn) else state.command
        state.command = skill_of(turn) if turn.role == "assistant" else awaited
        if turn.role == "system" and turn.kind == "message" and words.last is not None:
            # By an agent's own loop, between the messages. What stands before them is in every request.
            known = {entry.text for entry in words.entries if entry.source == PROGRAM}
            said = dict.fromkeys(text.strip() for text in turn.said)
            told = (Said(turn.seq, text, source=PROGRAM) for text in said if text and text not in known)
            words.entries = (*words.entries, *told)
        for place, whole in enumerate(turn.said if turn.role == "user" else ()):
            if turn.kind == "summary":
                # A fork of a session that we compacted begins with its hand-off: what is in it is nowhere else.
                handed = words_handed_over(whole) if turn.seq == place == 0 else ""
                if handed:
                    self._asked(Said(turn.seq, handed))
                self._carried(Told(turn.seq, whole.partition("\n\n## ")[2] if handed else whole))
                continue
            if INTERRUPTION.match(whole):
                words.stop(turn.seq)
                state.command = ""
            behind = command_text(state.command, whole)
            if turn.kind != "host" or behind:
                self._said_by_user(turn.seq, whole, words_handed_over(whole) or behind or without_host_text(whole))
            for name, rules in client_rules(whole):
                if all(entry.source != name for entry in words.entries):
                    words.entries = (*words.entries, Said(turn.seq, rules, source=name))

    def _said_by_user(self, seq: int, whole: str, text: str) -> None:
        state, words, given = self.state, self.state.words, command_of(whole)
        if CARRIED_OVER.match(text):
            self._carried(Told(seq, text))
        elif text:
            last = words.last
            # Without a text yet: the client puts it into this message.
            if last and last.command == state.command and last.text in last.command and not given:
                words.entries = tuple(each for each in words.entries if each is not last)
            ran = given or state.command
            typed = (each.seq for each in reversed(words.entries) if not each.source and not each.dialog)
            spoken = max(next(typed, -1), state.skill.seq if state.skill else -1)
            before = state.said.text if state.said and state.said.seq > spoken else ""
            self._asked(Said(seq, text, "" if ran else answered(text, before), ran))
        if given or text or COMMAND_OUTPUT.match(whole):
            state.command = given

    def _asked(self, request: Said) -> None:
        """The user says something: what the agent said last ended its turn, if no call came after it."""
        state = self.state
        if request.command.startswith(SKILL):
            state.skill = replace(request, text=request.text[:MAX_TEXT])
            return
        state.words.add(request, state.newest)
        if state.newest.told and state.said is not None and not state.said_is_done:
            state.done.append(Told(state.said.seq, conclusion(state.said.text)))
        state.skill = None
        if state.newest.told:  # else it said nothing of what it found so far
            state.notes = []

    def _carried(self, summary: Told) -> None:
        """A client's summary. Codex records the reply in which its model wrote it like any other."""
        state = self.state
        if not summary.text.strip():
            return
        if state.said is not None and summary.text.strip().endswith(state.said.text.strip()):
            state.said = state.said_before
        state.earlier = Told(summary.seq, defused(summary.text))

    def turn(self, turn: Turn) -> None:
        state = self.state
        if turn.role == "assistant":
            self._spoke(turn)
        text = "\n".join(turn.said)[: 4 * MAX_TEXT]
        parts = _NOTICE_PARTS.findall(text) if turn.kind == "host" and _NOTICE.match(text) else []
        if told := [json.loads(quoted, strict=False) if quoted else unescape(plain) for _, plain, quoted in parts]:
            state.calls.append(Told(turn.seq, f"A sub-agent reports: {defused(': '.join(told))[:MAX_TEXT]}"))
        if turn.role == "system" or turn.kind == "host":  # the client puts these into every window itself
            return
        found: dict[str, None] = {}
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if block.type == "tool_call":
                found |= names_of(_ARGUMENT_KEY.sub(" ", text[:MAX_SCANNED]))
            elif block.type not in ("thinking", "tool_result"):
                found |= names_of(without_host_text(text) if turn.role == "user" else text)
        state.names.add(turn.seq, found, by_agent=turn.role == "assistant")

    def _spoke(self, turn: Turn) -> None:
        state = self.state
        text = _ends_of(next((text for text in reversed(turn.said) if text.strip()), ""), MAX_TEXT)
        state.newest = Newest(turn.seq, turn.ends_work, turn.ends_work and bool(text or state.newest.told))
        if not text:
            return
        last = state.said_before = state.said
        if last is not None and not state.said_is_done and (note := note_of(last.text)):
            state.notes.append(Told(last.seq, note))
        state.said = Told(turn.seq, text)
        state.skill = None if turn.ends_work else state.skill

    def called(self, call: Call) -> None:
        state = self.state
        if not PLAN_TOOLS.search(call.tool) and not is_dialog(call.tool):  # the open items show these
            self._told.append(call)
        # A JSON object is a number of the agent, not its words.
        if call.output and _reports(call) and not call.output.text.lstrip().startswith("{"):
            said = conclusion(call.output.text.partition(_COUNTED)[0])
            state.notes.append(Told(call.seq, f"{call_line(call)}: {said}"))
        self._ran(call)
        if call.output is not None:
            state.names.add(call.seq, names_of(call.output.text), by_agent=False)
        for use in file_uses(call):
            self._used(use, call.seq)
        self._git(call)
        state.plan.take(call)
        for text in _quoted(call):
            state.quoted[text] = state.quoted.pop(text, 0) + 1

    def _git(self, call: Call) -> None:
        """What Git did, and what it said of the work tree."""
        state, moves, tree = self.state, moves_of(call), work_tree_of(call)
        if {*moves} - {"push", "checkout", "switch"}:
            state.commit = None  # another one is the newest
        others = [f"`git {each}`" for each in moves if each != "push"] + ["perhaps by a sub-agent"] * _reports(call)
        runs = [*state.failed.values(), *state.passed.values(), *filter(None, [state.stat])]
        for other in others:  # of this call, most run behind it, such as `git checkout main && npm test`
            self._changed([run for run in runs if run.seq < call.seq], other)
        if (stat := stat_of(call))[1]:
            state.stat = Run(call.seq, *stat)
        state.tree = None if moves or others else state.tree
        # Not of another repository. Only for these few calls: the session's folder takes long to find.
        if tree and not moves and (not call.folder or f"{call.folder}/".startswith(state.folder)):
            state.tree = Run(call.seq, "", tree)
        for told in commits_of(call):
            state.done.append(Told(call.seq, told))
            state.tree = state.stat = None
            if told.startswith(COMMITTED):  # its number and branch, unless Git was quiet
                state.commit = Run(call.seq, "", told.removeprefix(COMMITTED).partition(":")[0].strip())
        state.pushed = call.seq if "push" in moves else state.pushed

    def _ran(self, call: Call) -> None:
        """Whether a program that tests, checks or builds failed or passed."""
        state, command = self.state, call.command
        if command is None or call.output is None or call.refused or call.output.running:
            return
        bare, runner = bare_command(command), runner_of(command)
        tests = call.tests if runner or not TESTS_NOTHING.match(bare) else None
        runner = runner or (" ".join(bare.split()[:2]) if tests else "")
        if not runner:
            return
        # It names no part of what is tested: what passes in a part may still fail as a whole.
        named = re.split(r"[|;&<>]|\d>", bare.partition(runner)[2])[0].split()
        whole = all(word[:1] == "-" or word.isdigit() or word in (".", "./...") for word in named)
        line, known, before = call_line(call), state.failed.get(runner), state.passed.get(runner)
        if call.failed:
            state.failed[runner] = Run(call.seq, line, one_line(failures_of(call), MAX_FAILED), whole=whole)
        elif known and (whole or not known.whole):
            del state.failed[runner]
        if before and (before.line == line or not call.failed):
            del state.passed[runner]
        if not call.failed and not (tests and tests.passed == 0):
            count = f"{tests.passed} passed" if tests and tests.passed else ""
            told = count if tests else digest_output(call.tool, call.argument, call.output.text, is_error=False)
            state.passed[runner] = Run(call.seq, line, told, whole=whole, tests=tests is not None)

    def _used(self, use: FileUse, seq: int) -> None:
        state = self.state
        if use.was:
            state.files.pop(self._paths.of(use.was), None)
        path = self._paths.of(use.path)
        file = state.files.pop(path, FileState())
        file.use(use, seq)
        state.files[path] = file
        state.names.place(path, names_of(use.seen))
        if use.changes:
            kept = [state.commit, state.tree, state.stat]
            self._changed([*state.failed.values(), *state.passed.values(), *filter(None, kept)], path)
            if file.put_back and state.commit:
                state.commit.since.remove(path)

    def _changed(self, runs: Iterable[Run], what: str) -> None:
        """Note that something changed after these runs."""
        for run in runs:
            run.since = [*[each for each in run.since if not is_same_file(each, what)][-MAX_SINCE:], what]


_WENT_ON = re.compile(r"(?:the user )?ran `[^`]*`(?: outside the sandbox)?: still running as ")
"""A command whose end, or newer output, a later line tells, unless its process still runs."""


def _ends_of(text: str, most: int) -> str:
    return text if len(text) <= 2 * most else f"{text[:most]}\n[…]\n{text[-most:]}"


def _line(call: Call) -> str:
    """The call with what came of it, and the handle of a large output."""
    large = call.handle and call.output is not None and len(call.output.text) >= MIN_HANDLED
    handle = f" [{call.handle}]" if large else ""
    if call.output is None or not _reports(call):
        return f"{outcome_line(call, file_uses(call))}{handle}"
    return f"{call_line(call)}{handle}:\n{defused(call.output.text.partition(_COUNTED)[0].strip()[:MAX_TEXT])}"


def _reports(call: Call) -> bool:
    """Whether a sub-agent says what it did and found."""
    return bool(call.output and call.command is None and not call.failed and _REPORTS.search(call.tool))


_REPORTS = re.compile(r"agent|^(?:task|wait)$", re.IGNORECASE)
"""Tools whose output is what a sub-agent reports: prose, whose first and last line do not say what it found."""

_COUNTED = "\n<usage>"
"""Where Claude Code says what a sub-agent took."""

_NOTICE = re.compile(r"\A\s*<(?:task-notification|subagent_notification)>")
_NOTICE_PARTS = re.compile(r"<(summary|result)>(.*?)</\1>|\"completed\"\s*:\s*(\"(?:[^\"\\]|\\.)*\")", re.DOTALL)
"""What Claude Code and Codex put into the conversation when a sub-agent has ended: what it reports is in it."""


_ARGUMENT_KEY = re.compile(r'"\w{1,60}"\s*:')
_LITERAL = re.compile(r"\"([^\"\n\\]{8,80})\"|(?<!\w)'([^'\n\\]{8,80})'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.:/-])\d{4,12}(?![\w:/-])")
_WORDING = re.compile(r"[^\W_](?=[^\n]* )(?!.*(?:[(){}\[\];=<>]|, |\w\.\w+\()).*\S\Z", re.DOTALL)


def _quoted(call: Call) -> dict[str, None]:
    """The quoted wordings, such as a message of an error, and the numbers that the agent wrote into a file or a
    command; nothing that is code between two quotations."""
    code = call.written[:MAX_SCANNED].replace('\\"', '"')
    quoted = filter(_WORDING.match, map("".join, _LITERAL.findall(code)))
    return dict.fromkeys([*(f'"{text}"' for text in quoted if text.isprintable()), *_NUMBER.findall(code)])


_OFFERS = re.compile(
    r"\blet me know\b|\b(?:if|unless|once|whether|want|when) you\b|\byou(?:['’]d| would| want)\b", re.IGNORECASE
)
"""What the last sentence of a turn has if the agent would go on only when it is asked to."""
