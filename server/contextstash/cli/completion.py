"""Shell completion: the command that prints the script of a shell, and the completion of session ids and handles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from contextstash.stash import Stash

VARIABLE = "_CONTEXTSTASH_COMPLETE"

FILES = {
    "bash": "contextstash completion bash > ~/.local/share/bash-completion/completions/contextstash",
    "zsh": 'contextstash completion zsh > "${fpath[1]}/_contextstash"',
    "fish": "contextstash completion fish > ~/.config/fish/completions/contextstash.fish",
}

MAX_OFFERED = 50
"""Completions that are offered; further ones need more characters."""


@click.command(epilog="\b\n" + "\n".join(FILES.values()))
@click.argument("shell", type=click.Choice(list(FILES)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL. To load it in each new shell:"""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "contextstash", VARIABLE).source())


def session_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Sessions whose ids begin with `incomplete`, with their titles."""

    async def find(stash: Stash) -> list[CompletionItem]:
        found = (await stash.list_sessions(limit=MAX_OFFERED)).sessions if not incomplete else []
        titles = {line.session_id: line.title for line in found}
        ids = list(titles) or await stash.complete_session_id(incomplete)
        return [CompletionItem(each, help=titles.get(each)) for each in ids[:MAX_OFFERED]]

    return _found(context, find)


def handles(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Archived outputs whose handles begin with `incomplete`."""

    async def find(stash: Stash) -> list[CompletionItem]:
        return [CompletionItem(each) for each in (await stash.complete_handle(incomplete))[:MAX_OFFERED]]

    return _found(context, find)


def handles_and_sessions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Handles and session ids, for commands that take either."""
    if incomplete.startswith("out_"):
        return handles(context, parameter, incomplete)
    return session_ids(context, parameter, incomplete)


def _found(context: click.Context, find: Callable[[Stash], Awaitable[list[CompletionItem]]]) -> list[CompletionItem]:
    """The completions from the database; none if it does not exist or cannot be read: a key press must not fail."""

    async def look() -> list[CompletionItem]:
        from contextstash.configuration.database import open_database
        from contextstash.configuration.locations import default_database
        from contextstash.stash import Stash
        from contextstash_storage.databases import location_of

        named = context.params.get("db")
        location = location_of(str(named)) if named else default_database()
        if not isinstance(location, Path) or not location.exists():  # a key press does not wait for a network
            return []
        async with Stash(await open_database(location)) as stash:
            return await find(stash)

    try:
        return asyncio.run(look())
    except Exception:
        return []
