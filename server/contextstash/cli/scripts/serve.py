"""`contextstash serve`: run the MCP server. Imports nothing heavy before the server starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from contextstash.cli.options import AddressType, StashOpener, opener_options
from contextstash.configuration.api_key import CLIENT_SECRET
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.mcp.http.options import HttpOptions

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
@click.option(
    "--tls-certificate",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --public-url: serve https itself, with this certificate and its chain, in PEM.",
)
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="The private key of the certificate.")
@click.option("--stateful", is_flag=True, help="With --http: keep a session for each client of the older protocol.")
@click.option(
    "--rate-limit",
    type=click.FloatRange(0),
    metavar="N",
    default=100,
    show_default=True,
    help="With --http: requests a second of each token; 0 for no limit.",
)
@click.option("--oauth-issuer", metavar="URL", help="With --public-url: accept this authorization server's tokens too.")
@click.option(
    "--oauth-owner-claim",
    metavar="NAME",
    default="sub",
    show_default=True,
    help="The claim of its tokens that names the owner.",
)
@click.option(
    "--oauth-client-id", metavar="ID", help="Ask it about tokens that are not JWTs, as this client of it (RFC 7662)."
)
@click.option(
    "--oauth-client-secret-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"The file of that client's secret. [default: {CLIENT_SECRET}]",
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
    from contextstash.ui.serve import mounted_ui

    serve_http(options, serving, mounted_ui)


def _http_options(address: tuple[str, int] | None, given: Mapping[str, Any]) -> HttpOptions | None:
    """The options of a server over HTTP; None for stdio. Raises BadInputError if they do not fit together."""
    from contextstash.mcp.http.options import HttpOptions

    if address is None and (given["public_url"] is not None or given["stateful"]):
        raise BadInputError("--public-url and --stateful are for a server over HTTP: pass --http HOST:PORT too.")
    if (given["tls_certificate"] is None) != (given["tls_key"] is None):
        raise BadInputError("A certificate and its key belong together: pass --tls-certificate and --tls-key.")
    if given["tls_certificate"] is not None and given["public_url"] is None:
        raise BadInputError("A certificate is for a name: pass --public-url https://NAME/mcp too.")
    if given["oauth_client_id"] is not None and given["oauth_issuer"] is None:
        raise BadInputError("--oauth-client-id is a client of an issuer: pass --oauth-issuer URL too.")
    if given["oauth_issuer"] is not None and given["public_url"] is None:
        raise BadInputError("--oauth-issuer issues tokens for this server's public address: pass --public-url URL too.")
    others = {name: value for name, value in given.items() if name != "oauth_client_secret_file"}
    secret = _client_secret(given["oauth_client_id"], given["oauth_client_secret_file"])
    return None if address is None else HttpOptions(*address, **others, oauth_client_secret=secret)


def _client_secret(client: str | None, file: Path | None) -> str | None:
    """The secret of this server's client at the issuer; None if it has none. It comes from a file or the environment,
    because every user of a machine sees a program's arguments."""
    if client is None:
        if file is not None:
            raise BadInputError("--oauth-client-secret-file is the secret of a client: pass --oauth-client-id ID too.")
        return None
    try:
        secret = os.environ.get(CLIENT_SECRET, "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInputError(f"The file of the client's secret cannot be read ({type(error).__name__}).") from None
    if not secret.strip():
        raise BadInputError(
            f"--oauth-client-id needs the client's secret: set {CLIENT_SECRET}, or pass --oauth-client-secret-file."
        )
    return secret.strip()
