"""Tokens of a server's clients, in every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from contextstash.mcp.tokens import create_token, digest, now, verified
from contextstash.operations import SCOPES
from contextstash_storage.errors import BadInputError
from contextstash_storage.notes import Token
from contextstash_storage.store import SessionStore


async def test_a_token_is_found_by_its_hash_alone_and_reads_as_it_was_stored(store: SessionStore) -> None:
    token = Token(
        name="alice",
        owner="Alice Ω",
        scopes=("read", "admin"),
        created_at=now(),
        expires_at=now() + timedelta(days=1),
    )
    assert await store.add_token(token, b"\x00" * 32)
    assert await store.find_token(b"\x00" * 32) == token
    assert await store.find_token(b"\x01" * 32) is None
    assert await store.for_owner("another").read_tokens() == [token]


async def test_a_name_is_given_once_and_a_removed_token_is_gone(store: SessionStore) -> None:
    token = Token(name="laptop", owner="alice", scopes=("read",), created_at=now())
    assert await store.add_token(token, b"a" * 32)
    assert not await store.add_token(token.model_copy(update={"owner": "mallory"}), b"b" * 32)
    assert await store.find_token(b"b" * 32) is None
    assert await store.remove_token("laptop")
    assert not await store.remove_token("laptop")
    assert await store.find_token(b"a" * 32) is None


async def test_a_secret_is_verified_until_it_expires_and_is_stored_nowhere(store: SessionStore) -> None:
    secret = await create_token(store, "alice", "alice", SCOPES)
    expired = await create_token(store, "old", "alice", SCOPES, now() - timedelta(seconds=1))
    found = await verified(store, secret)
    assert found is not None
    assert (found.name, found.owner, found.scopes) == ("alice", "alice", SCOPES)
    assert await verified(store, expired) is None
    for wrong in ("", "cst_", secret[:-1], secret + "x", secret.upper(), digest(secret).hex()):
        assert await verified(store, wrong) is None
    assert all(secret not in str(each) for each in await store.read_tokens())


@pytest.mark.parametrize(
    ("name", "owner"),
    [("", "a"), ("a b", "a"), ("a\n", "a"), ("a", ""), ("a", " a"), ("a", "\x1fstaged"), ("a", "a\0")],
)
async def test_names_that_the_store_could_mistake_are_refused(store: SessionStore, name: str, owner: str) -> None:
    with pytest.raises(BadInputError):
        await create_token(store, name, owner, SCOPES)
