"""The lists of one server, all pages: tools, prompts, resources and resource templates."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from mcp import MCPError
from mcp.types import METHOD_NOT_FOUND, PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool

MAX_PAGES = 100
"""Pages read of one list, so that a list without end does not block the other servers. Later pages are not offered."""

MAX_ITEMS = 1_000
"""Items used of one list; later ones are not offered. Providers accept a few hundred tools."""

MAX_LIST_BYTES = 4 * 1024 * 1024
"""Bytes used of one list, as JSON: about a million tokens, which fill the largest windows."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offer:
    """Everything that one server lists."""

    tools: tuple[Tool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()

    def with_tools(self, offered: Callable[[Tool], bool]) -> Offer:
        """This offer with only the tools for which `offered` returns true."""
        return replace(self, tools=tuple(tool for tool in self.tools if offered(tool)))


async def read_offer(session: Any) -> Offer:
    """The lists that a connected server declares in its capabilities. Errors of its requests are raised as they are."""
    has = session.server_capabilities
    return Offer(
        tools=await _pages(session.list_tools, "tools") if has is None or has.tools else (),
        prompts=await _pages_if_any(session.list_prompts, "prompts") if has and has.prompts else (),
        resources=await _pages_if_any(session.list_resources, "resources") if has and has.resources else (),
        templates=await _templates(session) if has and has.resources else (),
    )


async def _templates(session: Any) -> tuple[ResourceTemplate, ...]:
    try:
        return await _pages(session.list_resource_templates, "resource_templates")
    except MCPError:  # older servers have resources but no templates, and return an error
        return ()


async def _pages_if_any(ask: Callable[..., Awaitable[Any]], name: str) -> tuple[Any, ...]:
    """A list; empty if the server declares it but does not have the method: its tools can still be used."""
    try:
        return await _pages(ask, name)
    except MCPError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return ()


async def _pages(ask: Callable[..., Awaitable[Any]], name: str) -> tuple[Any, ...]:
    found: list[Any] = []
    size, cursor, seen = 0, None, set[str]()
    for _ in range(MAX_PAGES):
        page = await ask(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        for item in getattr(page, name):
            size += len(item.model_dump_json())
            if len(found) == MAX_ITEMS or size > MAX_LIST_BYTES:
                logger.warning("a server's list of %s is cut after %d: it is too long", name, len(found))
                return tuple(found)
            found.append(item)
        cursor = page.next_cursor
        if not cursor or cursor in seen:
            break
        seen.add(cursor)
    return tuple(found)
