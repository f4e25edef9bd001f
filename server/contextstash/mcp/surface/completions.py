"""Completions: session ids and handles by their first characters, for prompts and resource templates."""

from __future__ import annotations

from mcp import MCPError
from mcp.server import MCPServer
from mcp.types import (
    INVALID_PARAMS,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.sendable import sendable_text
from contextstash.mcp.surface.error_texts import protocol_errors, unknown_name
from contextstash.mcp.surface.prompts import PROMPTS

MAX_VALUES = 100
"""The protocol's limit of values in one result of `completion/complete`."""


def add_completions(server: MCPServer[None], stash: LazyStash) -> None:
    """Register the completion handler."""

    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion:
        await _check(server, ref)
        values = await _values(stash, argument.name, argument.value)
        return Completion(values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES)

    server.completion()(complete)  # type: ignore[no-untyped-call]


async def _check(server: MCPServer[None], ref: PromptReference | ResourceTemplateReference) -> None:
    if isinstance(ref, PromptReference):
        if ref.name not in PROMPTS:
            raise MCPError(INVALID_PARAMS, unknown_name("prompt", ref.name, PROMPTS))
        return
    known = [template.uri_template for template in await server.list_resource_templates()]
    if ref.uri not in known and not any(uri.partition("{?")[0] == ref.uri for uri in known):
        raise MCPError(INVALID_PARAMS, unknown_name("resource template", ref.uri, known))


async def _values(stash: LazyStash, name: str, prefix: str) -> list[str]:
    if name not in ("session_id", "handle"):
        return []
    with protocol_errors(f"Completing {name}"):
        opened = await stash.get()
        complete = opened.complete_session_id if name == "session_id" else opened.complete_handle
        return [sendable_text(value) for value in await complete(prefix)]
