"""Open items: the newest to-do list, unanswered questions, and next steps that the assistant named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.statements import asks_itself
from contextstash.context.extraction.summary_format import is_plan_line
from contextstash.context.text.sanitize import clip, one_line
from contextstash.context.text.sentences import own_sentences

_STATES = {
    "completed": "done",
    "done": "done",
    "in_progress": "doing",
    "cancelled": "done",
    "deleted": "gone",
}
_TEXT_KEYS = ("content", "step", "subject", "title", "task", "text", "description")
_LIST_KEYS = ("todos", "plan", "items", "tasks", "todo_list")
_LIST_TOOLS = re.compile(r"todo|plan|task_?list|checklist", re.IGNORECASE)
_TASK_NUMBER = re.compile(r"[Tt]ask #?(\d{1,6})")


_PLAN_TOOLS = re.compile(
    r"(?:todo_?(?:write|read)|write_?todos|update_?plan|task_?(?:create|update|list|get))", re.IGNORECASE
)
"""Tools that only write or read the plan, which the open items show."""


def is_plan_call(action: Action) -> bool:
    """Whether a call only writes or reads the plan."""
    return bool(_PLAN_TOOLS.fullmatch(action.tool))


AS_OF = "The plan above is of message "


def plan_lines(actions: Sequence[Action], before: Sequence[str], requests: Sequence[int]) -> list[str]:
    """The newest to-do list. If entries are left and it may be old, a line says of which message it is and what the
    user said since. `before` are the open items of an earlier summary, `requests` the messages with the user's
    requests."""
    old = [line for line in before if is_plan_line(line)]
    plan = todo_lines(actions, old)
    lines = old if plan is None else plan
    if not any(line[1] != "x" for line in lines):
        return lines
    written = max((action.seq for action in actions if is_plan_call(action)), default=-1)
    told = next((line for line in before if line.startswith(AS_OF)), "") if written < 0 else ""
    if told:
        written, *said = map(int, re.findall(r"\d+", told))
        requests = sorted({*said, *requests})
    asked = ", ".join(f"({seq})" for seq in requests if seq > written)
    later = [action for action in actions if action.seq > written]
    if written < 0 or not (asked or told or len(later) > MAX_FRESH):
        return lines
    return [*lines, f"{AS_OF}{written}{f'; the user said since: {asked}' if asked else ''}."]


MAX_FRESH = 20
"""Calls after which a plan may be out of date: agents that keep one update it more often."""


def todo_lines(actions: Sequence[Action], before: Sequence[str] = ()) -> list[str] | None:
    """The newest to-do list as lines with check boxes, None if the actions do not change it. Finished entries share one
    line. `before` are such lines of an earlier summary, whose numbered entries may be updated."""
    newest: dict[str, tuple[str, str]] | None = None
    for action in actions:
        if action.is_error or action.refused:
            continue
        tool = action.tool.lower().replace("_", "")
        if tool == "taskcreate":
            newest = _read(before) if newest is None else newest
            newest = {**newest, **_created(action, len(newest) + 1)}
        elif tool == "taskupdate":
            known = _read(before) if newest is None else newest
            newest = _updated(known, action.arguments) if known else newest
        elif tool in ("tasklist", "taskget") and (printed := _printed(action)):
            newest = {**(_read(before) if newest is None else newest), **printed}
        elif _LIST_TOOLS.search(action.tool):
            entries = _entries(action.arguments)
            newest = entries if entries is not None else newest
    if newest is None:
        return None
    left = [line for state, text in newest.values() if (line := _line(state, text))]
    done = [one_line(text, 80) for state, text in newest.values() if state == "done"]
    return left + ([f"{_DONE}{clip('; '.join(done), 600)}"] if done else [])


_DONE = "[x] done: "
_NUMBERED = re.compile(r"#(\d{1,6}): ")


def _read(lines: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The entries in the lines of an earlier summary."""
    entries: dict[str, tuple[str, str]] = {}
    for line in lines:
        if line.startswith(_DONE):
            texts = [("done", text) for text in line.removeprefix(_DONE).split("; ")]
        else:
            state = "doing" if line.startswith("[~]") else "todo"
            texts = [(state, line[4:].removesuffix(" (in progress)"))]
        for entry in texts:
            named = _NUMBERED.match(entry[1])
            entries[named.group(1) if named else f"before {len(entries)}"] = entry
    return entries


def _line(state: str, text: str) -> str:
    if state in ("done", "gone"):
        return ""
    return f"[{'~' if state == 'doing' else ' '}] {one_line(text, 200)}{' (in progress)' * (state == 'doing')}"


def _entries(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]] | None:
    for key in _LIST_KEYS:
        items = arguments.get(key)
        if isinstance(items, list):
            read = [_entry(item) for item in items]
            return {str(place): entry for place, entry in enumerate(read) if entry[1]}
    return None


def _entry(item: Any) -> tuple[str, str]:
    if isinstance(item, str):
        return "todo", item
    if not isinstance(item, dict):
        return "todo", ""
    text = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), "")
    return _STATES.get(str(item.get("status", "")).lower(), "todo"), text


_SUBJECT = re.compile(r"created successfully: ([^\n]+)")
"""What Claude Code's TaskCreate says of a new task."""


def _created(action: Action, number: int) -> dict[str, tuple[str, str]]:
    printed = action.output.text if action.output else ""
    named = _TASK_NUMBER.search(printed[:200])
    key = named.group(1) if named else str(number)
    said = _SUBJECT.search(printed[:400])  # of a call that was recorded before what is read here
    subject = _entry(dict(action.arguments))[1] or (said.group(1).strip() if said else "")
    # The number is shown, because the agent needs it to update the task.
    return {key: ("todo", f"#{key}: {subject}")} if subject else {}


_PRINTED = re.compile(r"^#(\d{1,6}) \[(\w{1,20})\] ([^\n]+)", re.MULTILINE)
_PRINTED_ALONE = re.compile(r"\A\s*Task #(\d{1,6}): ([^\n]+)\nStatus: (\w{1,20})")
_BLOCKED = re.compile(r"\s*\[blocked by [^\]\n]*\]\s*\Z")
"""How Claude Code's TaskList prints each task, how its TaskGet prints one, and what may follow the subject."""


def _printed(action: Action) -> dict[str, tuple[str, str]]:
    """The tasks that a call printed, each with its state then."""
    printed = action.output.text if action.output else ""
    alone = _PRINTED_ALONE.match(printed)
    found = [(alone[1], alone[3], alone[2])] if alone else _PRINTED.findall(printed)
    return {
        number: (_STATES.get(state.lower(), "todo"), f"#{number}: {_BLOCKED.sub('', subject).strip()}")
        for number, state, subject in sorted(found, key=lambda task: int(task[0]))
    }


def _updated(tasks: dict[str, tuple[str, str]], arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    number = str(arguments.get("taskId", arguments.get("task_id", "")))
    if number not in tasks:
        return tasks
    state, text = tasks[number]
    state = _STATES.get(str(arguments.get("status", "")).lower(), state)
    subject = arguments.get("subject")
    return {**tasks, number: (state, f"#{number}: {subject}" if subject else text)}


_AHEAD = re.compile(
    r"\b(?:next(?: step)?s?[:,]|still (?:need|have|to)|remaining|todo|not yet|left to do"
    r"|follow[- ]?up|later on"
    r"|pending|outstanding|haven['’]?t|won['’]?t be able|would you like|should I|do you want|shall I"
    r"|let me know|noch (?:nicht|zu)"
    r"|als Nächstes|il reste|ensuite|falta|pendiente|осталось)\b|下一步|接下来|还需要|次に|残り",
    re.IGNORECASE,
)


def stated_open_items(text: str, most: int = 4) -> list[str]:
    """The sentences of the assistant's last text that ask a question or name what is left to do."""
    found = [
        one_line(sentence, 260)
        for sentence in own_sentences(text)
        if len(sentence) > 12
        and (_AHEAD.search(sentence) or (sentence.endswith(("?", "？")) and not asks_itself(sentence)))
    ]
    return found[-most:]
