"""Addresses of PostgreSQL databases: what they may say, and that no password is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash_storage.databases import location_of, name_of, open_store
from contextstash_storage.errors import BadInputError, StoreError
from contextstash_storage.transaction import parse_address

SECRET = "s3cr%40t"
ADDRESS = f"postgresql://me:{SECRET}@db.example:5433/stash?sslmode=require"


def test_a_shown_address_holds_no_password() -> None:
    for text in (ADDRESS, "postgres://me@db.example/stash?password=s3cr%40t"):
        address = parse_address(text)
        assert name_of(address) == text
        for shown in (str(address), repr(address)):
            assert "s3cr" not in shown
            assert "me@db.example" in shown


@pytest.mark.parametrize("text", ["postgresql:stash", "postgresql://db.example:port/stash"])
def test_a_broken_address_is_refused_with_words(text: str) -> None:
    with pytest.raises(BadInputError, match=r"PostgreSQL"):
        location_of(text)


def test_anything_else_is_a_file() -> None:
    assert location_of("~/stash.db") == Path("~/stash.db").expanduser()


async def test_a_server_that_cannot_be_reached_is_named_without_the_password(tmp_path: Path) -> None:
    address = location_of(f"postgresql://me:{SECRET}@/stash?host={tmp_path}")
    with pytest.raises(StoreError, match="cannot be opened") as raised:
        await open_store(address)
    assert "s3cr" not in str(raised.value)
    assert "postgresql://me@" in str(raised.value)
