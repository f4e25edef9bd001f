"""Session stores in databases of their own, and one session in each.

A test whose `store` is a SessionStore holds for every back end, and runs with each; one whose `store` is a SqliteStore
is about the embedded store alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from contextstash_storage.sqlite import open_sqlite
from contextstash_storage.store import SessionStore
from tests.support.postgres_server import new_store_address
from tests.support.stored_sessions import new_session

Opener = Callable[[], Awaitable[SessionStore]]


def _back_ends() -> list[object]:
    postgres = [pytest.param("postgres", marks=pytest.mark.postgres)]
    return ["sqlite", *postgres]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    annotations = metafunc.function.__annotations__
    if annotations.get("store") == "SessionStore" or "open_store" in metafunc.fixturenames:
        metafunc.parametrize("back_end", _back_ends(), indirect=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stash.db"


@pytest.fixture
def back_end(request: pytest.FixtureRequest) -> str:
    """The kind of store that a test runs with."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
async def opener(back_end: str, path: Path) -> AsyncIterator[Opener]:
    """Opens the test's database, as each of several processes would."""
    opened: list[SessionStore] = []
    address = None if back_end == "sqlite" else new_store_address()

    async def open_it() -> SessionStore:
        if address is None:
            opened.append(await open_sqlite(path))
        else:
            from contextstash_storage.postgres import open_postgres

            opened.append(await open_postgres(address))
        return opened[-1]

    yield open_it
    for store in opened:
        await store.close()


@pytest.fixture
async def open_store(opener: Opener) -> Opener:
    """The same, for tests that hold for every back end."""
    return opener


@pytest.fixture
async def store(opener: Opener) -> SessionStore:
    opened = await opener()
    await new_session(opened)
    return opened
