"""`contextstash proxy`: stands between a client and the model API."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.options import AddressType, StashOpener, opener_options

if TYPE_CHECKING:
    pass

DEFAULT_UPSTREAM = "https://api.anthropic.com"


@click.command("proxy")
@click.option(
    "--listen",
    type=AddressType(),
    metavar="HOST:PORT",
    default="127.0.0.1:8788",
    show_default=True,
    help="This machine only.",
)
@click.option("--upstream", metavar="URL", default=DEFAULT_UPSTREAM, show_default=True, help="The model API.")
@click.option("--no-prune", is_flag=True, help="Record the requests, but change none.")
@click.option("--keep-tokens", type=click.IntRange(min=0), help="How many tokens of the newest tool results stay.")
@click.option("--configured", is_flag=True, hidden=True, help="The client is known to have our server.")
@click.option("--project", hidden=True, help="The folder in which the client was started.")
@click.option("--window", type=int, hidden=True, help="The size at which the client was told to compact.")
@click.option("--descriptor", type=int, hidden=True, help="A socket that listens already.")
@click.option("-v", "--verbose", is_flag=True, help="Log each prune to standard error.")
@opener_options
def proxy(
    opener: StashOpener,
    listen: tuple[str, int],
    no_prune: bool,
    keep_tokens: int | None,
    configured: bool,
    project: str | None,
    window: int | None,
    **served: Any,
) -> None:
    """Stand between a client and the model API, and send old tool outputs as placeholders when its cache has expired.

    Set the client's base URL to the printed address, or let `contextstash run` do it.
    """
    from contextstash.configuration.api_key import api_key_from
    from contextstash.mcp.serve import opener as stash_opener
    from contextstash.proxy.plan import DEFAULT_KEEP_TOKENS, ProxyOptions
    from contextstash.proxy.serve import ServedProxy, serve_proxy
    from contextstash.proxy.supervisor import SECRET_VARIABLE, UPSTREAM_VARIABLE

    host, port = listen
    served["upstream"] = os.environ.pop(UPSTREAM_VARIABLE, served["upstream"])
    serve_proxy(
        ServedProxy(
            options=ProxyOptions(
                keep_tokens=DEFAULT_KEEP_TOKENS if keep_tokens is None else keep_tokens,
                prune=not no_prune,
                configured=configured,
                project=project,
                window=window,
            ),
            open_stash=stash_opener(opener.serving(api_key=api_key_from(os.environ))),
            host=host,
            port=port,
            database=opener.file,
            at_once=True,
            secret=os.environ.pop(SECRET_VARIABLE, None),
            **served,
        )
    )
