"""The state of a session: the fold of its messages. Summaries and hand-offs are queries on it.

state = fold(turns)                    # of a whole session
state = fold(newer_turns, state)       # the same as of all turns at once, and costs what is new
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import unescape

from contextstash.events.call_lines import (
    COMMITTED,
    RUNNING,
    branch_of,
    call_line,
    change_line,
    commits_of,
    failures_of,
    may_have_committed,
    moves_of,
    outcome_line,
    work_tree_of,
)
from contextstash.events.calls import TESTS_NOTHING, Call, bare_command, calls_of, is_dialog, runner_of
from contextstash.events.files import KnownPaths, is_same_file, uses_of
from contextstash.events.names import MAX_SCANNED, NamesInUse, names_of, path_key
from contextstash.events.plans import PLAN_TOOLS, Plan
from contextstash.events.sentences import ANNOUNCES, conclusion, note_of, own_sentences
from contextstash.events.turns import FileUse, Said, Told, Turn
from contextstash.events.words import (
    CARRIED_OVER,
    COMMAND_OUTPUT,
    PROGRAM,
    SKILL,
    Newest,
    UserWords,
    answered,
    approved_plan,
    client_rules,
    command_of,
    command_text,
    decisions_of,
    is_interruption,
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

MAX_ANNOUNCED = 3
"""Sentences of a message that only says what the agent does next. An answer that is as short seldom says that, too."""

MAX_PARTS = 16
"""Lines that are known of what was changed in a file, the newest."""

MIN_WITHIN = 2
"""So many files say in which folder the session works: one alone may be a copy elsewhere."""

MAX_SINCE = 4
"""Files that are told as changed since a run, the newest: as many as fit one line. One more is kept, so that the line
does not read as complete if it is not."""


@dataclass(slots=True)
class FileState:
    """What was done to a file but reading it, the lines that its newest changes put in (see `change_line`), the path
    that it was renamed from, the message of its last change, and that of its last use."""

    verbs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    was: str = ""
    changed_at: int = -1
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
        self.changed_at = seq
        if use.verb in ("deleted", "restored") or (use.changes and (self.put_back or self.deleted)):
            self.verbs, self.was, self.lines = [], "", []
        # A file that was used before was there before: writing it as a whole is a change of it.
        verb = "edited" if use.verb == "created" and was_there and "created" not in self.verbs else use.verb
        self.verbs += [verb] * (verb not in self.verbs)
        if use.text is not None and not use.appended:
            self.lines = []
        elif use.replaced:
            gone = {f"+ {line.strip()}" for each in use.replaced for line in each.old.split("\n")}
            line = change_line(use)
            parts = [each.old for each in use.replaced if each.old.strip() and "\n" not in each.old]  # of a line
            kept = (each for each in self.lines if each not in gone and not any(part in each for part in parts))
            known = [each for each in kept if each != line]
            self.lines = [*known, *filter(None, [line])][-MAX_PARTS:]
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


@dataclass
class State:
    """Where a session stands after message `seq`.

    `files` are those that were used, the one used last is the last. `done` are commits and what the agent said at
    the end of its turns, `said` is what it said last, `notes` what it said before that since the end of a turn,
    `said_before` what it said before `said`, `newest` its newest message. `words` are the user's, `command` the one
    whose text the client puts into its next message, and `skill` the one that the agent carries out, `approved` the
    plan that the user approved in the turn under way. `failed` are the runs that failed last, by their programs,
    `passed` the newest ones that did not, unless the same command failed since, the last is the newest. `commit` is the
    newest one that a call of the session made, `pushed` the message of its newest push, `branch` the one that Git named
    last, `tree` what it said of the work tree. `calls` are the newest calls, `ran_in` the folder of the newest command,
    `running` the commands that went on, by their processes. `quoted` counts the quoted wordings and the numbers that
    the agent wrote.
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
    approved: Told | None = None
    failed: dict[str, Run] = field(default_factory=dict)
    passed: dict[str, Run] = field(default_factory=dict)
    commit: Run | None = None
    pushed: int = -1
    branch: Told | None = None
    tree: Run | None = None
    calls: list[Told] = field(default_factory=list)
    ran_in: str = ""
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
    def unanswered(self) -> str:
        """What the agent said last, if the user has said nothing since; else empty."""
        typed = (each.seq for each in reversed(self.words.entries) if not each.source and not each.dialog)
        spoken = max(next(typed, -1), self.skill.seq if self.skill else -1)
        return self.said.text if self.said and self.said.seq > spoken else ""

    @property
    def said_is_done(self) -> bool:
        """Whether what the agent said last is among what it said at the end of its turns."""
        return self.said is not None and any(each.seq == self.said.seq for each in self.done[-MAX_LINES:])

    @property
    def under_way(self) -> list[Said]:
        """What the agent works on, the newest last: requests, and a decision in a dialog if none follows it."""
        found = [] if self.answered else self.words.under_way[-MAX_OPEN:]
        decided = found[-1:] if found and found[-1].dialog and not waits_for_words(found[-1]) else []
        return [*(each for each in found if not each.dialog), *decided]

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
    done: dict[int, list[tuple[Call, list[FileUse]]]] = {}
    for call, uses in zip(calls, uses_of(calls, state.files, state.ran_in), strict=True):
        state.ran_in = call.folder or state.ran_in
        done.setdefault(call.seq, []).append((call, uses))
    for turn in turns:
        for call, _ in done.get(turn.seq, ()):
            for decision in decisions_of(call):
                state.words.add(decision, state.newest)
        folding.heard(turn)
        folding.turn(turn)
        for call, uses in done.get(turn.seq, ()):
            folding.called(call, uses)
    folding.finish(turns[-1].seq if turns else -1)
    return state


class _Fold:
    """Adds what happened to a state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._paths = KnownPaths(state.files)
        self._told: list[tuple[Call, list[FileUse]]] = []
        self._notices: list[Told] = []

    def finish(self, seq: int) -> None:
        """Write the lines of the newest calls, and leave out what is too old."""
        state = self.state
        state.seq = max(state.seq, seq)
        self._forget_words()
        told = [Told(call.seq, _line(call, uses)) for call, uses in self._told[-2 * MAX_CALLS :]] + self._notices
        # Of equal lines, such as several changes of one file, the newest.
        calls = sorted({each.text: each for each in [*state.calls, *told]}.values(), key=lambda each: each.seq)
        # Of one that was still running, a later call, which waited for it, says what came of it.
        begun = [each.text.partition(RUNNING) for each in calls]
        state.calls = [
            each
            for place, (each, (made, running, _)) in enumerate(zip(calls, begun, strict=True))
            if not (running and any(later.text.startswith(f"{made}: ") for later in calls[place + 1 :]))
        ][-MAX_CALLS:]
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
        if turn.role == "assistant":
            state.command = skill_of(turn)
        elif not_loaded(turn):
            state.command = ""
        self._instructed(turn)
        for place, whole in enumerate(turn.said if turn.role == "user" else ()):
            if turn.kind == "summary":
                # A fork of a session that we compacted begins with its hand-off: what is in it is nowhere else.
                told = words_handed_over(whole) if turn.seq == place == 0 else ""
                if told:
                    self._asked(Said(turn.seq, told))
                self._carried(Told(turn.seq, whole.partition("\n\n## ")[2] if told else whole))
                continue
            if is_interruption(whole):
                words.stop(turn.seq)
                state.command = ""
            behind = command_text(state.command, whole)
            if turn.kind != "host" or behind:
                self._said_by_user(turn.seq, whole, words_handed_over(whole) or behind or without_host_text(whole))
            for name, rules in client_rules(whole):
                if all(entry.source != name for entry in words.entries):
                    words.entries = (*words.entries, Said(turn.seq, rules, source=name))

    def _instructed(self, turn: Turn) -> None:
        """What an agent's own loop says between the messages. What stands before them is in every request."""
        words = self.state.words
        if turn.role != "system" or turn.kind != "message" or words.last is None:
            return
        known = {entry.text for entry in words.entries if entry.source == PROGRAM}
        said = dict.fromkeys(map(str.strip, turn.said))
        told = [Said(turn.seq, text, source=PROGRAM) for text in said if text and text not in known]
        words.entries = (*words.entries, *told)

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
            self._asked(Said(seq, text, "" if ran else answered(text, state.unanswered), ran))
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
        state.plan.asked_since = request.seq
        state.skill = None
        if state.newest.told:  # else it said nothing of what it found so far
            state.notes, state.approved = [], None

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
            self._notices.append(Told(turn.seq, f"A sub-agent reports: {defused(': '.join(told))[:MAX_TEXT]}"))
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

    def called(self, call: Call, uses: list[FileUse]) -> None:
        state = self.state
        if not PLAN_TOOLS.search(call.tool) and not is_dialog(call.tool):  # the open items show these
            self._told.append((call, uses))
        if _reports(call, uses):
            state.tree = None  # the sub-agent may have changed it
            if call.output and not call.output.text.lstrip().startswith("{"):  # a number of the agent, not its words
                state.notes.append(
                    Told(call.seq, f"{call_line(call)}: {conclusion(call.output.text.partition(_COUNTED)[0])}")
                )
        self._ran(call)
        if call.output is not None:
            state.names.add(call.seq, names_of(call.output.text), by_agent=False)
        for use in uses:
            self._used(use, call.seq)
        if plan := approved_plan(call):
            state.approved = Told(call.seq, plan[:MAX_REQUEST])
        self._git(call)
        state.plan.take(call)
        for text in _quoted(call):
            state.quoted[text] = state.quoted.pop(text, 0) + 1

    def _git(self, call: Call) -> None:
        """What Git did, and said of the branch and the work tree."""
        state = self.state
        state.commit = None if may_have_committed(call) else state.commit
        for told in commits_of(call):
            state.done.append(Told(call.seq, told))
            state.tree = None
            if told.startswith(COMMITTED):  # its number and branch, unless Git was quiet
                state.commit = Run(call.seq, "", told.removeprefix(COMMITTED).partition(":")[0].strip())
        moves, branch, tree = moves_of(call), branch_of(call), work_tree_of(call)
        other = [each for each in moves if each not in ("push", "checkout", "switch")]
        printed = call.output.text if call.output else ""
        if other and state.commit and state.commit.seq < call.seq and "Already up to date" not in printed:
            state.commit = Run(call.seq, "", f"what `git {other[-1]}` left")
        switches = bool(branch or {"checkout", "switch"} & {*moves})
        # Not of another repository. Only for these few: the session's folder takes long to find.
        if (switches or tree) and (not call.folder or f"{call.folder}/".startswith(state.folder)):
            state.branch = (Told(call.seq, branch) if branch else None) if switches else state.branch
            state.tree = Run(call.seq, "", tree) if tree else state.tree
        state.pushed = call.seq if "push" in moves else state.pushed

    def _ran(self, call: Call) -> None:
        """Whether a program that tests, checks or builds failed or passed."""
        state, command = self.state, call.command
        if command is None or call.output is None or call.refused or call.output.running:
            return
        bare, runner = bare_command(command), runner_of(command)
        tests = call.tests if runner or not TESTS_NOTHING.match(bare) else None
        runner = runner or (" ".join(bare.split()[:2]) if tests else "")
        # It names no part of what is tested: what passes in a part may still fail as a whole.
        named = re.split(r"[|;&<>]|\d>", bare.partition(runner)[2])[0].split() if runner else [""]
        whole = all(word[:1] == "-" or word.isdigit() or word in (".", "./...") for word in named)
        known = state.failed.get(runner)
        if runner and call.failed:
            state.failed[runner] = Run(call.seq, call_line(call), one_line(failures_of(call), MAX_FAILED), whole=whole)
        elif known and (whole or not known.whole):
            del state.failed[runner]
        line, before = call_line(call), state.passed.get(runner)
        if runner and not call.failed and not (tests and tests.passed == 0):
            count = f"{tests.passed} passed" if tests and tests.passed else ""
            told = count if tests else digest_output(call.tool, call.argument, call.output.text, is_error=False)
            state.passed.pop(runner, None)
            state.passed[runner] = Run(call.seq, line, told, whole=whole, tests=tests is not None)
        elif before and before.line == line:
            del state.passed[runner]

    def _used(self, use: FileUse, seq: int) -> None:
        state = self.state
        if use.was:
            state.files.pop(self._paths.of(use.was), None)
        path = self._paths.of(use.path)
        file = state.files.pop(path, FileState())
        file.use(use, seq)
        state.files[path] = file
        renewed = use.verb in ("deleted", "restored") or (use.text is not None and not use.appended)
        gone = state.names.known if renewed else names_of("\n".join(each.old for each in use.replaced))
        state.names.place(path, names_of(use.seen), gone)
        if use.changes:
            for run in [*state.failed.values(), *state.passed.values(), *filter(None, [state.commit, state.tree])]:
                others = [each for each in run.since if not is_same_file(each, path)][-MAX_SINCE:]
                run.since = others if file.put_back and run is state.commit else [*others, path]


def _ends_of(text: str, most: int) -> str:
    return text if len(text) <= 2 * most else f"{text[:most]}\n[…]\n{text[-most:]}"


def _line(call: Call, uses: list[FileUse]) -> str:
    """The call with what came of it, and the handle of a large output."""
    large = call.handle and call.output is not None and len(call.output.text) >= MIN_HANDLED
    handle = f" [{call.handle}]" if large else ""
    if call.output is None or not _reports(call, uses):
        return f"{outcome_line(call, uses)}{handle}"
    return f"{call_line(call)}{handle}:\n{defused(call.output.text.partition(_COUNTED)[0].strip()[:MAX_TEXT])}"


def _reports(call: Call, uses: list[FileUse]) -> bool:
    """Whether a sub-agent says what it did and found."""
    return bool(call.output and call.command is None and not uses and not call.failed and _REPORTS.search(call.tool))


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
_CODE_SIGNS = re.compile(r"[(){}\[\];=<>]|, |\w\.\w+\(")


def _quoted(call: Call) -> dict[str, None]:
    """The quoted wordings, such as a message of an error, and the numbers that the agent wrote into a file or a
    command; nothing that is code between two quotations."""
    code = call.written[:MAX_SCANNED].replace('\\"', '"')
    quoted = ["".join(pair) for pair in _LITERAL.findall(code)]
    wordings = [
        f'"{text}"'
        for text in quoted
        if text == text.strip()
        and " " in text
        and text[:1].isalnum()
        and text.isprintable()
        and not _CODE_SIGNS.search(text)
    ]
    return dict.fromkeys([*wordings, *_NUMBER.findall(code)])


_OFFERS = re.compile(
    r"\blet me know\b|\b(?:if|unless|once|whether|want|when) you\b|\byou(?:['’]d| would| want)\b", re.IGNORECASE
)
"""What the last sentence of a turn has if the agent would go on only when it is asked to."""
