"""`contextstash token`: the tokens of clients that use a server over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import print_table
from contextstash.cli.options import stash_command
from contextstash.web.access_tokens import DEFAULT_SCOPES, SCOPES, create_token, now
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash_storage.notes import Token


@click.group()
def token() -> None:
    """Make, list and revoke the tokens of clients that use a server over HTTP."""


@stash_command("create")
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
async def create(stash: Stash, name: str, owner: str | None, scopes: tuple[str, ...], days: int | None) -> Any:
    """Make a token and print it, once: only its hash is stored.

    A client sends it as the header `Authorization: Bearer TOKEN`. Two tokens with the same owner see the same sessions;
    the owner of what is recorded without a server on this machine is `local`.
    """
    expires = now() + timedelta(days=days) if days else None
    whose, given = owner or name, sorted(set(scopes), key=SCOPES.index)
    secret = await create_token(stash.store, name, whose, given, expires)

    def show() -> None:
        click.echo(secret)
        said = f"The token {name} for the sessions of {whose}: {', '.join(given)}. It is not shown again."
        click.echo(said, err=True)

    times = {"expires_at": expires.isoformat()} if expires else {}
    return {"name": name, "owner": whose, "scopes": given, "token": secret, **times}, show


@stash_command("list")
async def list_(stash: Stash) -> Any:
    """List the tokens, without their secrets."""
    found = await stash.store.read_tokens()

    def show() -> None:
        if not found:
            click.echo("No tokens yet: contextstash token create NAME")
            return
        print_table(["name", "owner", "scopes", "created", "last used", "expires"], map(_row, found))

    return {"tokens": [_fields(each) for each in found]}, show


@stash_command("revoke")
@click.argument("name")
async def revoke(stash: Stash, name: str) -> Any:
    """Revoke a token: running servers refuse it within two seconds."""
    if not await stash.store.remove_token(name):
        raise NotFoundError(f"There is no token {name}. contextstash token list shows the tokens.")
    return {"revoked": name}, lambda: click.echo(f"Revoked {name}.")


for each in (create, list_, revoke):
    token.add_command(each)


def _fields(found: Token) -> dict[str, Any]:
    times = {"created_at": found.created_at, "expires_at": found.expires_at, "last_used_at": found.last_used_at}
    given = {name: at.isoformat() for name, at in times.items() if at is not None}
    return {"name": found.name, "owner": found.owner, "scopes": list(found.scopes), **given}


def _row(found: Token) -> list[object]:
    times = (found.created_at, found.last_used_at, found.expires_at)
    shown = (None if at is None else at.strftime("%Y-%m-%d %H:%M") for at in times)
    return [found.name, found.owner, " ".join(found.scopes), *shown]
