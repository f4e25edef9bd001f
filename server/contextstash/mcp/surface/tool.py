"""The base of our tools: checked arguments, a short schema, errors that say what to do.

The SDK's `Tool` and `FuncMetadata` are not documented: only this module extends them, and tests/test_private_parts.py
has the contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, get_type_hints

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.sendable import (
    REPLACED,
    REPLACEMENT,
    dumped,
    holds_non_finite,
    holds_text,
    sendable,
    sendable_text,
)
from contextstash.mcp.surface import schemas
from contextstash.mcp.surface.error_texts import report_crash, unknown_name, wrong_arguments
from contextstash.mcp.surface.readable_text import readable
from contextstash.result_base import Result
from contextstash.session_names import whole_id
from contextstash_storage.errors import ContextstashError

Call = Callable[..., Awaitable[Any]]
"""Carries out a tool: called with the stash, and the arguments by name."""

Headline = Callable[[Any], str]
"""Makes one short line of a result, which stands first in its text."""

WholeText = Callable[[Any], str]
"""Makes the whole text of a result, for one that has a better form than its fields in turn."""


class AnswerMetadata(FuncMetadata):
    """Turns a result into structured content and the same as readable text, because some clients give their model only
    the one and some only the other. Parses JSON text only for lists and objects."""

    line: Headline
    properties: dict[str, Any]
    text: WholeText | None = None
    aside: Callable[[Any], dict[str, Any]] | None = None

    def convert_result(self, result: Any) -> CallToolResult | InputRequiredResult:
        """The result on the wire."""
        if not isinstance(result, Result):
            return super().convert_result(result)
        whole = dumped(result)
        sent = sendable(whole)
        return CallToolResult(
            content=[TextContent(type="text", text=self._text(result, sent, REPLACED if sent is not whole else ""))],
            structured_content=sent,
            _meta=sendable(self.aside(result)) if self.aside else None,
        )

    def _text(self, result: Result, sent: Any, remark: str) -> str:
        if self.text is None:
            return readable(sent, sendable_text(self.line(result)) + remark)
        whole = sendable_text(self.text(result))
        return f"{remark.strip()}\n{whole}" if remark else whole

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Some clients send lists and objects as JSON text. Strings are not parsed: a summary may be JSON."""
        parsed = super().pre_parse_json(data)
        structured = {name for name, schema in self.properties.items() if schema.get("type") in ("array", "object")}
        return {name: parsed[name] if name in structured else value for name, value in data.items()}


class StashTool(Tool):
    """A tool whose errors say what to do next."""

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Run the tool. Raises ToolError, whose message says what to do, for every failure that is not a protocol
        error."""
        arguments = sendable(arguments)
        self._refuse_unknown(arguments)
        if holds_non_finite(arguments):
            raise ToolError("The arguments hold NaN or an infinity, which are not JSON. Send a number or null.")
        try:
            result = await super().run(arguments, context, convert_result)
        except ToolError as error:
            raise ToolError(self._text(error)) from None
        return _remarked(result) if holds_text(arguments, REPLACEMENT) else result

    def _refuse_unknown(self, arguments: dict[str, Any]) -> None:
        known = self.parameters.get("properties", {})
        for name in arguments:
            if name not in known:
                raise ToolError(unknown_name(f"argument of {self.name} called", name, known))

    def _text(self, error: ToolError) -> str:
        cause = error.__cause__
        if isinstance(cause, ValidationError) and not _raised_by_tool(error):
            return wrong_arguments(cause, self.parameters.get("properties", {}))
        if isinstance(cause, ContextstashError | ToolError):
            return sendable_text(str(cause))
        return report_crash(self.name, cause or error)


def _remarked(result: Any) -> Any:
    """The result, with the remark that an argument was not taken as it may have been sent."""
    if not isinstance(result, CallToolResult):
        return result
    return result.model_copy(update={"content": [*result.content, TextContent(type="text", text=TAKEN)]})


TAKEN = "U+FFFD in the arguments stands for half of a surrogate pair, if one was sent: UTF-8 cannot hold it."
"""Added to the result of a call whose arguments may differ from what the program has."""


def _raised_by_tool(error: ToolError) -> bool:
    """The SDK wraps bad arguments in a plain ToolError and any crash of the tool in a subclass."""
    return type(error) is not ToolError


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tool as its function declares it: by its name, its arguments, its result, and its docstring for models. Its
    text is `line` and the result's fields, or what `text` makes; `aside` makes data for apps of the result: it goes
    into `_meta`, which models do not see. The stash's method of the same name carries it out, or `call`.
    Session ids are taken by their beginning, unless the tool `creates` sessions."""

    function: Callable[..., Any]
    title: str
    line: Headline
    text: WholeText | None = None
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = True
    aside: Callable[[Any], dict[str, Any]] | None = None
    call: Call | None = None
    creates: bool = False

    def on(self, stash: LazyStash) -> StashTool:
        """The tool on this stash."""
        name = self.function.__name__

        @wraps(self.function)
        async def run(**arguments: Any) -> Any:
            opened = await stash.get()
            if not self.creates and isinstance(given := arguments.get("session_id"), str):
                arguments["session_id"] = await whole_id(opened, given)
            return await (self.call(opened, **arguments) if self.call else getattr(opened, name)(**arguments))

        return replace(self, function=run).tool()

    def tool(self) -> StashTool:
        """The tool if the function itself carries it out."""
        tool = StashTool.from_function(
            self.function,
            title=self.title,
            description=" ".join((self.function.__doc__ or "").split()),
            structured_output=False,
            annotations=ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=False,
            ),
        )
        assert isinstance(tool, StashTool)
        tool.parameters = schemas.input_schema(tool.parameters)
        tool.fn_metadata = AnswerMetadata(
            arg_model=tool.fn_metadata.arg_model,
            output_schema=schemas.output_schema(get_type_hints(self.function)["return"]),
            line=self.line,
            text=self.text,
            properties=tool.parameters.get("properties", {}),
            aside=self.aside,
        )
        return tool


def declared(title: str, line: Headline, **options: Any) -> Callable[[Callable[..., Any]], Declaration]:
    """Makes a tool of a function that has a signature and a docstring; the options are those of Declaration."""
    return lambda function: Declaration(function, title, line, **options)
