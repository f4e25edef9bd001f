"""An MCP server that manages an agent's context window.

    from contextstash import open_stash

    async with open_stash() as stash:
        session = stash.session("job-7", model="claude-opus-4-5")
        request = await session.request(messages, system=system, tools=tools)
        reply = await client.messages.create(messages=request.messages, **request.options)
        messages += await session.reply(reply)

This is contextstash in a program, without the server; `open_stash_sync` is the same without asyncio.
"""

from importlib import import_module

__version__ = "0.1.0"

__all__ = ["__version__", "open_stash", "open_stash_sync"]


def __getattr__(name: str) -> object:
    """The functions for programs are imported at their first use, so that the server and its hooks start quickly. Type
    checkers read `__init__.pyi`."""
    if name not in __all__:
        raise AttributeError(f"module 'contextstash' has no attribute '{name}'")
    return getattr(import_module("contextstash.library.open_stash"), name)
