"""The summary of a session: what an agent needs to continue, as queries on the session's state.

    summary_of(fold(turns), max_tokens=1_000, count=count)

Deterministic, without a model. The newest evidence is right: a run that passed later, a task that is done, a file that
was deleted are told as they stand now.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.events.files import base_folder
from contextstash.events.kinds import Asked
from contextstash.events.names import name_key, names_of
from contextstash.events.pasted_text import first_lines, shortened
from contextstash.events.requests import is_reply, reply_lines, user_rules, without_notes
from contextstash.events.state import FileState, Run, State, Told
from contextstash.events.turns import Turn
from contextstash.handoff.fill import MIN_ITEM, Count, Section, cut_middle, fill, first_of, newest, write_item
from contextstash.safety.imitations import defused
from contextstash.safety.sanitize import clip, one_line

NAMES_SHARE = 0.32
"""The share of a summary that the names in use may take at first. More would keep more of the names that are needed
next, and leave less room for what is read."""

LITERALS_SHARE = 0.2
"""The share of that room that literals may take. They are longer than names, and fewer are used again."""

SAID_SHARE = 0.3
"""The share of the section on the last state that the last message may take before the newest calls have room."""

LATELY_CHANGED = 12
"""Changed files that get a line with what was done; of older ones the path is listed, so that in a summary of 1,000
tokens a hundred changed files are named."""

PER_LINE = 6
"""Paths in a line that lists them. A line is the unit that is left out if the summary is too long."""

MIN_SCRIPTS = 3
"""Files that were created and run, such as the agent's own scripts, are listed in one line if there are so many."""

MAX_FRESH = 20
"""Calls after which a plan may be out of date: agents that keep one update it more often."""

MAX_REPEATED = 120
"""Characters of a request that is repeated where it says what is under way: a line."""

MAX_COMMAND_TEXT = 1_200
"""Characters of a command's or skill's text that is being carried out, in whole lines: about 300 tokens. A longer text
has its steps at the beginning."""

MAX_DONE = 10
"""Commits and ends of turns that are told, the newest: ten tell a day's work."""

MAX_READ = 12
"""Files that were only read that are listed, those that were read last."""

MIN_SHORTENED = 60
"""Tokens. With less room, no whole sentence and its notice fit."""

MAX_LATER = 300
"""Tokens of a later request if it is shortened."""

MAX_OUTPUTS, MAX_SIMILAR = 8, 2
"""Outputs that are listed by handle, and how many of one kind of call; search finds the others."""

VERBS = ("created", "edited", "renamed", "deleted", "run", "read")
"""In the order in which they are written."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside a summary. `words` is whether the user's words do; `texts` are other texts, whose names it
    does not repeat."""

    words: bool = False
    texts: Sequence[str] = ()

    @classmethod
    def of_turns(cls, turns: Sequence[Turn], *, words: bool) -> Beside:
        """The turns that the view shows beside it."""
        return cls(words, [text for turn in turns for text in turn.texts])


ALONE = Beside()


def summary_of(
    state: State,
    *,
    since: int = 0,
    beside: Beside = ALONE,
    earlier: str = "",
    instructions: str = "",
    names_share: float = NAMES_SHARE,
    max_tokens: int,
    count: Count,
) -> str:
    """A summary of the session, of what was done from message `since` on, in at most `max_tokens`; empty if not even
    one line fits. `earlier` is a summary that somebody else wrote of what is before. Names that contain words of
    `instructions` come first."""
    write = _Writer(state, since, beside, earlier, instructions, count)
    as_of = f", as of message {state.earlier.seq}" if state.earlier and not earlier else ""
    sections = [
        Section("Task", 0.22, 2, write.task),
        Section(f"Earlier summary{as_of}", 0.3, 6, write.earlier),
        Section("Decisions and constraints", 0.14, 3, write.decisions),
        Section("Said at the end of turns, and commits", 0.15, 7, write.done),
        Section("Files touched", 0.3, 4, write.files),
        Section("Failed when last run", 0.09, 5, write.failures),
        Section("Open items", 0.25, 0, write.open),
        Section("Last state", 0.2, 1, write.state),
    ]
    if beside.words:
        sections = [section for section in sections if section.rank not in OF_USER]
    archived = fill([Section("Archived outputs", 1.0, 0, write.outputs)], int(max_tokens * OUTPUTS_SHARE), count)
    left = max_tokens - _cost(archived, count)
    write.told = fill(sections, left - int(max_tokens * names_share), count)
    most = min(int(max_tokens * names_share), left - _cost(write.told, count))
    names = fill([Section("Names in use", 1.0, 0, write.names)], most, count)
    told = fill(sections, left - _cost(names, count), count)
    return "\n\n".join(part for part in (told, names, archived) if part)


OF_USER = (2, 3)
"""The ranks of the sections with the user's words."""

OUTPUTS_SHARE = 0.06
"""The share of a summary that the list of outputs may take; search finds the others."""


def _cost(text: str, count: Count) -> int:
    return count(f"{text}\n\n") if text else 0


class _Writer:
    """Writes the sections: each method returns the items of one, in at most so many tokens."""

    def __init__(self, state: State, since: int, beside: Beside, earlier: str, instructions: str, count: Count) -> None:
        self._state = state
        self._since = since
        self._beside = beside
        self._earlier = earlier
        self._wanted = _long_words(instructions)
        self._count = count
        self._base = base_folder(state.files)
        self.told = ""

    def task(self, room: int) -> list[str]:
        """The user's requests: the first one, then the newest; long ones are shortened. A reply is a decision."""
        wanted = [each for each in self._state.asked if not is_reply(each)]
        if not wanted:
            return []
        first, *later = wanted
        kept = self._later(later, room // 3)
        shown = self._shortened(first, room - sum(map(self._item, kept)))
        return [shown, *self._later(later, room - self._item(shown))] if shown else []

    def _later(self, requests: Sequence[Asked], room: int) -> list[str]:
        kept: list[str] = []
        for request in reversed(requests):
            text = defused(request.text)
            if self._item(text) > room:
                text = cut_middle(text, min(MAX_LATER, room - 2), self._item) if room > 2 * MIN_ITEM else ""
            if text:
                kept.insert(0, text)
                room -= self._item(text)
        return kept

    def _shortened(self, request: Asked, room: int) -> str:
        """A request in so many tokens, its instructions whole."""
        text = defused(request.text)
        if self._item(text) <= room:
            return text
        rules = {rule for rule, _ in user_rules(request)}
        note = f"message {request.seq}"
        short = shortened(text, room - 12, self._item, rules, note) if room > MIN_SHORTENED else text
        return cut_middle(short, room, self._item) or clip(text, 200)

    def _item(self, text: str) -> int:
        """The tokens of an item."""
        return self._count(write_item(text)) + 1

    def decisions(self, room: int) -> list[str]:
        """What the user decided: replies with what they answer, rules, answers in dialogs."""
        found: list[tuple[int, str]] = []
        for request in self._state.asked:
            if is_reply(request):
                found += [(request.seq, line) for line in reply_lines(request)]
            else:
                found += [(request.seq, defused(rule)) for rule, strong in user_rules(request) if strong]
        found += [(each.seq, each.text) for each in self._state.decided]
        lines = dict.fromkeys(line for _, line in sorted(found, key=lambda entry: entry[0]))
        return newest([*lines], room, self._count)

    def earlier(self, room: int) -> list[str]:
        """What others wrote of the session: a client's summary of the window before, or a model's."""
        carried = self._state.earlier
        texts = [self._earlier, carried.text if carried and carried.seq >= self._since else ""]
        found = [text for text in (without_notes(text).strip() for text in texts) if text]
        return [cut for text in found if (cut := cut_middle(text, room // len(found) - 1, self._item))]

    def done(self, room: int) -> list[str]:
        """Commits, and the beginning of what the agent said at the end of each turn."""
        said = self._state.said
        told = [each for each in self._state.done if each.seq >= self._since and each.text]
        told = [each for each in told if said is None or each.seq != said.seq or each.text.startswith(_MADE)]
        # Those of which the instructions speak come first.
        told.sort(key=lambda each: (bool(self._wanted & _long_words(each.text)), each.seq))
        kept = newest([_numbered(each) for each in told[-MAX_DONE:]], room, self._count)
        return [line for each in sorted(told, key=lambda each: each.seq) if (line := _numbered(each)) in kept]

    def files(self, room: int) -> list[str]:
        """The files, those that were changed last first, then those that were only read."""
        files = self._state.files
        changed = [(path, file) for path, file in reversed(files.items()) if file.changed and not file.deleted]
        gone = [path for path, file in reversed(files.items()) if file.deleted]
        scripts = [path for path, file in changed if {"created", "run"} <= set(file.verbs)]
        scripts = scripts if len(scripts) >= MIN_SCRIPTS else []
        own = [(path, file) for path, file in changed if path not in scripts]
        told = own[:LATELY_CHANGED]
        lines = [self._file_line(path, file) for path, file in told]
        lines += self._listed("Also changed", [path for path, _ in own[LATELY_CHANGED:]])
        lines += self._listed("Created and run", scripts) + self._listed("Deleted", gone)
        read = [path for path, file in reversed(files.items()) if not file.changed and "read" in file.verbs]
        if sum(self._count(line) + 4 for line in lines) > room:
            lines = [*(self._file_line(path, file, names=False) for path, file in told), *lines[len(told) :]]
        below = [f"Below `{self._base}/`:"] if self._base and lines + read else []
        return first_of([*below, *lines, *self._listed("Only read", read[:MAX_READ])], room, self._count)

    def _below(self, path: str) -> str:
        """A path as it is shown: below the base folder, which the section on files names."""
        return path.removeprefix(f"{self._base}/") if self._base else path

    def _file_line(self, path: str, file: FileState, *, names: bool = True) -> str:
        verbs = ", ".join(verb for verb in VERBS if verb in file.verbs)
        told = f" ({', '.join(file.names)})" if file.names and names else ""
        return one_line(f"`{self._below(path)}`: {verbs}{told}", 600)

    def _listed(self, label: str, paths: Sequence[str]) -> list[str]:
        paths = [f"`{self._below(path)}`" for path in paths]
        return [
            one_line(f"{label}: {', '.join(paths[place : place + PER_LINE])}", 2_000)
            for place in range(0, len(paths), PER_LINE)
        ]

    def failures(self, room: int) -> list[str]:
        """Runs of tests, checks and builds that failed, and were not run again with success."""
        runs = [
            f"({run.seq}) {run.line}: {run.told}{_since(run.since)}"
            for run in sorted(self._state.failed.values(), key=lambda run: run.seq)
        ]
        return newest(runs, room, self._count)

    def open(self, room: int) -> list[str]:
        """The tasks of the newest plan that are not done, and what the agent works on."""
        lines = [*self._plan(), *filter(None, (self._under_way(), self._skill()))]
        return first_of([defused(line) for line in lines], room, self._count)

    def _plan(self) -> list[str]:
        state = self._state
        left = [
            f"[{'~' if now == 'doing' else ' '}] {one_line(text, 200)}{' (in progress)' * (now == 'doing')}"
            for now, text in state.plan.values()
            if now not in ("done", "gone")
        ]
        done = [one_line(text, 80) for now, text in state.plan.values() if now == "done"]
        lines = left + ([f"[x] done: {clip('; '.join(done), 600)}"] if done else [])
        asked = ", ".join(f"({seq})" for seq in state.since_plan)
        if left and (asked or state.calls_since_plan > MAX_FRESH):
            lines.append(
                f"The plan above is of message {state.plan_seq}{f'; the user said since: {asked}' * bool(asked)}."
            )
        return lines

    def _under_way(self) -> str:
        state = self._state
        if state.ended:
            return ""
        if state.decision is not None:
            told = f"the decision in message {state.decision.seq}, above"
            return f"In progress: {told if self._beside.words else one_line(state.decision.text, 160)}"
        if not state.open:
            return ""
        now = state.open[-1]
        if now.command and now.text not in now.command:
            return f"In progress: {_command_text(now)}"
        if not self._beside.words:
            return f"In progress: {one_line(now.text, 160)}"
        if len(state.open) > 1:
            others = ", ".join(str(each.seq) for each in state.open[:-1])
            return f"In progress: the requests in messages {others} and {now.seq}, in the words above"
        said = f": {now.text}" if len(now.text) <= MAX_REPEATED and "\n" not in now.text else ""
        return f"In progress: the request in message {now.seq}, in the words above{said}"

    def _skill(self) -> str:
        skill = self._state.skill
        if skill is None:
            return ""
        told = _command_text(skill) if skill.seq >= self._since else f"{skill.command}, message {skill.seq}"
        return f"Loaded: {told}"

    def state(self, room: int) -> list[str]:
        """What the assistant said last, the test run that holds, and the newest calls with what came of them."""
        state = self._state
        calls = [f"({each.seq}) {each.text}" for each in state.calls]
        passed = [_passed(state.passed)] if state.passed else []
        said = ""
        if state.said is not None:
            said = f"The assistant's last message ({state.said.seq}): {_opened(defused(state.said.text.strip()))}"
        cost = sum(self._count(line) + 4 for line in [*passed, *calls])
        short = cut_middle(said, max(int(room * SAID_SHARE), room - cost), self._count) if said else ""
        head = [short] if short else []
        left = room - sum(self._count(line) + 4 for line in head)
        return [*head, *newest([*passed, *calls], left, self._count)]

    def outputs(self, room: int) -> list[str]:
        """Large outputs that are kept, by their handles, the newest."""
        lines: list[str] = []
        similar: dict[str, int] = {}
        for handle, told in reversed(self._state.outputs.items()):
            kind = " ".join(told.text.split()[:3])
            similar[kind] = similar.get(kind, 0) + 1
            if told.seq >= self._since and similar[kind] <= MAX_SIMILAR:
                lines.append(f"{handle}: {told.text}")
        return first_of(lines[:MAX_OUTPUTS], room, self._count)

    def names(self, room: int) -> list[str]:
        """The names most in use, without those that stand beside the list."""
        state = self._state
        shown = "\n".join([*self._beside.texts, self.told])
        hidden = {name_key(name) for text in [*self._beside.texts, self.told] for name in names_of(text)}
        if not state.changed:  # the agent still looks for what to change
            state.names.own |= {name for names in state.homes.values() for name in names}
        ranked = [self._below(name) for name in state.names.ranked(state.seq, hidden)]
        literals = [text for text, uses in state.quoted.items() if len(uses) > 1 and text.strip('"') not in shown]
        lines = self._names_line("Literals", literals[::-1], int(room * LITERALS_SHARE))
        room -= sum(self._count(line) + 4 for line in lines)
        chosen = self._within(ranked, room - 12)
        paths, names = [name for name in chosen if "/" in name], [name for name in chosen if "/" not in name]
        named = [f"{title}: {', '.join(found)}" for title, found in (("Files", paths), ("Names", names)) if found]
        return [*map(defused, named), *lines]

    def _names_line(self, title: str, found: Sequence[str], room: int) -> list[str]:
        kept = self._within(found, room)
        return [f"{title}: {', '.join(kept)}"] if kept else []

    def _within(self, found: Sequence[str], room: int) -> list[str]:
        kept: list[str] = []
        for name in found:
            if room < 3:
                break
            cost = self._count(f" {name},")
            if cost <= room:
                kept.append(name)
                room -= cost
        return kept


_MADE = ("committed", "pushed", "opened")


def _passed(run: Run) -> str:
    told = f": {run.told}" if run.told else ""
    return f"Tests passed at message {run.seq}: {run.line.removeprefix('ran ')}{told}{_since(run.since)}"


def _numbered(told: Told) -> str:
    return f"({told.seq}) {told.text}"


def _long_words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"\w+", text.casefold()) if len(word) > 3 or not word.isascii())


def _since(names: Sequence[str]) -> str:
    return f" (changed since: {', '.join(names)})" if names else ""


def _command_text(request: Asked) -> str:
    text = first_lines(request.text, MAX_COMMAND_TEXT, f"the text of the command in message {request.seq}")
    return f"{one_line(request.command, 80)}, message {request.seq}:\n{text}"


def _opened(text: str) -> str:
    """The text, in which the lines at the start are joined until the first is long enough."""
    first, *rest = text.split("\n")
    while rest and len(first) < 60 and not rest[0].lstrip().startswith("“"):
        first = f"{first} {rest.pop(0).strip()}".rstrip()
    return "\n".join([first, *rest])
