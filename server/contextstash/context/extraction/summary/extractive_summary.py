"""The extractive summary: what an agent needs to continue, taken verbatim from its session without a model.

Deterministic, linear in the length of the session, and incremental: earlier summaries of the same form are merged
section by section. The newest evidence is right: how things stand (errors, open items, the last state) is taken from
the newest messages, or without messages from the newest summary.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contextstash.context.extraction.actions import Action, actions_of, as_run, is_dialog
from contextstash.context.extraction.attempts import failed_attempts, joined_attempts
from contextstash.context.extraction.errors import changes_from, failures, file_names, label_of
from contextstash.context.extraction.files.file_actions import file_uses
from contextstash.context.extraction.files.names_in_use import below_in_list, name_lines
from contextstash.context.extraction.files.session_files import base_of, changes_by_message, file_lines, without_names
from contextstash.context.extraction.findings import Finding, changes_of, reports_of, standing, statements_of
from contextstash.context.extraction.summary.audit import facts_of, is_of_the_moment
from contextstash.context.extraction.summary.client_state import without_state
from contextstash.context.extraction.summary.section_budget import Item, cut_middle, fill
from contextstash.context.extraction.summary_format import (
    CURRENT,
    Section,
    Sections,
    in_place,
    joined,
    merged,
    read_summaries,
)
from contextstash.context.extraction.todos import is_plan_call, plan_lines, stated_open_items
from contextstash.context.extraction.turns import Turn
from contextstash.context.extraction.user.requests_and_rules import (
    Request,
    dialog_decisions,
    is_carried_over,
    requests_of,
    without_notes,
)
from contextstash.context.extraction.user.valid_decisions import weighted_decisions
from contextstash.context.extraction.work_done import Done, commits, work_done
from contextstash.context.extraction.work_under_way import loaded_skill, under_way
from contextstash.context.text.imitations import defused
from contextstash.context.text.sanitize import clip, one_line
from contextstash.context.tool_outputs.digest import digest_output, still_running

Count = Callable[[str], int]

MAX_LAST_ACTIONS = 6
"""Newest tool calls in the section on the last state."""

TASK_SHARE = 0.22
"""The share of the summary that the task may take at first: what it shows of the constraints is not repeated below. A
little above the share of its section in `section_budget.SHARES`."""

NAMES_SHARE = 0.32
"""The share of the summary that the names in use may take. More would keep more of the names that are needed next, and
leave less room for what is read."""

MAX_FINDINGS = 24
"""Findings that may be shown, the most valuable ones: a page for a reader."""

MAX_SIMILAR_OUTPUTS = 2
"""Outputs of similar calls that are listed by handle, so that one kind does not fill the list."""

CUT = " […] "
"""Stands in a shortened text for what was removed from its middle."""

MAX_INDEXED_OUTPUTS = 8
"""Outputs that are listed by handle, about a line each; search finds the others."""

MIN_INDEXED_LENGTH = 400
"""Outputs with fewer characters are not listed by handle: their digest already says most of it."""


def extract_summary(
    turns: Sequence[Turn],
    *,
    previous: str | None = None,
    standing: str | None = None,
    superseded: bool = False,
    instructions: str | None = None,
    history: Sequence[Turn] = (),
    shown: Sequence[Turn] = (),
    words_kept: bool = False,
    names_share: float = NAMES_SHARE,
    first_seq: int = 0,
    max_tokens: int,
    count: Count,
) -> str:
    """A summary of the turns and of `previous` with at most `max_tokens` tokens, counted with `count`; empty if not
    even one line fits. Findings and rules that contain words of `instructions` are preferred to others.

    `previous` are the summaries that it replaces; `standing` are those that stay before it, from which it only takes
    how things stand. With `superseded`, a newer summary stays after it and says how things stand. `history` are more
    turns than `turns`, also those that an earlier summary tells, from which the names in use and how things stand are
    taken; `shown` are those that stay in the view after the summary: names that they contain are not repeated. With
    `words_kept`, the user's words stand next to the summary and are left out of it. The names in use take at most
    `names_share` of it. `first_seq` is the first message that the summary replaces.
    """
    material = _read(turns, history, previous, standing, instructions, words_kept=words_kept, first_seq=first_seq)
    task = _task(material, history, int(max_tokens * TASK_SHARE), count)
    files = _files(material)
    base = base_of(files[0].text) if files else ""
    tried = _tried(material)
    done, findings = _done_and_findings(material, tried)
    sections = {
        Section.TASK: task,
        Section.EARLIER: _earlier(material),
        Section.DECISIONS: _decisions(material, "\n".join(item.text for item in task)),
        Section.DONE: done,
        Section.FILES: files,
        Section.TRIED: tried,
        Section.ERRORS: _errors(material),
        Section.FINDINGS: findings,
        Section.OPEN: _open_items(material),
        Section.STATE: _state(material, base, int(max_tokens * SAID_SHARE), count),
        Section.ARCHIVED: _archived(material, base),
        Section.POINTERS: _pointers(material),
    }
    told = "\n".join(item.text for section in NAMING for item in sections[section])
    sections[Section.NAMES] = _names(material, history, shown, told, base, int(max_tokens * names_share), count)
    hidden = {*(OF_USER if words_kept else ()), *(CURRENT if superseded else ())}
    sections = {section: items for section, items in sections.items() if section not in hidden}
    return fill(sections, max_tokens, count)


NAMING = (Section.FILES, Section.TRIED, Section.ERRORS)
"""The sections whose names are not repeated in the list of names."""

OF_USER = (Section.TASK, Section.DECISIONS)
"""The sections with the user's words."""


def _below(text: str, base: str) -> str:
    """The text with paths relative to the base folder, as in the section on files."""
    return text.replace(f"{base}/", "") if base else text


@dataclass(frozen=True, slots=True)
class _Material:
    """What a summary is made from: the `turns` that it replaces, with what they contain, and the summaries before. The
    turns that are `known` are at least these, and all end with the same message. `changed` are the files that they
    changed, by message."""

    turns: Sequence[Turn]
    actions: Sequence[Action]
    requests: Sequence[Request]
    carried: Sequence[str]
    known: Sequence[Turn]
    known_actions: Sequence[Action]
    known_requests: Sequence[Request]
    changed: Mapping[int, Sequence[str]]
    known_changed: Mapping[int, Sequence[str]]
    summaries: Sequence[Sections]
    before: Sections
    current: Sections
    last_said: str
    last_said_seq: int
    instruction_words: frozenset[str]
    words_kept: bool = False
    first_seq: int = 0

    def instruction_weight(self, text: str) -> float:
        """The additional weight of a text with words of the instructions. It is more than a finding has
        otherwise."""
        return 3.0 if self.instruction_words and self.instruction_words & _long_words(text) else 0.0

    def old(self, section: Section) -> Sequence[str]:
        """The items of the summaries before the turns."""
        return (self.current if section in CURRENT else self.before).get(section, ())

    def weights(self, items: Sequence[str], new: Mapping[str, float], old: float) -> list[Item]:
        """The items, oldest first, with the weights in `new`; of those of earlier summaries the newest has the highest
        weight, near `old`."""
        return [
            Item(item, weight=new.get(item, old + place / (len(items) + 1)) + self.instruction_weight(item))
            for place, item in enumerate(items)
        ]


def _long_words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"\w+", text.casefold()) if len(word) > 3 or not word.isascii())


def _read(
    turns: Sequence[Turn],
    history: Sequence[Turn],
    previous: str | None,
    standing: str | None,
    instructions: str | None,
    *,
    words_kept: bool,
    first_seq: int,
) -> _Material:
    requests, carried = requests_of(turns)
    more = bool(turns) and len(history) > len(turns) and history[-1].seq == turns[-1].seq
    known = history if more else turns
    known_actions = actions_of(known)
    known_changed = changes_by_message(known_actions)
    own = {turn.seq for turn in turns}
    said, said_seq = "", -1
    for turn in turns:
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if turn.role == "assistant" and block.type == "text" and text.strip():
                said, said_seq = text, turn.seq
    summaries = read_summaries(previous) if previous else []
    earlier = read_summaries(standing) if standing else []
    return _Material(
        turns=turns,
        actions=[action for action in known_actions if action.seq in own],
        known=known,
        known_actions=known_actions,
        known_requests=requests_of(known)[0] if more else requests,
        changed={seq: paths for seq, paths in known_changed.items() if seq in own},
        known_changed=known_changed,
        requests=requests,
        carried=carried,
        summaries=summaries,
        before=joined(summaries),
        current=joined([*earlier, *summaries]),
        last_said=said,
        last_said_seq=said_seq,
        instruction_words=_long_words(instructions or ""),
        words_kept=words_kept,
        first_seq=first_seq,
    )


def _task(material: _Material, history: Sequence[Turn], room: int, count: Count) -> list[Item]:
    """The first request, then the later ones; long ones are shortened unless there is room for all their words. Of
    those that an earlier summary shortened, the words are taken from the history."""
    wanted = [request for request in material.requests if not request.is_reply]
    texts = [defused(request.text) for request in wanted]
    old = list(material.old(Section.TASK))
    if any(CUT in text for text in old):
        said = [defused(request.text) for request in requests_of(history)[0]]
        old = [next((text for text in said if _is_cut_of(line, text)), line) for line in old]
    items: list[Item] = []
    for place, text in enumerate(in_place(old, texts)):
        first, whole = place == 0, text
        if first and count(text) > room * 2 // 3:
            text = cut_middle(text, room * 2 // 3, count) or clip(text, 200)
        elif not first:
            # In characters: 1,200 are about 300 tokens; of a longer text the end often has the actual request.
            text = clip(text, 1_200) if len(text) <= 2_400 else f"{text[:900]} […] {text[-300:]}"
        items.append(Item(text, weight=1e6 if first else float(place), cut=True, whole=whole if whole != text else ""))
    return items


def _is_cut_of(line: str, text: str) -> bool:
    """Whether the line is the text without parts of its middle."""
    start, *rest = " ".join(line.split()).split(CUT)
    words = " ".join(text.split())
    return (
        bool(rest) and len(words) > len(start) + len(rest[-1]) and words.startswith(start) and words.endswith(rest[-1])
    )


def _earlier(material: _Material) -> list[Item]:
    before = [without_notes(text) for text in material.old(Section.EARLIER)]
    texts = merged(before, [defused(text) for text in material.carried])
    seqs = [turn.seq for turn in material.turns if turn.kind == "summary" or any(map(is_carried_over, turn.texts))]
    if material.actions and material.actions[-1].seq > max(seqs, default=-1):
        texts = [without_state(text) for text in texts]
    return [Item(text, weight=float(place), cut=True, headed=True) for place, text in enumerate(texts)]


def _decisions(material: _Material, shown: str) -> list[Item]:
    decisions = weighted_decisions(material.old(Section.DECISIONS), material.requests, material.actions, shown)
    return [
        Item(text, weight=weight + material.instruction_weight(text), cut=len(text) > 400)
        for text, weight in decisions.items()
    ]


def _files(material: _Material) -> list[Item]:
    before = [summary.get(Section.FILES, ()) for summary in material.summaries]
    lines = ((weight, one_line(line, len(line))) for weight, line in file_lines(material.actions, *before))
    return [Item(without_names(line), weight, whole=line) for weight, line in lines]


def _names(
    material: _Material, history: Sequence[Turn], shown: Sequence[Turn], told: str, base: str, room: int, count: Count
) -> list[Item]:
    lines = name_lines(history or material.turns, material.old(Section.NAMES), shown, room, count, told)
    lines = [defused(below_in_list(line, base)) for line in lines]
    return [Item(line, weight=float(-place), listed=True) for place, line in enumerate(lines)]


def _errors(material: _Material) -> list[Item]:
    found = failures(material.known_actions, material.known_changed, material.old(Section.ERRORS))
    return [Item(failure.line(), weight=failure.seq) for failure in found]


def _tried(material: _Material) -> list[Item]:
    new = failed_attempts(material.turns, material.actions, material.changed)
    lines = joined_attempts(material.old(Section.TRIED), new, material.actions)
    return [Item(line, weight=float(place)) for place, line in enumerate(lines)]


_NUMBERED = re.compile(r"(?:\((\d{1,12})\) )?(.*)", re.DOTALL)


def _old_lines(material: _Material, section: Section) -> list[tuple[int, str]]:
    """What an earlier summary tells of messages before the known ones, each with its message, -1 if that is unknown."""
    first = material.known[0].seq if material.known else math.inf
    lines = (match.groups() for line in material.old(section) if (match := _NUMBERED.fullmatch(line)))
    return [(int(seq or -1), text) for seq, text in lines if int(seq or -1) < first]


def _numbered(seq: int, text: str) -> str:
    return f"({seq}) {text}" if seq >= 0 else text


def _done_and_findings(material: _Material, tried: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """What was done and what was found; what the agent reported as done is told once."""
    found = statements_of(material.known, skip=material.last_said_seq)
    committed = [action.seq for action in material.known_actions if commits(action)]
    reports = reports_of(found, [*material.known_changed, *committed])
    findings = [each for each in found if each not in reports]
    return _done(material, reports), _findings(material, findings, "\n".join(item.text for item in tried))


def _done(material: _Material, reports: Sequence[Finding]) -> list[Item]:
    """The commits and pull requests, what the agent reported as done, and its newest changes in its own words."""
    reported = max((each.seq for each in reports), default=-1)
    done = work_done(material.known, material.known_actions, material.known_changed, reported)
    done += [Done(each.seq, each.text) for each in reports]
    done = sorted((each for each in done if each.seq >= material.first_seq), key=lambda each: each.seq)
    done = [*(Done(seq, text) for seq, text in _old_lines(material, Section.DONE)), *done]
    return [
        Item(line, weight=float(place), whole=f"{line}\n{each.more}" if each.more else "")
        for place, each in enumerate(done)
        if (line := _numbered(each.seq, one_line(each.text, len(each.text))))
    ]


def _findings(material: _Material, found: Sequence[Finding], tried: str) -> list[Item]:
    """The agent's findings that still hold, each with its message. Those that tell a failed attempt stand in `tried`,
    and not here again."""
    before = [Finding(text, 1.0, seq, closing=True) for seq, text in _old_lines(material, Section.FINDINGS)]
    new = [each for each in found if each.seq >= material.first_seq]
    held = standing([*before, *new], changes_of(material.known_actions, material.known_changed))
    items = [
        Item(_numbered(each.seq, each.text), weight=each.value + material.instruction_weight(each.text))
        for each in held
        if each.text not in tried
    ]
    least = sorted((item.weight for item in items), reverse=True)[:MAX_FINDINGS]
    return [item for item in items if item.weight >= least[-1]]


def _open_items(material: _Material) -> list[Item]:
    old = material.old(Section.OPEN)
    if material.turns:
        plan = plan_lines(material.known_actions, old, [request.seq for request in material.known_requests])
        decided = dialog_decisions(material.known_actions)
        working = under_way(
            material.known,
            material.known_requests,
            decided,
            words_kept=material.words_kept,
            before=old,
            task=material.old(Section.TASK),
        )
        loaded = loaded_skill(material.known, material.known_requests, material.turns[0].seq)
        said = stated_open_items(material.last_said) if material.turns[-1].ends_work else []
        lines = [*plan, *filter(None, (working, loaded)), *said]
    else:
        lines = list(old)
    return [Item(defused(line), weight=float(-place), cut="\n" in line) for place, line in enumerate(lines)]


LAST_MESSAGE = "The assistant's last message"

SAID_SHARE = 0.08
"""The share of the summary that the assistant's last message may take before the newest calls have room. Half of what a
summary reserves for the last state."""

MIN_OPENING = 60
"""Characters. A shorter first line, such as "Here is the result:", says nothing without the next one."""


def _opened(text: str) -> str:
    """The text, in which the lines at the start are joined until the first is long enough."""
    first, *rest = text.split("\n")
    while rest and len(first) < MIN_OPENING and not rest[0].lstrip().startswith("“"):
        first = f"{first} {rest.pop(0).strip()}".rstrip()
    return "\n".join([first, *rest])


def _state(material: _Material, base: str, room: int, count: Count) -> list[Item]:
    """What the assistant said last, the test run that holds, and the newest calls with what they showed, each with its
    message."""
    before = material.old(Section.STATE)
    if not material.turns:
        return [
            Item(line, weight=3.0 if line.startswith(LAST_MESSAGE) else float(place), cut=line.startswith(LAST_MESSAGE))
            for place, line in enumerate(before)
        ]
    items = [Item(line, weight=3.0, cut=True) for line in before if line.startswith(LAST_MESSAGE)]
    if material.last_said:
        said = f"{LAST_MESSAGE} ({material.last_said_seq}): {_opened(defused(material.last_said.strip()))}"
        short = cut_middle(said, room, count)
        items = [Item(short or said, weight=3.0, cut=True, whole=said if short else "")]
    passed = _tests_passed(material)
    items += [Item(line, weight=2.5) for line in passed]
    last = [action for action in material.known_actions if not _is_told(action, material.words_kept, passed)]
    # Of equal lines, such as several changes of one file, the newest.
    lines = {_action_line(action, base): action.seq for action in last[-MAX_LAST_ACTIONS:]}
    for place, (line, seq) in enumerate(sorted(lines.items(), key=lambda entry: entry[1])):
        items.append(Item(f"({seq}) {line}", weight=1.0 + place / MAX_LAST_ACTIONS))
    return items


def _is_told(action: Action, words_kept: bool, passed: Sequence[str]) -> bool:
    """Whether a call is told elsewhere: one that only writes the plan, a dialog with the user, the run whose tests
    passed."""
    if is_plan_call(action) or (words_kept and is_dialog(action.tool)):
        return True
    return bool(action.tests) and any(line.startswith(_passed_at(action.seq)) for line in passed)


def _passed_at(seq: int) -> str:
    return f"Tests passed at message {seq}: "


_PASSED = re.compile(r"Tests passed at message \d{1,12}: `[^`]+`(?:: \d+ passed)?")


_RUNS_TESTS = re.compile(r"test|spec|tox|nox|check|verify", re.IGNORECASE)
"""What the command of a test run contains; another one, such as a reviewer, may print what a test run printed."""


def _tests_passed(material: _Material) -> list[str]:
    """The newest test run, if all of its tests passed, with the files that were changed after it."""
    runs = [action for action in material.known_actions if action.tests and _RUNS_TESTS.search(action.command or "")]
    old = next((line for line in material.old(Section.STATE) if _PASSED.match(line)), "")
    since, first, told = list[str](), 0, ""
    if runs and runs[-1].tests and not runs[-1].failed:
        run, count = runs[-1], runs[-1].tests.passed
        told = f"{_passed_at(run.seq)}`{label_of(run)}`{f': {count} passed' if count else ''}"
        first = run.seq + 1
    elif not runs and old:
        told, _, changed = old.partition(" (changed since: ")
        since = changed.rstrip(")").split(", ") if changed else []
    since += changes_from(material.known_changed, first)
    return [f"{told} (changed since: {', '.join(file_names(since))})" if since else told] if told else []


def _action_line(action: Action, base: str) -> str:
    call = _call(action, base, MAX_SHOWN_COMMAND if action.command is not None else 100)
    if action.output is None:
        return f"{call}: no result yet"
    if action.refused:
        return f"{call}: refused by the user"
    if _is_plain_change(action):
        return f"{call}: {_what_changed(action, call, base) or 'done'}"
    if not action.output.text.strip() and not action.output.exit_code and (told := _what_changed(action, call, base)):
        return f"{call}: {told}"
    printed = action.output.text if action.failed else _below(action.output.text, base)  # an error is quoted as it is
    digest = digest_output(action.tool, action.argument, printed, action.is_error)
    code = action.output.exit_code
    state = f"exit {code}: " if code else still_running(action.output)
    return f"{call}: {state}{digest}"


def _what_changed(action: Action, call: str, base: str) -> str:
    """The first line that a change adds, or else removes, marked as in a diff; empty if that is not known. With the
    file, if the call as it is shown does not name it."""
    for use in file_uses(action):
        file = "" if use.path.rpartition("/")[2] in call else f"{_below(use.path, base)}: "
        if use.text is not None:
            return f"{file}{len(use.text.splitlines())} lines"
        for each in use.replaced:
            old, new = each.old.split("\n"), each.new.split("\n")
            added = (f"+ {line.strip()}" for line in new if line.strip() and line not in old)
            removed = (f"- {line.strip()}" for line in old if line.strip() and line not in new)
            if line := next(added, "") or next(removed, ""):
                return file + one_line(line, MAX_CHANGED_LINE)
    return ""


MAX_CHANGED_LINE = 100
"""Characters that are shown of a line that was changed."""

MAX_SHOWN_COMMAND = 160
"""Characters that are shown of a command, as many as of one that failed."""


def _is_plain_change(action: Action) -> bool:
    """Whether a tool changed a file: what it prints then repeats the path or the text."""
    if action.command is not None or action.failed or action.is_error:
        return False
    return any(use.verb not in ("read", "run") for use in file_uses(action))


def _call(action: Action, base: str, most: int = 100) -> str:
    """The call in one line: a command as it was run, else the tool with its argument."""
    if action.command is not None:
        return f"ran `{one_line(as_run(action.command), most)}`"
    argument = "" if action.argument.startswith("*** Begin Patch") else _below(action.argument, base)
    if argument.startswith("/") and len(argument) > most:  # of a path, the end names the file
        argument = f"…{argument[1 - most :]}"
    return f"{one_line(action.tool, 40)} {one_line(argument, most)}".strip()


def _archived(material: _Material, base: str) -> list[Item]:
    """The outputs that are most likely to be needed again: large, recent or failed ones; the newest of repeated
    calls."""
    changed = {path for paths in material.changed.values() for path in paths}
    newest = {
        (action.tool, action.argument): (place, action)
        for place, action in enumerate(material.actions)
        if action.handle and action.output and len(action.output.text) >= MIN_INDEXED_LENGTH
        if not (material.words_kept and is_dialog(action.tool))
    }
    lines: dict[str, float] = {}
    similar: Counter[str] = Counter()
    for place, action in sorted(newest.values(), key=lambda entry: -entry[0]):
        call = _call(action, base)
        kind = " ".join(call.split()[:4])
        similar[kind] += 1
        if similar[kind] > MAX_SIMILAR_OUTPUTS:
            continue
        size = len(action.output.text) if action.output else 0
        value = math.log10(max(10, size)) + 2.0 * place / len(material.actions)
        value += action.failed + (action.argument in changed)
        printed = _below(action.output.text, base) if action.output else ""
        digest = digest_output(action.tool, action.argument, printed, action.is_error, 100)
        lines[f"{action.handle}: {call}: {digest}"] = value
    known = {line.partition(":")[0] for line in lines}
    old = [line for line in material.old(Section.ARCHIVED) if line.partition(":")[0] not in known]
    shown = [*old, *sorted(lines, key=lambda line: lines[line])][-MAX_INDEXED_OUTPUTS:]
    return material.weights(shown, lines, 2.0)


def _pointers(material: _Material) -> list[Item]:
    """The pointers of an earlier summary; if there are new messages, without those that they make obsolete."""
    lines = list(material.old(Section.POINTERS))
    if material.turns:
        lines = [line for line in lines if not any(map(is_of_the_moment, facts_of([line])))]
    return [Item(line, weight=float(-place)) for place, line in enumerate(lines)]
