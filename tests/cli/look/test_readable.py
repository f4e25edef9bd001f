"""Times, sizes and ids as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime

from contextstash.cli.console import when
from contextstash.queries.sessions import named_by

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC).astimezone()


def test_a_time_is_as_exact_as_it_is_near() -> None:
    assert when(NOW.isoformat(), NOW) == NOW.strftime("%H:%M")
    assert when("2026-03-05T12:00:00+00:00", NOW) == "05 Mar"
    assert when("2025-03-05T12:00:00+00:00", NOW) == "2025-03-05"
    assert when(None, NOW) == "-"


def test_a_beginning_names_a_session_though_its_sub_agents_begin_with_it_too() -> None:
    assert named_by(["3f2a-1", "3f2a-1.agent-a", "3f2a-1.agent-b"]) == "3f2a-1"
    assert named_by(["3f2a-1", "3f2a-2"]) is None
    assert named_by([]) is None
