"""Plans: the to-do lists that agents write with tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contextstash.events.calls import Call

Entries = dict[str, tuple[str, str]]
"""The tasks by their numbers, each with its state, "todo", "doing", "done" or "gone", and its text."""

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

    tasks: Entries = field(default_factory=dict)
    seq: int = -1
    asked_since: list[int] = field(default_factory=list)

    def texts(self, *states: str) -> list[str]:
        """The tasks in these states."""
        return [text for state, text in self.tasks.values() if state in states]

    def take(self, call: Call) -> None:
        """Take over what a call says of the plan, if it says anything."""
        if call.is_error or call.refused:
            return
        changes = _task_changes(call)
        if changes is None:
            entries = _entries(call.arguments) if _LIST_TOOLS.search(call.tool) else None
            if entries is None:
                return
            self.tasks = entries
        for number, state, text in changes or ():
            self._change(number, state, text)
        self.seq, self.asked_since = call.seq, []

    def _change(self, number: str, state: str, text: str) -> None:
        if number in self.tasks:
            before, known = self.tasks[number]
            self.tasks[number] = (state or before, f"#{number}: {text}" if text else known)
        elif text and state:
            number = number or str(len(self.tasks) + 1)
            self.tasks[number] = (state, f"#{number}: {text}")  # the agent needs the number to update the task


def is_plan_call(call: Call) -> bool:
    """Whether a call only writes or reads the plan, which the open items show."""
    return bool(_PLAN_TOOLS.fullmatch(call.tool))


def _entries(arguments: Mapping[str, Any]) -> Entries | None:
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


_CREATED = re.compile(r"[Tt]ask #?(\d{1,6})")
"""What Claude Code's TaskCreate says of a new task."""


def _task_changes(call: Call) -> list[tuple[str, str, str]] | None:
    """What a call of Claude Code says of single tasks: the number of each, its state and its text, empty if it does not
    say them. None if it is another call, or says nothing."""
    tool, printed = call.tool.lower().replace("_", ""), call.output.text if call.output else ""
    status, subject = call.arguments.get("status"), call.arguments.get("subject")
    text = subject if isinstance(subject, str) else ""
    if tool == "taskcreate" and text:
        created = _CREATED.search(printed[:400])
        return [(created[1] if created else "", "todo", text)]
    if tool == "taskupdate":
        return [(str(call.arguments.get("taskId", "")), _STATES.get(str(status).lower(), ""), text)]
    return None
