"""`contextstash sessions`: the list of sessions."""

from __future__ import annotations

from tests.support.command_line import ANSI
from tests.support.orchard import Orchard


def test_sessions_are_listed_with_their_ids_uncut_and_no_colour_in_a_pipe(orchard: Orchard) -> None:
    output = orchard.run("sessions").stdout
    assert orchard.session in output
    assert ANSI not in output
