"""`contextstash receipt`: what was billed, and what contextstash saved or cost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from contextstash.stash import Stash
from contextstash_storage.records import ProxiedSession, ProxiedTotals
from contextstash_storage.sqlite import open_sqlite
from tests.cli.conftest import call, result
from tests.support.command_line import CommandLine
from tests.support.stashes import round_of

NOW = 1_800_000_000.0
"""2027-01-15, the last request of the sessions of these tests."""


def proxied(folder: Path, **sessions: ProxiedSession) -> CommandLine:
    """The command line on a database with these proxied sessions."""

    async def write() -> None:
        async with Stash(await open_sqlite(folder / "sessions.db")) as stash:
            for name, state in sessions.items():
                await stash.record_messages(round_of(1, "log line\n"), session_id=name, model="claude-sonnet-4-5")
                await stash.store.put_note(name, state)

    asyncio.run(write())
    return CommandLine(folder)


def state(paid: float, direct: float, **fields: object) -> ProxiedSession:
    """Two requests that cost so many dollars, and would have cost so many."""
    totals = {"requests": 2, "priced": 2, "sent": 10_000, "direct": 20_000}
    dollars = {"dollars_paid": paid, "dollars_direct": direct}
    return ProxiedSession.model_validate({**totals, **dollars, "last_at": NOW, **fields})


@pytest.mark.parametrize(
    ("paid", "direct", "said"),
    [
        (3.0, 4.0, "Billed 3.00 US dollars; without contextstash about 4.00: 1.00 saved (25.0 %)."),
        (3.0, 2.5, "Billed 3.00 US dollars; without contextstash about 2.50: 0.50 lost (20.0 %)."),
        (0.0031, 0.0042, "Billed 0.0031 US dollars; without contextstash about 0.0042: 0.0011 saved (26.2 %)."),
    ],
)
def test_the_first_line_is_the_bill_with_what_was_saved_or_lost(
    tmp_path: Path, paid: float, direct: float, said: str
) -> None:
    line = proxied(tmp_path, one=state(paid, direct))
    shown = line.run("receipt", "one").stdout
    assert shown.splitlines()[0] == said
    assert "list prices" in shown
    assert line.json("receipt", "one")["dollars_saved"] == pytest.approx(direct - paid)


def test_a_receipt_since_a_day_leaves_out_what_came_before(tmp_path: Path) -> None:
    before = ProxiedTotals(requests=1, priced=1, sent=4_000, direct=8_000, dollars_paid=1.0, dollars_direct=1.5)
    line = proxied(tmp_path, one=state(3.0, 4.0, days={"2027-01-10": ProxiedTotals(), "2027-01-15": before}))
    found = line.json("receipt", "one", "--since", "2027-01-12")
    assert (found["requests"], found["dollars_billed"], found["dollars_saved"]) == (1, 2.0, 0.5)
    assert line.json("receipt", "one", "--since", "2027-01-16")["requests"] == 0


def test_a_receipt_of_imported_requests_says_that_nothing_could_be_saved(contextstash: CommandLine) -> None:
    path = contextstash.folder / "build.json"
    path.write_text(json.dumps([{"role": "user", "content": "Build it."}, call(0), result(0), call(1)]))
    assert contextstash.run("import", path).returncode == 0
    said = contextstash.run("receipt", "--since", "2020-01-01").stdout
    assert "which contextstash did not change: nothing could be saved in them" in said


def test_without_a_request_it_says_how_to_record_some(tmp_path: Path) -> None:
    assert "contextstash run CLIENT" in proxied(tmp_path, one=ProxiedSession()).run("receipt", "--since", "7d").stdout


def test_a_time_that_is_none_is_refused_with_examples(tmp_path: Path) -> None:
    done = proxied(tmp_path, one=state(1.0, 1.0)).run("receipt", "--since", "yesterday")
    assert done.returncode == 2
    assert "Examples: 7d, 2026-05-31" in done.stderr
