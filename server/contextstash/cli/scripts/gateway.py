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

if TYPE_CHECKING:
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
    from contextstash.gateway.server import Gateway, run_gateway
    from contextstash.gateway.servers import read_servers

    configure_logs()
    entries = read_servers(config.expanduser(), os.environ)
    limits = DEFAULT_LIMITS if not sets_output_limits(opener.settings.settings_layer(None)) else None
    built = Gateway(entries, opener.serving(), tools, session_id=session, limits=limits)
    if check:
        sys.exit(_checked(built))
    run_gateway(built)


def _checked(gateway: Gateway) -> int:
    """Print what each server offers. Returns 1 if a server is unavailable, else 0."""
    from contextstash.cli.output import print_table
    from contextstash.gateway.server import check

    check(gateway)
    tools = gateway.names("tools")
    rows = []
    for each in gateway.upstreams:
        names = [_plain(name) for name, offered in tools.items() if offered.upstream is each]
        counts = [len(each.offer["prompts"]), len(each.offer["resources"]) + len(each.offer["resource_templates"])]
        rows.append([_plain(each.name), len(names), *counts, _plain(each.problem or ", ".join(names))])
    print_table(["server", "tools", "prompts", "resources", "names"], rows)
    for name, offered in [*tools.items(), *gateway.names("prompts").items()]:
        if name != offered.name:
            click.echo(f"{_plain(offered.upstream.name)}: '{_plain(offered.name)}' is offered as '{_plain(name)}'")
    for each in gateway.upstreams:
        if each.variables:
            click.echo(f"{_plain(each.name)} gets these variables: {_plain(', '.join(each.variables))}")
    return int(any(each.problem for each in gateway.upstreams))


def _plain(text: str) -> str:
    """A server's text without the characters that control a terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
