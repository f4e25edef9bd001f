"""Commands on a real PostgreSQL."""

from __future__ import annotations

import pytest

from contextstash.cli.app import run
from tests.support.postgres_server import new_store_address

pytestmark = [pytest.mark.postgres, pytest.mark.processes]


def test_commands_read_the_same_database_and_show_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = new_store_address().url.replace("tests@", "tests:s3cret@")
    monkeypatch.setenv("CONTEXTSTASH_DB", address)
    for command in (["sessions"], ["doctor"]):
        assert run(command) in (0, 1)
    printed = capsys.readouterr()
    assert "postgresql://tests@" in printed.out
    assert "s3cret" not in printed.out + printed.err
