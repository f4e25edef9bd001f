"""The agent's plan: its tasks, as the newest calls of a client's tools for plans left them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contextstash.events.calls import Call

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
class Plan:
    """The tasks of the newest plan by their numbers, as the call in message `seq` left them, each with its state,
    "todo", "doing", "done" or "gone", and its text; `asked_since` is the newest request since then."""

    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    seq: int = -1
    asked_since: int = -1

    def texts(self, *states: str) -> list[str]:
        """The tasks in these states."""
        return [text for state, text in self.tasks.values() if state in states]

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
            self._change(created[1] if created else "", "todo", text)
        elif tool == "taskupdate":
            self._change(str(arguments.get("taskId", "")), state, text)
        elif tool == "tasklist" and call.output and (listed := _TASK_LISTED.findall(call.output.text)):
            for number, status, text in listed:
                self._change(number, _TASK_STATES.get(status, "todo"), text)
        elif PLAN_TOOLS.search(call.tool) and (tasks := _tasks_in(arguments)) is not None:
            self.tasks = tasks
        else:
            return
        self.seq, self.asked_since = call.seq, -1

    def _change(self, number: str, state: str, text: str) -> None:
        if number in self.tasks:
            before, known = self.tasks[number]
            self.tasks[number] = (state or before, f"#{number}: {text}" if text else known)
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
