"""A survey of the servers behind a gateway: what each offers, or why it is unavailable."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from mcp.client import Client

from contextstash.gateway.directory import Directory
from contextstash.gateway.fleet import FIRST_LIST_SECONDS
from contextstash.gateway.server import Gateway


@dataclass(frozen=True, slots=True)
class ServerSurvey:
    """One server: the offered names of its tools, the numbers of its prompts and resources, why it is unavailable,
    which items are renamed (original and offered name), and the names of its environment variables."""

    server: str
    tools: tuple[str, ...]
    prompts: int
    resources: int
    problem: str | None
    renamed: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()


CHECK_SECONDS = 2 * FIRST_LIST_SECONDS
"""Seconds that a check waits for servers that are starting: longer than a client's first list, because a slow start on
a busy machine is not a fault."""


def survey(gateway: Gateway) -> list[ServerSurvey]:
    """Start the servers, list what each offers, and stop them."""
    return anyio.run(_survey, gateway)


async def _survey(gateway: Gateway) -> list[ServerSurvey]:
    gateway.fleet.first_list_seconds = CHECK_SECONDS
    async with Client(gateway.server(), cache=None):
        directory = await gateway.fleet.directory()
        return [
            ServerSurvey(
                server=name,
                tools=tuple(offered for offered, (origin, _) in directory.tools.items() if origin.server == name),
                prompts=len(upstream.offer.prompts),
                resources=len(upstream.offer.resources) + len(upstream.offer.templates),
                renamed=_renamed(directory, name),
                variables=upstream.variables,
                problem=None if upstream.connected else upstream.problem or "it is still starting",
            )
            for name, upstream in gateway.fleet.upstreams.items()
        ]


def _renamed(directory: Directory, server: str) -> tuple[tuple[str, str], ...]:
    """The original and offered names of a server's items that were renamed: the name is ours or a host's, several
    servers have it, or no provider accepts it."""
    lists = (directory.tools, directory.prompts, directory.resources, directory.templates)
    return tuple(
        (origin.name, offered)
        for listed in lists
        for offered, (origin, _) in listed.items()
        if origin.server == server and origin.name != offered
    )
