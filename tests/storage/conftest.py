"""Session stores in databases of their own, and one session in each.

A test whose `store` is a SessionStore holds for every back end, and runs with each; one whose `store` is a SqliteStore
is about the embedded store alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from contextstash_storage.databases import open_store as open_store_at
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Address
from tests.support.postgres_server import new_store_address
from tests.support.stored_sessions import new_session

Opener = Callable[[], Awaitable[SessionStore]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    annotations = metafunc.function.__annotations__
    if annotations.get("store") == "SessionStore" or "open_store" in annotations:
        postgres = pytest.param("postgres", marks=pytest.mark.postgres)
        metafunc.parametrize("back_end", ["sqlite", postgres], indirect=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stash.db"


@pytest.fixture
def back_end(request: pytest.FixtureRequest) -> str:
    """The kind of store that a test runs with."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
async def open_store(back_end: str, path: Path) -> AsyncIterator[Opener]:
    """Opens the test's database, as each of several processes would."""
    opened: list[SessionStore] = []
    location: Path | Address = path if back_end == "sqlite" else new_store_address()

    async def open_it() -> SessionStore:
        opened.append(await open_store_at(location))
        return opened[-1]

    yield open_it
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Opener) -> SessionStore:
    opened = await open_store()
    await new_session(opened)
    return opened
