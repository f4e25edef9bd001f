"""The plan: its entries and their states are those that the newest call wrote or printed."""

from __future__ import annotations

import pytest

from contextstash.events.state import fold
from tests.support.turns import Script


def plan_of(script: Script) -> list[tuple[str, str]]:
    return [*fold(script.turns).plan.tasks.values()]


def created() -> Script:
    script = Script().user("Go.")
    for number, subject in enumerate(("Parse dates", "Write docs"), 1):
        script.call("TaskCreate", {"subject": subject}, f"Task #{number} created successfully")
    return script


@pytest.mark.parametrize(
    ("tool", "arguments", "output", "is_error"),
    [
        ("TaskList", {}, "No tasks found", False),
        ("TodoWrite", {"todos": [{"content": "New"}]}, "Error", True),
        ("TaskUpdate", {"taskId": "9", "status": "completed"}, "Updated task #9", False),
    ],
)
def test_a_call_that_says_nothing_of_a_known_task_or_failed_changes_nothing(
    tool: str, arguments: dict[str, object], output: str, is_error: bool
) -> None:
    script = created()
    before = plan_of(script)
    assert plan_of(script.call(tool, arguments, output, is_error=is_error)) == before
