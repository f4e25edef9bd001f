"""`contextstash token`: make, list and revoke the tokens that clients of a server over HTTP present."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from contextstash.cli.options import DATABASE, JSON
from contextstash.cli.output import print_table
from contextstash.web.access_tokens import DEFAULT_SCOPES, SCOPES
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location
    from contextstash_storage.tokens import Token, TokenStore

T = TypeVar("T")


@click.group()
def token() -> None:
    """Make, list and revoke the tokens of clients that use a server over HTTP."""


@token.command("create")
@click.argument("name")
@click.option("--owner", metavar="NAME", help="Whose sessions it gives access to. [default: the name of the token]")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=DEFAULT_SCOPES,
    show_default=True,
    help="What it allows; may be given several times: read, write (record, prune, …), admin (delete).",
)
@click.option("--days", type=click.IntRange(1, 36_500), metavar="N", help="It expires after N days. [default: never]")
@DATABASE
@JSON
def create(
    db: Location | None, name: str, owner: str | None, scopes: tuple[str, ...], days: int | None, as_json: bool
) -> None:
    """Make a token and print it, once: only its hash is stored.

    A client sends it as the header `Authorization: Bearer TOKEN`. Two tokens with the same owner see the same sessions;
    the owner of what is recorded without a server on this machine is `local`.
    """
    from contextstash.web.access_tokens import create_token, now

    expires = now() + timedelta(days=days) if days else None
    given = sorted(set(scopes), key=SCOPES.index)

    async def work(tokens: TokenStore) -> str:
        return await create_token(tokens, name, owner or name, given, expires)

    secret = _run(db, work)
    if as_json:
        shown = {"name": name, "owner": owner or name, "scopes": given, "token": secret}
        click.echo(json.dumps(shown | ({"expires_at": expires.isoformat()} if expires else {})))
        return
    click.echo(secret)
    click.echo(
        f"The token {name} for the sessions of {owner or name}: {', '.join(given)}. It is not shown again.", err=True
    )


@token.command("list")
@DATABASE
@JSON
def list_(db: Location | None, as_json: bool) -> None:
    """List the tokens, without their secrets."""

    async def work(tokens: TokenStore) -> list[Token]:
        return await tokens.read_all()

    found = _run(db, work)
    if as_json:
        click.echo(json.dumps({"tokens": [_fields(each) for each in found]}))
    elif not found:
        click.echo("No tokens yet: contextstash token create NAME")
    else:
        print_table(["name", "owner", "scopes", "created", "last used", "expires"], [_row(each) for each in found])


@token.command("revoke")
@click.argument("name")
@DATABASE
def revoke(db: Location | None, name: str) -> None:
    """Revoke a token: running servers refuse it within two seconds."""

    async def work(tokens: TokenStore) -> bool:
        return await tokens.remove(name)

    if not _run(db, work):
        raise NotFoundError(f"There is no token {name}. contextstash token list shows the tokens.")
    click.echo(f"Revoked {name}.")


def _run(database: Location | None, work: Callable[[TokenStore], Awaitable[T]]) -> T:
    """Run `work` on the tokens of a database."""
    from contextstash.configuration.database import open_database

    async def with_store() -> T:
        async with await open_database(database) as store:
            return await work(store.tokens)

    return asyncio.run(with_store())


def _fields(token: Token) -> dict[str, Any]:
    times = {"created_at": token.created_at, "expires_at": token.expires_at, "last_used_at": token.last_used_at}
    given = {name: at.isoformat() for name, at in times.items() if at is not None}
    return {"name": token.name, "owner": token.owner, "scopes": list(token.scopes), **given}


def _row(token: Token) -> list[object]:
    times = (token.created_at, token.last_used_at, token.expires_at)
    return [
        token.name,
        token.owner,
        " ".join(token.scopes),
        *(None if at is None else at.strftime("%Y-%m-%d %H:%M") for at in times),
    ]
