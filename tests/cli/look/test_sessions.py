"""`contextstash sessions`: the list of sessions."""

from __future__ import annotations

import sys

import pytest

from tests.support.command_line import ANSI, Orchard, printed_on_terminal


def test_sessions_are_listed_with_ids_that_commands_take_and_no_colour_in_a_pipe(orchard: Orchard) -> None:
    output = orchard.run("sessions").stdout
    name = output.splitlines()[1].split()[0]
    assert orchard.session.startswith(name)
    assert orchard.json("status", name)["session_id"] == orchard.session
    assert orchard.json("sessions")["sessions"][0]["session_id"] == orchard.session
    assert ANSI not in output


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_narrow_terminal_cuts_only_the_titles(orchard: Orchard) -> None:
    shown = printed_on_terminal(orchard.folder / "sessions.db", "sessions", columns=60).decode()
    assert orchard.session[:8] in shown
    assert "Reading the o" in shown


def test_sessions_are_filtered_by_project_and_title_and_a_wrong_filter_says_so(orchard: Orchard) -> None:
    [found] = orchard.json("sessions", "orchard")["sessions"]
    assert found["session_id"] == orchard.session
    assert orchard.json("sessions", "/srv/")["sessions"] == [found]
    assert orchard.run("sessions", "nowhere").stdout == "No session matches.\n"
