"""`contextstash ui`: show sessions in a browser."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from contextstash.cli.options import StashOpener, opener_options

if TYPE_CHECKING:
    pass


HOST = "127.0.0.1"

MAX_TRIED = 20
"""Ports that are tried, before the command says that none is free."""


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True, help="0: any free port.")
@click.option("--open/--no-open", "browser", default=True, help="Whether to open a browser.  [default: open]")
@opener_options
def ui(opener: StashOpener, port: int, browser: bool) -> None:
    """Show sessions in a browser: windows over time, messages, archived outputs, summaries, cost, search.

    Only this machine can reach the pages; the printed address contains the token that opens them.
    """
    from contextstash.mcp.serve import opener as stash_opener
    from contextstash.pages.app import serve_ui

    source = click.get_current_context().get_parameter_source("port")
    if source is ParameterSource.DEFAULT:
        port = next_free(port)
    serve_ui(stash_opener(opener.serving()), port, _open if browser else _open_nothing)


def next_free(port: int) -> int:
    """The port, or if another program has it, the next one that is free; the same one if none of them is."""
    for candidate in range(port, port + MAX_TRIED):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, candidate))
            except OSError:
                continue
        if candidate != port:
            click.echo(f"Port {port} is in use, perhaps by another contextstash ui: this is on {candidate}.", err=True)
        return candidate
    return port


def _open(address: str) -> None:
    """Open a browser if there is a display; without one Python would start a text browser in the terminal."""
    if sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)


def _open_nothing(_: str) -> None:
    """For --no-open."""
