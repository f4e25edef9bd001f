"""The plan: its entries and their states are those that the newest call wrote or printed."""

from __future__ import annotations

from contextstash.context.extraction.actions import actions_of
from contextstash.context.extraction.todos import todo_lines
from tests.support.turns import Script


def plan_of(script: Script, before: tuple[str, ...] = ()) -> list[str] | None:
    return todo_lines(actions_of(script.turns), before)


def test_the_states_that_a_list_of_tasks_prints_are_the_true_ones() -> None:
    script = Script().user("Go.")
    for number, subject in enumerate(("Parse dates", "Write docs"), 1):
        script.call("TaskCreate", {"subject": subject}, f"Task #{number} created successfully")
    script.call("TaskUpdate", {"taskId": "1", "status": "in_progress"}, "Updated task #1")
    printed = "#3 [pending] Tag it [blocked by #2]\n#1 [completed] Parse dates\n#2 [in_progress] Write docs"
    assert plan_of(script.call("TaskList", {}, printed)) == [
        "[~] #2: Write docs (in progress)",
        "[ ] #3: Tag it",
        "[x] done: #1: Parse dates",
    ]


def test_a_task_that_is_shown_alone_updates_the_plan_of_an_earlier_summary() -> None:
    before = ("[~] #1: Parse dates (in progress)", "[ ] #2: Write docs")
    script = Script().call("TaskGet", {"taskId": "1"}, "Task #1: Parse dates\nStatus: completed\nDescription: All.")
    assert plan_of(script, before) == ["[ ] #2: Write docs", "[x] done: #1: Parse dates"]


def test_a_list_that_prints_no_task_changes_nothing() -> None:
    assert plan_of(Script().call("TaskList", {}, "No tasks found")) is None
