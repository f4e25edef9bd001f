"""Commands that serve until they are stopped, and the tokens of their clients: serve, ui, proxy, gateway, token."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from contextstash.base.process import configure_logs
from contextstash.cli.console import print_table
from contextstash.cli.options import Number, address, opener_options, stash_command
from contextstash.clients.client import ANTHROPIC
from contextstash.operations import DEFAULT_SCOPES, SCOPES
from contextstash_storage.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash.stash_opener import StashOpener


@click.command()
@click.option(
    "--tools",
    type=click.Choice(["agent", "all"]),
    default="agent",
    show_default=True,
    help="List the tools for models, or with all also those for programs, such as record_messages and get_context.",
)
@click.option(
    "--follow",
    metavar="CLIENT",
    help="Record this client's own transcripts from disk: claude-code, codex, gemini, opencode, pi, or one of yours.",
)
@click.option("--http", type=address, metavar="HOST:PORT", help="Serve over HTTP instead of stdin and stdout.")
@click.option("--public-url", metavar="URL", help="With --http: the https:// address that clients use.")
@click.option("--oauth-issuer", metavar="URL", help="With --public-url: accept this authorization server's tokens too.")
@opener_options
def serve(
    opener: StashOpener,
    tools: Literal["agent", "all"],
    follow: str | None,
    http: tuple[str, int] | None,
    public_url: str | None,
    oauth_issuer: str | None,
) -> None:
    """Serve MCP over stdin and stdout, or over HTTP to clients that send a token (contextstash token)."""
    if follow is not None:
        from contextstash.clients.follow import find_transcripts

        find_transcripts(follow)  # a client that is not known is said at once, not at the first call
    if http is None and public_url is not None:
        raise BadInputError("--public-url is for a server over HTTP: pass --http HOST:PORT too.")
    if oauth_issuer is not None and public_url is None:
        raise BadInputError("--oauth-issuer issues tokens for this server's public address: pass --public-url URL too.")
    serving = replace(opener, follow=follow)
    if http is None:
        from contextstash.mcp.stdio import serve_stdio

        serve_stdio(serving, tools)
        return
    from contextstash.mcp.http import serve_http

    serve_http(serving, tools, *http, public_url=public_url, oauth_issuer=oauth_issuer)


@click.command()
@click.option("--port", type=Number(0, 65_535), metavar="N", default=0, help="[default: any free one]")
@click.option("--open/--no-open", "browser", default=True, help="Whether to open a browser.  [default: open]")
@opener_options
def ui(opener: StashOpener, port: int, browser: bool) -> None:
    """Show sessions in a browser: windows over time, messages, archived outputs, summaries, cost, search.

    Only this machine can reach the pages; the printed address contains the token that opens them.
    """
    from contextstash.pages.app import serve_ui

    # Without a display Python would start a text browser in the terminal.
    shown = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    serve_ui(opener, port, webbrowser.open if browser and shown else str)


@click.command("proxy")
@click.option(
    "--listen",
    type=address,
    metavar="HOST:PORT",
    default="127.0.0.1:8788",
    show_default=True,
    help="This machine only.",
)
@click.option("--upstream", metavar="URL", default=ANTHROPIC, show_default=True, help="The model API.")
@click.option("--no-prune", is_flag=True, help="Record the requests, but change none.")
@opener_options
def proxy(opener: StashOpener, listen: tuple[str, int], no_prune: bool, upstream: str) -> None:
    """Stand between a client and the model API, and send old tool outputs as placeholders when its cache has expired.

    Set the client's base URL to the printed address, or let `contextstash run` do it.
    """
    from contextstash.proxy.app import serve_proxy
    from contextstash.proxy.edits import ProxyOptions

    serve_proxy(ProxyOptions(upstream, prune=not no_prune), opener, *listen)


DEFAULT_LIMITS = {"chars": 20_000, "tokens": None}
"""Of one output, if no setting limits outputs: about 5,000 tokens, at 4 characters a token. No limit in tokens: a text
within this length need not be counted."""


@click.command(epilog="Example: contextstash gateway --config ~/servers.json")
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path),
    help="The file with the servers, in the format of clients: {'mcpServers': {...}}.",
)
@opener_options
def gateway(opener: StashOpener, config: Path) -> None:
    """Serve the tools of other MCP servers, with limited outputs.

    An output of more than 20,000 characters, or over the limits of the settings, is archived and replaced by a
    preview with a handle.
    """
    from contextstash.gateway import Gateway, read_servers
    from contextstash.mcp.stdio import run_until_signal
    from contextstash.outputs.limits import sets_output_limits

    configure_logs()
    entries = read_servers(config.expanduser(), os.environ)
    limits = DEFAULT_LIMITS if not sets_output_limits(opener.settings.settings_layer(None)) else None
    server = Gateway(entries, opener, limits=limits).server()
    asyncio.run(run_until_signal(server, tools_change=True))


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
@click.option("--days", type=Number(1, 36_500), metavar="N", help="It expires after N days. [default: never]")
async def create(stash: Stash, name: str, owner: str | None, scopes: tuple[str, ...], days: int | None) -> Any:
    """Make a token and print it, once: only its hash is stored.

    A client sends it as the header `Authorization: Bearer TOKEN`. Two tokens with the same owner see the same sessions;
    the owner of what is recorded without a server on this machine is `local`.
    """
    from contextstash.mcp.tokens import create_token

    expires = datetime.now(UTC) + timedelta(days=days) if days else None
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
    tokens = []
    for each in await stash.store.read_tokens():
        times = {"created_at": each.created_at, "expires_at": each.expires_at}
        given = {name: at.isoformat(timespec="minutes") for name, at in times.items() if at is not None}
        tokens.append({"name": each.name, "owner": each.owner, "scopes": list(each.scopes), **given})

    def show() -> None:
        if not tokens:
            click.echo("No tokens yet: contextstash token create NAME")
            return
        rows = [[each["name"], each["owner"], " ".join(each["scopes"]), each.get("expires_at")] for each in tokens]
        print_table(["name", "owner", "scopes", "expires"], rows)

    return {"tokens": tokens}, show


@stash_command("revoke")
@click.argument("name")
async def revoke(stash: Stash, name: str) -> Any:
    """Revoke a token: running servers refuse it from then on."""
    if not await stash.store.remove_token(name):
        raise NotFoundError(f"There is no token {name}. contextstash token list shows the tokens.")
    return {"revoked": name}, lambda: click.echo(f"Revoked {name}.")


for each in (create, list_, revoke):
    token.add_command(each)
