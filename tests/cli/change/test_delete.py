"""`contextstash delete`: deleting a session, after a confirmation."""

from __future__ import annotations

from tests.support.command_line import failure_of
from tests.support.orchard import Orchard


def test_a_session_is_deleted_only_if_that_is_confirmed(orchard: Orchard) -> None:
    refused = orchard.run("delete", orchard.session, typed="n\n")
    assert refused.returncode != 0
    assert orchard.json("status")["session_id"] == orchard.session
    assert orchard.json("delete", orchard.session, "--yes")["deleted"] is True
    assert "no session" in failure_of(orchard.run("status"))


def test_without_a_terminal_nothing_is_deleted(orchard: Orchard) -> None:
    assert "--yes" in failure_of(orchard.run("delete", orchard.session))
    assert orchard.json("status")["session_id"] == orchard.session
