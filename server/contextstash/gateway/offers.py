"""What one server offers: its tools, prompts, resources and resource templates, all pages of the lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from mcp import MCPError
from mcp.types import PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool

MAX_PAGES = 100
"""Pages read of one list. A guess: it stops a server whose list never ends from blocking the others."""


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
        prompts=await _pages(session.list_prompts, "prompts") if has and has.prompts else (),
        resources=await _pages(session.list_resources, "resources") if has and has.resources else (),
        templates=await _templates(session) if has and has.resources else (),
    )


async def _templates(session: Any) -> tuple[ResourceTemplate, ...]:
    try:
        return await _pages(session.list_resource_templates, "resource_templates")
    except MCPError:  # older servers have resources but no templates, and return an error
        return ()


async def _pages(ask: Callable[..., Awaitable[Any]], name: str) -> tuple[Any, ...]:
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        found += getattr(page, name)
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found)
