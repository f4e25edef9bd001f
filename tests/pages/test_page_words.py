"""Messages of the service on the pages: without what only a tool or a command can do."""

from __future__ import annotations

from typing import get_args

import pytest

from contextstash.pages.templates import for_pages
from contextstash.window.thresholds import next_step
from contextstash_storage.records import Level


@pytest.mark.parametrize("followed", [True, False])
def test_no_next_step_names_a_tool(followed: bool) -> None:
    steps = [for_pages(next_step(level, followed=followed)) for level in get_args(Level)]
    assert not any("_" in step for step in steps)
    assert all(step.endswith(".") for step in steps if step)


def test_the_rest_of_a_message_stays() -> None:
    assert for_pages("There is no session 'x'. list_sessions names those there are.") == "There is no session 'x'."
    assert (
        for_pages("Have the client compact soon; afterwards search_history finds it.")
        == "Have the client compact soon."
    )
