"""`contextstash gateway`: serve other MCP servers, and archive their long outputs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from contextstash.base.plain_logs import configure_logs
from contextstash.cli.options import StashOpener, opener_options
from contextstash.configuration.setting_layers import sets_output_limits
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.gateway.config import GatewayConfig
    from contextstash.gateway.server import Gateway

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
@click.option(
    "--tools",
    type=click.Choice(["retrieval", "agent", "all"]),
    default="retrieval",
    show_default=True,
    help="Which tools of contextstash to offer too; retrieval: only get_archived_output.",
)
@click.option("--session", metavar="ID", help="The session of the outputs; its limits apply.")
@click.option(
    "--check", is_flag=True, help="Start the servers, print what each offers and which variables it gets, and exit."
)
@opener_options
def gateway(
    opener: StashOpener, config: Path, tools: Literal["retrieval", "agent", "all"], session: str | None, check: bool
) -> None:
    """Serve the tools, resources and prompts of other MCP servers, with limited outputs.

    An output of more than 20,000 characters, or over the limits of the settings, is archived and replaced by a
    preview with a handle. The entry of a server may hold limits for the server or one tool, and lists of allowed and
    denied tools, under the key "contextstash".
    """
    from contextstash.gateway.config import read_config
    from contextstash.gateway.serve import build_gateway, run_gateway

    configure_logs()
    read = read_config(config.expanduser(), os.environ)
    _warn_of_problems(read)
    limits = DEFAULT_LIMITS if not sets_output_limits(opener.settings.settings_layer(None)) else None
    built = build_gateway(read, opener.serving(), tools, session_id=session, limits=limits)
    if check:
        sys.exit(_checked(built))
    run_gateway(built)


def _checked(built: Gateway) -> int:
    """Print what each server offers. Returns 1 if a server is unavailable, else 0."""
    from contextstash.cli.output import print_table
    from contextstash.gateway.serve import check

    found = check(built)
    print_table(
        ["server", "tools", "prompts", "resources", "names"],
        [
            [
                _plain(each.server),
                len(each.tools),
                each.prompts,
                each.resources,
                _plain(each.problem or ", ".join(each.tools)),
            ]
            for each in found
        ],
    )
    for each in found:
        for name, offered in each.renamed:
            click.echo(f"{_plain(each.server)}: '{_plain(name)}' is offered as '{_plain(offered)}'")
    for each in found:
        if each.variables:
            click.echo(f"{_plain(each.server)} gets these variables: {_plain(', '.join(each.variables))}")
    return int(any(each.problem for each in found))


def _plain(text: str) -> str:
    """A server's text without the characters that control a terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _warn_of_problems(config: GatewayConfig) -> None:
    for name, problem in config.problems.items():
        click.echo(f"contextstash: server '{_plain(name)}' is skipped: {_plain(problem)}", err=True)
    for remark in config.remarks:
        click.echo(f"contextstash: {_plain(remark)}", err=True)
    if not config.entries:
        raise BadInputError("The file has no server that can be used.")
