"""`contextstash proxy`: stands between a client and the model API."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.automatic_retention import automatic_retention
from contextstash.cli.options import DATABASE, PRESET, SET, settings_from
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.mcp.serve import ServeOptions
    from contextstash_storage.databases import Location

DEFAULT_UPSTREAM = "https://api.anthropic.com"


@click.command("proxy")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:8788", show_default=True, help="This machine only.")
@click.option("--upstream", metavar="URL", default=DEFAULT_UPSTREAM, show_default=True, help="The model API.")
@click.option(
    "--no-record", is_flag=True, help="Store nothing: then only outputs that the model can read again are pruned."
)
@click.option("--no-prune", is_flag=True, help="Record the requests, but change none.")
@click.option("--keep-tokens", type=click.IntRange(min=0), help="How many tokens of the newest tool results stay.")
@click.option("--http2", is_flag=True, help="HTTP/2 to the model API. Needs the extra http2.")
@click.option("--configured", is_flag=True, hidden=True, help="The client is known to have our server.")
@click.option("--project", hidden=True, help="The folder in which the client was started.")
@click.option("--window", type=int, hidden=True, help="The size at which the client was told to compact.")
@click.option("--descriptor", type=int, hidden=True, help="A socket that listens already.")
@click.option("-v", "--verbose", is_flag=True, help="Log each prune to standard error.")
@DATABASE
@PRESET
@SET
def proxy(
    listen: str,
    upstream: str,
    no_record: bool,
    no_prune: bool,
    keep_tokens: int | None,
    http2: bool,
    configured: bool,
    project: str | None,
    window: int | None,
    descriptor: int | None,
    verbose: bool,
    db: Location | None,
    preset: str | None,
    given: tuple[str, ...],
) -> None:
    """Stand between a client and the model API, and send old tool outputs as placeholders if that is cheaper.

    Set the client's base URL to the printed address, or let `contextstash run` do it.
    """
    from contextstash.mcp.serve import opener
    from contextstash.proxy.headers import SECRET_VARIABLE
    from contextstash.proxy.http.serve import ServedProxy, serve_proxy
    from contextstash.proxy.options import ProxyOptions
    from contextstash.proxy.requests.preparation import DEFAULT_KEEP_TOKENS

    host, port = address(listen)
    serve_proxy(
        ServedProxy(
            upstream=upstream,
            options=ProxyOptions(
                keep_tokens=DEFAULT_KEEP_TOKENS if keep_tokens is None else keep_tokens,
                record=not no_record,
                prune=not no_prune,
                configured=configured,
                project=project,
                window=window,
            ),
            open_stash=opener(_options(db, preset, given)),
            host=host,
            port=port,
            descriptor=descriptor,
            database=_database_file(db),
            http2=http2,
            verbose=verbose,
            at_once=True,
            secret=os.environ.pop(SECRET_VARIABLE, None),
        )
    )


def address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT. Raises BadInputError if it is something else."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise BadInputError(f"--listen takes HOST:PORT, not '{text}'. Example: --listen 127.0.0.1:8788")
    return host.strip("[]") or "127.0.0.1", int(port)


def _options(db: Location | None, preset: str | None, given: tuple[str, ...]) -> ServeOptions:
    """The options of the stash that records the requests."""
    from contextstash.configuration.api_key import api_key_from
    from contextstash.mcp.serve import ServeOptions

    settings = settings_from(preset, given)
    return ServeOptions(
        db=db,
        settings=settings.settings_layer,
        api_key=api_key_from(os.environ),
        consent=settings.may_call_model,
        on_open=automatic_retention(db, settings),
    )


def _database_file(db: Location | None) -> Path | None:
    """The file of the database; None if it is on a server."""
    from contextstash.configuration.locations import default_database

    location = db or default_database()
    return location if isinstance(location, Path) else None
