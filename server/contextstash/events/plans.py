"""Plans: the to-do lists that agents write with tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contextstash.events.calls import Call

Entries = Mapping[str, tuple[str, str]]
"""The texts of tasks by their numbers, each with its state: "todo", "doing", "done" or "gone"."""

_NEW = "new"
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
_PLAN_TOOLS = re.compile(
    r"(?:todo_?(?:write|read)|write_?todos|update_?plan|task_?(?:create|update|list|get))", re.IGNORECASE
)


@dataclass(slots=True)
class Plan:
    """The tasks of the newest plan by their numbers, as the call in message `seq` left them; with the requests
    since then."""

    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    seq: int = -1
    asked_since: list[int] = field(default_factory=list)

    def texts(self, *states: str) -> list[str]:
        """The tasks in these states."""
        return [text for state, text in self.tasks.values() if state in states]

    def take(self, call: Call) -> None:
        """Take over what a call says of the plan, if it says anything."""
        if call.is_error or call.refused:
            return
        tool = call.tool.lower().replace("_", "")
        if reader := _TASK_TOOLS.get(tool):
            changed = reader(call)
            for number, (state, text) in changed.items():
                self._change(number, state, text)
        elif _LIST_TOOLS.search(call.tool) and (entries := _entries(call.arguments)) is not None:
            changed = self.tasks = entries
        else:
            return
        if changed or tool not in _TASK_TOOLS:
            self.seq, self.asked_since = call.seq, []

    def _change(self, number: str, state: str, text: str) -> None:
        if number in self.tasks:
            before, known = self.tasks[number]
            self.tasks[number] = (state or before, f"#{number}: {text}" if text else known)
        elif text and state:
            number = str(len(self.tasks) + 1) if number == _NEW else number
            self.tasks[number] = (state, f"#{number}: {text}")  # the agent needs the number to update the task


def is_plan_call(call: Call) -> bool:
    """Whether a call only writes or reads the plan, which the open items show."""
    return bool(_PLAN_TOOLS.fullmatch(call.tool))


def _entries(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]] | None:
    items = next((items for key in _LIST_KEYS if isinstance(items := arguments.get(key), list)), None)
    if items is None:
        return None
    read = [_entry(item) for item in items]
    return {str(place): entry for place, entry in enumerate(read) if entry[1]}


def _entry(item: Any) -> tuple[str, str]:
    if isinstance(item, str):
        return "todo", item
    if not isinstance(item, dict):
        return "todo", ""
    text = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), "")
    return _state(item.get("status", "")), text


def _state(status: object) -> str:
    return _STATES.get(str(status).lower(), "todo")


_SUBJECT = re.compile(r"created successfully: ([^\n]+)")
_NUMBER = re.compile(r"[Tt]ask #?(\d{1,6})")
"""What Claude Code's TaskCreate says of a new task."""


def _created(call: Call) -> Entries:
    printed = call.output.text[:400] if call.output else ""
    named, said = _NUMBER.search(printed), _SUBJECT.search(printed)
    subject = _entry(dict(call.arguments))[1] or (said.group(1).strip() if said else "")
    return {named.group(1) if named else _NEW: ("todo", subject)} if subject else {}


def _updated(call: Call) -> Entries:
    """The task that a call updates; its state or its text is empty if it stays."""
    number = str(call.arguments.get("taskId", call.arguments.get("task_id", "")))
    subject, status = call.arguments.get("subject"), call.arguments.get("status")
    state = _STATES.get(str(status).lower(), "")
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
        number: (_state(status), _BLOCKED.sub("", subject).strip())
        for number, status, subject in sorted(found, key=lambda task: int(task[0]))
    }


_TASK_TOOLS = {"taskcreate": _created, "taskupdate": _updated, "tasklist": _printed, "taskget": _printed}
