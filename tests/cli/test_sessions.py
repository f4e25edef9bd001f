"""`contextstash sessions`: the list of sessions."""

from __future__ import annotations

from tests.support.command_line import ANSI
from tests.support.orchard import Orchard


def test_sessions_are_listed_with_their_ids_uncut_and_no_colour_in_a_pipe(orchard: Orchard) -> None:
    output = orchard.run("sessions").stdout
    assert orchard.session in output
    assert ANSI not in output


def test_sessions_are_filtered_by_project_and_title_and_a_wrong_filter_says_so(orchard: Orchard) -> None:
    [found] = orchard.json("sessions", "orchard", "--sort", "tokens")["sessions"]
    assert found["session_id"] == orchard.session
    assert orchard.run("sessions", "--project", "nowhere").stdout == "No session matches.\n"
