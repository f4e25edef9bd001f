"""The summary of a session and its hand-off: what an agent needs to continue, as queries on the session's state.

    "\n\n".join(summary_of(fold(turns), max_tokens=1_000, count=count))

Deterministic, without a model. The newest evidence is right: a run that passed later, a task that is done, a file that
was deleted are told as they stand now. Paths stand whole, so that they can be copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from contextstash.events.names import name_key, names_of, path_key
from contextstash.events.sentences import first_lines
from contextstash.events.state import IN_DETAIL, MAX_LINES, MAX_SINCE, FileState, Run, State
from contextstash.events.turns import Said, Told, Turn, Verb
from contextstash.handoff.file_pieces import focus_of, known_files, pieces_of_files
from contextstash.handoff.fill import Count, Section, cut_middle, fill, first_of, item_tokens, newest_cut
from contextstash.handoff.user_block import word_items, words_text
from contextstash.safety.sanitize import clip, defused, encodable, one_line, unforged

NAMES_SHARE = 0.25
"""The share of a summary that is kept for the names in use; they have what the other sections leave, too. With more,
less room is left for what is read."""

LITERALS_SHARE = 0.2
"""The share of that room that literals may take. They are longer than names, and fewer are used again."""

MIN_CALL, MAX_CALL = 120, 300
"""Tokens that the line of a call may take, with what a sub-agent reported: a third of the section within these."""

SAID_SHARE, FIRST_SHARE = 0.4, 0.6
"""The share of the section on the last state that the last message may take before the newest calls have room; and of
the section with the user's words, the first request."""

NOTE_TOKENS, LEFT_OUT_TOKENS = 100, 14
"""Tokens of what the agent said in one message between its calls, three sentences; and of the line that says how much
is left out."""

TOLD_OF_FILE = ((24, 10), (16, 10), (12, 10), (8, 10), (4, 10), (0, 10), (0, 6), (0, 3), (0, 0))
"""What the lines of files tell, as much as there is room for: names in a view's summary, those most in use that their
text showed; and of so many files, those that were changed last, what their newest changes put in."""

FILES_SHARE = 0.55
"""The share that the files touched take at first, so that a hundred are named; two thirds of it in a hand-off."""

LATELY_CHANGED, MAX_READ, PER_LINE, MAX_DONE, MAX_PASSED = 10, 12, 6, 10, 3
"""Changed files that get a line with what was done; files only read that are told with the names in them; paths in a
line that lists older ones, which is left out as a whole; commits and ends of turns: ten tell a day's work; and runs
that did not fail: of tests, lint and build."""

MAX_REPEATED, MAX_COMMAND_TEXT = 160, 1_200
"""Characters of a request that is repeated where it says what is under way, a line; and of a command's or skill's text,
in whole lines: a longer text has its steps at the beginning."""

DONE_TOKENS = 240
"""Tokens of what the agent said at the end of a turn but the newest: a paragraph. With 60, a reader missed in half of
ten hand-offs what was found or decided; facts and actions differ by less than half a point."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside a summary. `words` is whether the user's words do; `texts` are other texts, whose names it
    does not repeat."""

    words: bool = False
    texts: Sequence[str] = ()


ALONE = Beside()

TASK = "Task"


def summary_of(
    state: State,
    *,
    since: int = 0,
    beside: Beside = ALONE,
    earlier: str = "",
    max_names: int | None = None,
    max_tokens: int,
    count: Count,
) -> list[str]:
    """A summary of the session, of what was done from message `since` on, and the list of the names in use, in at most
    `max_tokens`; empty if not even one line fits. The names take at most `max_names` of them; if it is None, all that
    the other sections leave, and each file is told with the names in it: in a hand-off they help less than what else
    has their room. `earlier` is a summary that somebody else wrote of what is before."""
    write = _Writer(state, since, beside, earlier, count, in_files=max_names is None)
    as_of = f", as of message {state.earlier.seq}" if state.earlier and not earlier else ""
    sections = [
        *([] if beside.words else [Section(TASK, 0.36, 2, write.task)]),
        Section(f"Earlier summary{as_of}", 0.3, 7, write.carried),
        Section("Said at the end of turns, and commits", 0.2 if max_names is None else 0.3, 5, write.done),
        Section("Files touched", FILES_SHARE if max_names is None else FILES_SHARE * 2 / 3, 4, write.files),
        Section("Failed when last run", 0.15, 1, write.failures),
        Section("Open items", 0.2, 0, write.open),
        Section("Said between calls since the last turn ended", 0.15 if max_names is None else 0.1, 3, write.notes),
        Section("Last state", 0.45 if state.answered else 0.25, 2, write.last_state),  # what ended the turn, as a whole
    ]

    kept = int(max_tokens * NAMES_SHARE) if max_names is None else max_names
    write.told = fill(sections, max_tokens - kept, count)
    room = max_tokens - count(f"{write.told}\n\n")
    room = room if max_names is None else min(room, max_names)
    names = fill([Section("Names in use", 1.0, 0, write.names)], room, count)
    write.listed = {*names_of(names)}
    return [text for text in (fill(sections, max_tokens - count(f"{names}\n\n"), count), names) if text]


def task_of(state: State, max_tokens: int, count: Count) -> list[str]:
    """The section with what the user said, in at most `max_tokens`; empty if there is nothing."""
    write = _Writer(state, 0, ALONE, "", count)
    text = fill([Section(TASK, 1.0, 0, write.task)], max_tokens, count)
    return [text] if text else []


@dataclass
class _Writer:
    """Writes the sections: each method returns the items of one, in at most so many tokens. `told` is what the sections
    before the names tell, `listed` are the names in their list; `in_files` is whether names also stand beside files."""

    state: State
    since: int
    beside: Beside
    earlier: str
    count: Count
    in_files: bool = False
    told: str = ""
    listed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Where the section on files names it, paths are written from it.
        named = self.in_files or any(file.changed for file in self.state.files.values())
        self._folder = self.state.folder if named else ""
        self._beside_names = {name_key(name) for text in self.beside.texts for name in names_of(text)}

    def _item(self, text: str) -> int:
        """The tokens of an item."""
        return item_tokens(text, self.count)

    def _name(self, text: str) -> int:
        """The tokens of a name in a list."""
        return self.count(f" {text}")

    def _short(self, path: str) -> str:
        """The path as it is written from the folder in which the session works."""
        return path.removeprefix(self._folder)

    def task(self, room: int) -> list[str]:
        """What the user said: the first request, then the newest; long ones are shortened."""
        words = self.state.words.own
        first = min(int(room * FIRST_SHARE), self._item(words.entries[0].text) + 8) if words.entries else 0
        items, _ = word_items(words, first, room - first, self.count)
        kept = first_of(items[:0:-1], room - min(first, room), self._item)[::-1]
        left = room - sum(map(self._item, kept))
        return [cut for text in items[:1] if (cut := cut_middle(text, left - 1, self._item))] + kept

    def carried(self, room: int) -> list[str]:
        """What others wrote of the session: a client's summary of the window before, or a model's."""
        carried = self.state.earlier
        texts = [self.earlier, carried.text if carried and carried.seq >= self.since else ""]
        found = [text.strip() for text in texts if text.strip()]
        return [cut for text in found if (cut := cut_middle(text, room // len(found) - 1, self._item))]

    def done(self, room: int) -> list[str]:
        """Commits, and the beginning of what the agent said at the end of each turn."""
        told = [each for each in self.state.done if each.seq >= self.since and each.text]
        *older, last = [DONE_TOKENS] * len(told) or [0]
        # What the user speaks of is mostly in the newest: it is shortened before it is left out.
        last = min(max(last, room - DONE_TOKENS * min(3, len(older))), room - LEFT_OUT_TOKENS)
        lines, bounds = [*map(_numbered, told)][-MAX_DONE:], [*older, last][-MAX_DONE:]
        shown = newest_cut(lines, bounds, room - LEFT_OUT_TOKENS, self._item)
        left = len(told) - len(shown)
        more = " or more" if len(self.state.done) >= MAX_LINES else ""  # older ones are not known
        return [*([f"[left out: {left}{more} others]"] if left and shown else []), *shown]

    def files(self, room: int) -> list[str]:
        """The changed files, those that were changed last first, then those that were only read. A line says how many
        changed ones are left out: without it, the list would read as complete."""
        seen: dict[str, list[str]] = {}  # the names in each file, those most in use first
        hidden = self._beside_names | self.listed
        for name in self.state.names.ranked(self.state.seq, hidden) if self.in_files else ():
            if name.file:
                seen.setdefault(self._short(name.file), []).append(name.form)
        used = [(self._short(path), file) for path, file in reversed(self.state.files.items())]
        files = [(short, file) for short, file in used if file.changed]
        read = [short for short, file in used if not file.verbs and self.in_files][:MAX_READ]
        own = [(short, file) for short, file in files if not file.deleted]
        listed = _listed("Also created or edited", [short for short, _ in own[LATELY_CHANGED:]])
        listed |= _listed("Deleted", [short for short, file in files if file.deleted])
        head = {f"Folder of the paths below: `{self._folder}`": 0} if self._folder and (files or read) else {}
        found: dict[str, int] = {}  # how many changed files each item names
        for most, lately in TOLD_OF_FILE:
            beside = {short: f" (seen in it: {', '.join(of[:most])})" for short, of in seen.items() if most}
            told = {
                _file_line(short, file, beside.get(short, ""), with_line=place < lately): 1
                for place, (short, file) in enumerate(own[:LATELY_CHANGED])
            }
            only = [one_line(f"`{short}`{beside.get(short, '')}", 700) for short in read]
            found = head | told | listed | ({f"Also read: {', '.join(only)}": 0} if only else {})
            if sum(map(self._item, found)) <= room - LEFT_OUT_TOKENS:
                break
        kept = first_of([*found], room - LEFT_OUT_TOKENS, self._item)
        more = sum(number for item, number in found.items() if item not in kept)
        return [*kept, *([f"[left out: {more} changed]"] if kept and more else [])]

    def failures(self, room: int) -> list[str]:
        """Runs of tests, checks and builds that failed, and were not run again with success."""
        runs = sorted(self.state.failed.values(), key=lambda run: run.seq)
        lines = [f"({run.seq}) {run.line}: {run.told}{self._changed_since(run)}" for run in runs]
        return newest_cut(lines, [room] * len(lines), room, self._item)

    def open(self, room: int) -> list[str]:
        """The tasks of the newest plan that are not done, and what the agent works on."""
        now = [self._under_way()] if self.state.under_way else []
        if skill := self.state.skill:
            told = _command_text(skill) if skill.seq >= self.since else f"{skill.command}, message {skill.seq}"
            now.append(f"Loaded: {told}")
        now = [*map(defused, now)]
        now = [cut for line in now if (cut := cut_middle(line, room // len(now), self._item))]
        tasks = [*map(defused, self._plan())]
        plan = first_of(tasks, room - sum(map(self._item, now)), self._item)
        out = [each for each in tasks if each not in plan and not each.startswith("[x]")]
        if plan and out:
            plan[-1] = f"{plan[-1]} [left out: {len(out)} more]"
        return [*plan, *now]

    def _plan(self) -> list[str]:
        plan = self.state.plan
        left = [(now, text) for now, text in plan.tasks.values() if now in ("doing", "todo")]
        asked = (each.seq for each in reversed(self.state.words.entries) if not each.source and not each.dialog)
        newest = next(asked, -1)
        if left and newest > plan.seq:  # what of it was done since, the words at the end of its turn say
            then = clip("; ".join(one_line(text, 120) for _, text in left), 600)
            older = f"older than ({newest}) and not updated since"
            return [f"Open then in the plan of message {plan.seq}, which is {older}: {then}"]
        lines = [
            f"[{'~' if now == 'doing' else ' '}] {one_line(text, 200)}{' (in progress)' * (now == 'doing')}"
            for now, text in left
        ]
        done = "; ".join(
            one_line(text.partition(IN_DETAIL)[0], 80) for now, text in plan.tasks.values() if now == "done"
        )
        lines += [f"[x] done: {clip(done, 600)}"] if done else []
        return [*([f"The plan below is of message {plan.seq}."] if left else []), *lines]

    def _under_way(self) -> str:
        *before, now = self.state.under_way
        stops = self.state.words.interrupted
        if now.command and now.text not in now.command:
            told = _command_text(now)
        elif not self.beside.words:
            told = one_line(now.text, MAX_REPEATED)
        elif now.dialog:
            told = f"the decision in message {now.seq}, above"
        else:
            # It is said again: the summary is printed without the words, too.
            said = f"in the words above: {one_line(now.text, MAX_REPEATED)}"
            others = ", ".join(f"({each.seq}){' (interrupted)' * (each.seq in stops)}" for each in before)
            told = f"the request in message {now.seq}, {said}"
            if others:  # a word in between is done sooner than what it came into
                told = f"{others} and ({now.seq}), on which no turn has ended; the newest may be done, {said}"
        return f"{'Interrupted by the user' if self.state.stopped else 'In progress'}: {told}"

    def last_state(self, room: int) -> list[str]:
        """What the assistant said last, test runs, the commit, and the newest calls with what came of them."""
        state = self.state
        commit = state.commit
        # What built, or a linter that found nothing, says little of files that were changed since.
        passed = [run for run in reversed(state.passed.values()) if run.tests or not run.since][:MAX_PASSED]
        known = [
            f"{'Tests passed' if run.tests else 'Ran'} at message {run.seq}: {run.line.removeprefix('ran ')}"
            f"{f': {run.told}' if run.told else ''}{self._changed_since(run)}"
            for run in passed
        ]
        if commit:  # the user and sub-agents may have made others, and pushed them
            pushed = f"`git push` was run at message {state.pushed}"
            push = pushed if state.pushed >= commit.seq else "no call has pushed since"
            which = f"{commit.told}, message {commit.seq}" if commit.told else f"message {commit.seq}"
            told = f"Last commit by a call of this session: {which}; {push}"
            known.append(f"{told}{self._changed_since(commit)}")
        if stat := state.stat:
            known.append(f"`{stat.line}` at message {stat.seq}: {stat.told}{self._changed_since(stat)}")
        if state.tree:
            known.append(f"Git status at message {state.tree.seq}: {state.tree.told}{self._changed_since(state.tree)}")
        bound = min(max(room // 3, MIN_CALL), MAX_CALL)
        known = [cut_middle(line, bound, self._item) for line in known]
        known = first_of(known, max(room - MIN_CALL, room // 2) if state.calls else room, self._item)
        room -= sum(map(self._item, known))
        calls = [cut_middle(self._call(each), bound, self._item) for each in state.calls]
        head: list[str] = []
        if state.said is not None and all(each.seq != state.said.seq or not each.text for each in state.done):
            said = f"The assistant said last ({state.said.seq}): {defused(state.said.text.strip())}"
            most = room if state.answered else max(int(room * SAID_SHARE), room - sum(map(self._item, calls)))
            head = [cut for cut in [cut_middle(said, most, self._item)] if cut]
        room -= sum(map(self._item, head))
        return [*head, *known, *first_of(calls[::-1], room, self._item)[::-1]]

    def notes(self, room: int) -> list[str]:
        """What the assistant said since its last turn ended, but last: what it found and decided. The words with which
        it ends a turn hold what is left of it."""
        if self.state.answered:
            return []
        calls = {each.seq for each in self.state.calls}  # with what a sub-agent reported
        notes = [each for each in self.state.notes if each.seq not in calls]
        return newest_cut([*map(_numbered, notes)], [NOTE_TOKENS] * len(notes), room, self._item)

    def _call(self, told: Told) -> str:
        """A call with what came of it. A command stays as it was run."""
        is_command = told.text.startswith(("ran `", "the user ran `")) or not self._folder
        return _numbered(told if is_command else replace(told, text=told.text.replace(self._folder, "")))

    def _changed_since(self, run: Run) -> str:
        among = ", among others" if len(run.since) > MAX_SINCE else ""
        paths = ", ".join(map(self._short, run.since[-MAX_SINCE:]))
        return f" (changed since{among}: {paths})" if paths else ""

    def names(self, room: int) -> list[str]:
        """The names most in use, without those that stand beside the list, and literals: those that the agent wrote
        again first, the newest of each first."""
        shown = "\n".join([*self.beside.texts, self.told])
        hidden = self._beside_names | {name_key(name) for name in names_of(self.told)}
        quoted = [*self.state.quoted.items()][::-1]
        quoted.sort(key=lambda item: item[1] == 1)
        wanted = [text for text, _ in quoted if text.strip('"') not in shown]
        literals = first_of(wanted, int(room * LITERALS_SHARE), self._name)
        room -= self._item(f"Literals: {' '.join(literals)}") if literals else 0
        hidden |= {path_key(path) for path in self.state.files if self._short(path) in self.told}
        ranked = self.state.names.ranked(self.state.seq, hidden)
        chosen = first_of([self._short(name.form) for name in ranked], room - 12, self._name)
        found = {
            "Paths": [name for name in chosen if "/" in name],
            "Names": [name for name in chosen if "/" not in name],
        }
        lines = [defused(f"{title}: {' '.join(names)}") for title, names in found.items() if names]
        return [*lines, *([f"Literals: {' '.join(literals)}"] if literals else [])]


def _file_line(path: str, file: FileState, seen: str, with_line: bool) -> str:
    verbs = ", ".join(verb for verb in get_args(Verb) if verb in file.verbs)
    was = f" ({file.was})" if file.was else ""
    line = f": {defused(file.line)}" if with_line and file.line else ""
    return one_line(f"`{path}`: {verbs}{was}{seen}{line}", 1_000)


def _listed(label: str, paths: Sequence[str]) -> dict[str, int]:
    """Lines with the paths, each with how many it has."""
    parts = [paths[place : place + PER_LINE] for place in range(0, len(paths), PER_LINE)]
    return {one_line(f"{label}: {', '.join(part)}", 2_000): len(part) for part in parts}


def _numbered(told: Told) -> str:
    return f"({told.seq}) {told.text}"


def _command_text(request: Said) -> str:
    text = first_lines(request.text, MAX_COMMAND_TEXT, f"the text of the command in message {request.seq}")
    return f"{one_line(request.command, 80)}, message {request.seq}:\n{text}"


# The hand-off: the user's words, the summary, and the files under edit as they stand. What the client's own summary of
# its window holds already is left out.

USER_SHARE = 0.3
"""The share of a hand-off that the user's first request may take, and again that all later ones may; what they leave
goes to the rest. After 41 compactions a hand-off of 5,000 tokens held 75 % of the sentences of the first request with
0.2, 96 % with 0.3, 100 % with 0.4, and 72.7, 73.4 and 72.6 % of the facts needed next."""

SUMMARY_SHARE = 0.62
"""The share that a summary may take of what the user's words leave; the texts of files have the rest. With 0.55, 159
hand-offs tell a point more of what is edited next, half a point less of the facts, and readers miss what was found."""

UNUSED_SHARE = 0.15
"""The share of what the first request leaves of its room that the later ones may take. With 0.25 half as many of the
user's messages were left out of long sessions as with none, and half a point fewer facts were told."""

HANDOFF_NAMES_SHARE, MAX_NAMES_SHARE = 0.24, 0.48
"""The share of a hand-off that the list of names in use may take, and of the summary, if the user's words leave little
room. With 0.28 a point and a half more of the facts needed next are told, and nothing more of what the agent does next:
a model need not search for a name, but a person skips the list, and what was found and decided needs room."""

FILES_HEADING = "## Files in use, as they stood at the messages named"

MIN_HELD = 20
"""Letters and digits of a request. A shorter one may be part of the client's summary by chance, and would then be left
out."""


@dataclass(frozen=True, slots=True)
class HandedOff:
    """What a hand-off is made from: the session's state, the newest turns, the pinned rules, the summary that a model
    wrote for us of those up to `written_to`, and the client's own summary of its window; these two may be empty."""

    state: State
    recent: Sequence[Turn]
    rules: Sequence[str] = ()
    written: str = ""
    written_to: int = -1
    client_summary: str = ""


def handoff_sections(of: HandedOff, max_tokens: int, count: Count) -> str:
    """The sections, in at most `max_tokens`; empty if there is nothing to say."""
    words = _user_words(of, max_tokens, count)
    written = unforged(of.written)
    left = max_tokens - sum(count(text) + 2 for text in (words, written) if text)
    files, focus = known_files(of.recent), focus_of(of.recent)

    def pieces(room: int) -> str:
        text = pieces_of_files(files, room - count(FILES_HEADING) - 1, count, focus, folder=of.state.folder)
        return f"{FILES_HEADING}\n{unforged(text)}" if text else ""

    texts = pieces(left - int(left * SUMMARY_SHARE))
    beside = Beside(words=True, texts=[text for text in (words, written, texts, of.client_summary) if text])
    room = left - (count(texts) + 2 if texts else 0)
    # The window begins with the client's own summary. What a session begins with, such as a fork, is nowhere else.
    state = of.state if of.state.earlier and not of.state.earlier.seq else replace(of.state, earlier=None)
    names = min(int(max_tokens * HANDOFF_NAMES_SHARE), int(room * MAX_NAMES_SHARE))
    told = summary_of(state, since=of.written_to + 1, beside=beside, max_names=names, max_tokens=room, count=count)
    texts = pieces(left - sum(map(count, told)) - 6) or texts
    # A person skips the list of names: it stands last.
    return encodable("\n\n".join(part for part in (words, written, *told[:1], texts, *told[1:]) if part))


def _user_words(of: HandedOff, max_tokens: int, count: Count) -> str:
    """The user's requests and rules, without those that stand word for word in the client's summary."""
    held, words = _letters_of(of.client_summary), of.state.words.own
    letters = {entry: _letters_of(entry.text) for entry in words.entries}
    kept = tuple(entry for entry, text in letters.items() if len(text) < MIN_HELD or text not in held)
    answered = {**words.answered, **of.state.answered}
    words = replace(words, entries=kept, answered={})
    room = int(max_tokens * USER_SHARE)
    unused = max(0, room - count(words.entries[0].text)) if words.entries else 0
    lines = [f"- (pinned rule) {rule}" for rule in of.rules]
    now = words.open if words.open in kept else None
    later = room + min(unused, max(int(unused * UNUSED_SHARE), count(now.text) - room // 2 if now else 0))
    text = words_text(words, (0, max(0, of.state.seq)), lines, first_tokens=room, tokens=later, count=count)
    # Of older ones it would not be certain: some are done without a word on them, some answered with another one.
    last = max((entry.seq for entry in kept if entry.seq in answered), default=None)
    return text if last is None else f"{text}\nAnswered by the agent last: ({last}), at {answered[last]}."


def _letters_of(text: str) -> str:
    """The letters and digits of a text, by which it is found whatever stands between them."""
    return "".join(character for character in text.casefold() if character.isalnum())
