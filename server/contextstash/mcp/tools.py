"""The operations as the tools of a server: their schemas, checked arguments, progress, results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cached_property
from inspect import Parameter
from typing import Annotated, Any

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, ToolAnnotations
from mcp.types import Tool as ListedTool
from pydantic import BaseModel, Field, ValidationError, WithJsonSchema, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from contextstash import results
from contextstash.mcp.answers import answer_of, sendable, sendable_text
from contextstash.mcp.errors import report_crash, unknown_name, wrong_arguments
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.status_app import URI
from contextstash.operations import Argument, Operation
from contextstash_storage.errors import ContextstashError

REPORT_SECONDS = 2.0
"""Seconds between two progress notifications, for a person who waits."""


class OperationTool:
    """An operation as a tool. `followed`: for a client that sends its own history."""

    def __init__(self, operation: Operation, *, followed: bool) -> None:
        self.operation = operation
        self._followed = followed

    @cached_property
    def _arguments(self) -> type[BaseModel]:
        fields = {name: _field(each) for name, each in self.operation.arguments.items()}
        return create_model(self.operation.name, **fields)

    @cached_property
    def listed(self) -> ListedTool:
        """The tool as clients list it. Its four annotations are hints on what it changes."""
        operation = self.operation
        return ListedTool(
            name=operation.name,
            title=operation.title,
            description=(self._followed and operation.followed) or operation.description,
            # Closed to unknown arguments, so that a client that validates finds a misspelt name first.
            input_schema=self._arguments.model_json_schema(schema_generator=ShortSchema)
            | {"additionalProperties": False},
            output_schema=getattr(results, operation.result).model_json_schema(schema_generator=ShortSchema),
            annotations=ToolAnnotations(
                read_only_hint=operation.read_only,
                destructive_hint=operation.destructive,
                idempotent_hint=operation.idempotent,
                open_world_hint=False,
            ),
            _meta={"ui": {"resourceUri": URI}} if operation.name == "context_status" else None,
        )

    def checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call with their types. Raises ToolError, which says what is wrong with which."""
        declared = self.operation.arguments
        for name in given:
            if name not in declared:
                raise ToolError(unknown_name(f"argument of {self.operation.name} called", name, declared))
        try:
            json.dumps(given, allow_nan=False)
        except ValueError:
            raise ToolError(
                "The arguments hold NaN or an infinity, which are not JSON. Send a number or null."
            ) from None
        properties = self.listed.input_schema["properties"]
        parsed = {name: _parsed(value, properties[name].get("type")) for name, value in given.items()}
        try:
            model = self._arguments.model_validate(parsed)
        except ValidationError as error:
            raise ToolError(wrong_arguments(error, properties)) from None
        return {name: getattr(model, name) for name in declared}


def _field(argument: Argument) -> Any:
    about = argument.about
    schema = [WithJsonSchema({**about.schema, "description": about.text})] if about.schema is not None else []
    described = Field(description=about.text, strict=about.strict or None)
    default = ... if argument.default is Parameter.empty else argument.default
    return Annotated[argument.type, described, *schema], default


def _parsed(value: Any, kind: Any) -> Any:
    """Some clients send lists and objects as JSON text. Other texts are not parsed: a summary may be JSON."""
    if isinstance(value, str) and kind in ("array", "object"):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return parsed if isinstance(parsed, list | dict) else value
    return value


class ToolServer(MCPServer[None]):
    """The SDK's server with our own tools."""

    def __init__(self, stash: LazyStash, tools: Iterable[OperationTool], **options: Any) -> None:
        super().__init__("contextstash", **options)
        self._stash = stash
        self._tools = {tool.operation.name: tool for tool in tools}

    async def list_tools(self) -> list[ListedTool]:
        """The tools as clients list them."""
        return [tool.listed for tool in self._tools.values()]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult:
        """Carry out a call. Raises ToolError, which says what to do next, for every failure."""
        if (tool := self._tools.get(name)) is None:
            raise ToolError(unknown_name("tool", name, self._tools))
        try:
            taken = sendable(arguments)
            given = tool.checked(taken)
            stash = await self._stash.get()
            async with _reported(context, tool.operation.slow):
                result = await tool.operation.run(stash, **given)
            return answer_of(result, taken)
        except (MCPError, ToolError):
            raise
        except ContextstashError as error:
            raise ToolError(sendable_text(str(error))) from None
        except Exception as error:
            raise ToolError(report_crash(name, error)) from None


@asynccontextmanager
async def _reported(context: Context[None, Any] | None, what: str | None) -> AsyncIterator[None]:
    """Report progress at once and then every few seconds, without a total: how long a model takes is unknown."""
    if context is None or what is None:
        yield
        return
    await context.report_progress(0, message=what)
    reporting = asyncio.create_task(_report(context, what))
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


async def _report(context: Context[None, Any], what: str) -> None:
    seconds = 0.0
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        seconds += REPORT_SECONDS
        await context.report_progress(seconds, message=f"{what}, {seconds:.0f} s")


class ShortSchema(GenerateJsonSchema):
    """JSON schemas as a client sees them, without the titles and null defaults of pydantic, which cost tokens. A
    missing field has the same meaning as null, which is not named."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No field has a title."""
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """A model without its title."""
        return {name: each for name, each in super().model_schema(schema).items() if name != "title"}

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        """`X or null` as X."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """A default, unless it is null."""
        made = super().default_schema(schema)
        return made if made.get("default") is not None else {name: made[name] for name in made if name != "default"}

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        """An object, without saying that it may hold anything."""
        made = super().dict_schema(schema)
        return {name: each for name, each in made.items() if each is not True}
