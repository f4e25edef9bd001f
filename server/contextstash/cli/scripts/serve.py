"""`contextstash serve`: run the MCP server. Imports nothing heavy before the server starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from contextstash.cli.options import AddressType, StashOpener, opener_options
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.mcp.http import HttpOptions

FOLLOWED = ["auto", "claude-code", "codex", "gemini", "opencode", "pi"]


@click.command()
@click.option(
    "--tools",
    type=click.Choice(["agent", "all"]),
    default="agent",
    show_default=True,
    help="List the tools for models, or also the tools for programs.",
)
@click.option(
    "--follow",
    type=click.Choice(FOLLOWED),
    help="Record this client's own transcripts from disk; auto: of the client that starts the server.",
)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("-v", "--verbose", is_flag=True, help="Log each change of a session to standard error.")
@click.option("--json-logs", is_flag=True, help="Write each line of the log as a JSON object.")
@click.option("--http", type=AddressType(), metavar="HOST:PORT", help="Serve over HTTP instead of stdin and stdout.")
@click.option("--public-url", metavar="URL", help="With --http: the https:// address that clients use.")
@click.option("--stateful", is_flag=True, help="With --http: keep a session for each client of the older protocol.")
@click.option("--oauth-issuer", metavar="URL", help="With --public-url: accept this authorization server's tokens too.")
@click.option(
    "--oauth-owner-claim",
    metavar="NAME",
    default="sub",
    show_default=True,
    help="The claim of its tokens that names the owner.",
)
@opener_options
def serve(
    opener: StashOpener,
    tools: Literal["agent", "all"],
    follow: str | None,
    path: Path | None,
    verbose: bool,
    json_logs: bool,
    http: tuple[str, int] | None,
    **over_http: Any,
) -> None:
    """Serve MCP over stdin and stdout, or over HTTP to clients that send a token (contextstash token).

    PATH, with --follow, is the folder or file of the transcripts. [default: the client's own folder]
    """
    from contextstash.configuration.api_key import api_key_from
    from contextstash.mcp.serve import serve_http, serve_stdio

    if path is not None and follow is None:
        raise BadInputError("PATH is the folder of transcripts: pass --follow too.")
    serving = _http_options(http, over_http)
    options = opener.serving(
        tools=tools,
        follow=follow,
        follow_path=path,
        api_key=api_key_from(os.environ),
        verbose=verbose,
        json_logs=json_logs,
    )
    if serving is None:
        serve_stdio(options)
        return
    serve_http(options, serving)


def _http_options(address: tuple[str, int] | None, given: Mapping[str, Any]) -> HttpOptions | None:
    """The options of a server over HTTP; None for stdio. Raises BadInputError if they do not fit together."""
    from contextstash.mcp.http import HttpOptions

    if address is None and (given["public_url"] is not None or given["stateful"]):
        raise BadInputError("--public-url and --stateful are for a server over HTTP: pass --http HOST:PORT too.")
    if given["oauth_issuer"] is not None and given["public_url"] is None:
        raise BadInputError("--oauth-issuer issues tokens for this server's public address: pass --public-url URL too.")
    return None if address is None else HttpOptions(*address, **given)
