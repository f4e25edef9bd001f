"""Plans: the to-do lists that agents write with tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from contextstash.events.calls import Call
from contextstash.events.kinds import Planned

Entries = Mapping[str, tuple[str, str]]
"""The texts of tasks by their numbers, each with its state: "todo", "doing", "done" or "gone"."""

NEW = "new"
"""The number of a task whose number the call does not say."""

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


def is_plan_call(call: Call) -> bool:
    """Whether a call only writes or reads the plan, which the open items show."""
    return bool(_PLAN_TOOLS.fullmatch(call.tool))


def plan_of(call: Call) -> Planned | None:
    """What a call says of the plan; None if it says nothing."""
    if call.is_error or call.refused:
        return None
    tool = call.tool.lower().replace("_", "")
    if tool == "taskcreate":
        return _changed(call, _created(call))
    if tool == "taskupdate":
        return _changed(call, _updated(call.arguments))
    if tool in ("tasklist", "taskget"):
        return _changed(call, _printed(call))
    entries = _entries(call.arguments) if _LIST_TOOLS.search(call.tool) else None
    return None if entries is None else Planned(call.seq, entries)


def _changed(call: Call, entries: Entries) -> Planned | None:
    return Planned(call.seq, entries, whole=False) if entries else None


def _entries(arguments: Mapping[str, Any]) -> Entries | None:
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


def _created(call: Call) -> Entries:
    printed = call.output.text if call.output else ""
    named = _TASK_NUMBER.search(printed[:200])
    said = _SUBJECT.search(printed[:400])
    subject = _entry(dict(call.arguments))[1] or (said.group(1).strip() if said else "")
    return {named.group(1) if named else NEW: ("todo", subject)} if subject else {}


def _updated(arguments: Mapping[str, Any]) -> Entries:
    """The task that a call updates; its state or its text is empty if it stays."""
    number = str(arguments.get("taskId", arguments.get("task_id", "")))
    subject = arguments.get("subject")
    state = _STATES.get(str(arguments.get("status", "")).lower(), "")
    return {number: (state, subject if isinstance(subject, str) else "")} if number else {}


_PRINTED = re.compile(r"^#(\d{1,6}) \[(\w{1,20})\] ([^\n]+)", re.MULTILINE)
_PRINTED_ALONE = re.compile(r"\A\s*Task #(\d{1,6}): ([^\n]+)\nStatus: (\w{1,20})")
_BLOCKED = re.compile(r"\s*\[blocked by [^\]\n]*\]\s*\Z")
"""How Claude Code's TaskList prints each task, how its TaskGet prints one, and what may follow the subject."""


def _printed(call: Call) -> Entries:
    """The tasks that a call printed, each with its state then."""
    printed = call.output.text if call.output else ""
    alone = _PRINTED_ALONE.match(printed)
    found = [(alone[1], alone[3], alone[2])] if alone else _PRINTED.findall(printed)
    return {
        number: (_STATES.get(state.lower(), "todo"), _BLOCKED.sub("", subject).strip())
        for number, state, subject in sorted(found, key=lambda task: int(task[0]))
    }
