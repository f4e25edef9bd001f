# ruff: noqa: N803, N815, C901 - the suite prescribes the names, and how many tools there are
"""Our own server over streamable HTTP with what the official conformance suite calls on it: `python -m
tests.conformance.server PORT`.

The suite tests a server by names and texts that it prescribes (its README lists them). The product has none of them, so
they are added here, to the server that `build_server` makes, with all its checks. Modelled on the SDK's own
everything-server (MIT).
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequest,
    InputRequiredResult,
    JSONRPCMessage,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field
from starlette.types import ASGIApp

from contextstash.mcp.server import build_server
from contextstash.operations import OPERATIONS
from contextstash.stash import Stash
from contextstash.web import HostChecks
from contextstash_storage.sqlite import open_sqlite

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
AUDIO = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

INPUT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def add_fixtures(server: MCPServer[Any]) -> None:
    """Add everything that the suite asks for."""
    for add in (
        _add_contents,
        _add_notifications,
        _add_questions,
        _add_input_required,
        _add_states,
        _add_resources,
        _add_prompts,
    ):
        add(server)
    _add_handlers(server)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _image() -> ImageContent:
    return ImageContent(type="image", data=IMAGE, mime_type="image/png")


def _embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _add_contents(server: MCPServer[Any]) -> None:
    @server.tool()
    def test_simple_text() -> str:
        """Returns a text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> list[ImageContent]:
        """Returns an image."""
        return [_image()]

    @server.tool()
    def test_audio_content() -> list[AudioContent]:
        """Returns a sound."""
        return [AudioContent(type="audio", data=AUDIO, mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[EmbeddedResource]:
        """Returns a resource."""
        return [_embedded("test://embedded-resource", "This is an embedded resource content.")]

    @server.tool()
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        """Returns contents of several types."""
        resource = _embedded("test://mixed-content-resource", '{"test": "data", "value": 123}', "application/json")
        return [_text("Multiple content types test:"), _image(), resource]

    @server.tool()
    def test_error_handling() -> str:
        """Fails."""
        raise RuntimeError("This tool intentionally returns an error for testing")

    @server.tool()
    def test_x_mcp_header(
        region: Annotated[
            str, Field(description="Also sent as a header", json_schema_extra={"x-mcp-header": "Region"})
        ] = "<none>",
    ) -> str:
        """Has an argument that is a header too."""
        return f"region={region}"

    @server.tool(name="json_schema_2020_12_tool")
    def json_schema_tool() -> str:
        """Has a schema with every keyword of JSON Schema 2020-12."""
        return "json_schema_2020_12_tool"

    server._tool_manager._tools["json_schema_2020_12_tool"].parameters = INPUT_SCHEMA


def _add_notifications(server: MCPServer[Any]) -> None:
    @server.tool()
    async def test_tool_with_logging(ctx: Context) -> str:
        """Sends log messages."""
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message(level="info", data=text, related_request_id=ctx.request_id)
            await asyncio.sleep(0.05)
        return "Tool with logging executed successfully"

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> str:
        """Reports progress."""
        for done in (0, 50, 100):
            await ctx.report_progress(progress=done, total=100, message=f"Completed step {done} of 100")
            await asyncio.sleep(0.05)
        return str((ctx.request_context.meta or {}).get("progress_token", 0))

    @server.tool()
    async def test_reconnection(ctx: Context) -> str:
        """Closes its stream while it runs."""
        await ctx.session.send_log_message(level="info", data="Before", related_request_id=ctx.request_id)
        await ctx.close_sse_stream()
        await asyncio.sleep(0.2)
        await ctx.session.send_log_message(level="info", data="After", related_request_id=ctx.request_id)
        return "Reconnection test completed"

    @server.tool()
    async def test_trigger_tool_change(ctx: Context) -> str:
        """Adds and removes a tool, and says so."""
        server.add_tool(lambda: "dynamic", name="test_dynamic_tool")
        server.remove_tool("test_dynamic_tool")
        await ctx.notify_tools_changed()
        return "tool list changed"

    @server.tool()
    async def test_trigger_prompt_change(ctx: Context) -> str:
        """Adds and removes a prompt, and says so."""
        server.add_prompt(Prompt.from_function(lambda: "dynamic", name="test_dynamic_prompt", description="dynamic"))
        server.remove_prompt("test_dynamic_prompt")
        await ctx.notify_prompts_changed()
        return "prompt list changed"


class Reply(BaseModel):
    response: str = Field(description="User's response")


class Defaults(BaseModel):
    name: str = Field(default="John Doe", description="User name")
    age: int = Field(default=30, description="User age")
    score: float = Field(default=95.5, description="User score")
    status: str = Field(default="active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = Field(default=True, description="Verification status")


def _titled(*pairs: str) -> list[dict[str, str]]:
    return [dict(zip(("const", "title"), pair.split("=", 1), strict=True)) for pair in pairs]


class Choices(BaseModel):
    untitledSingle: str = Field(json_schema_extra={"enum": ["active", "inactive", "pending"]})
    titledSingle: str = Field(
        json_schema_extra={"oneOf": _titled("low=Low Priority", "medium=Medium Priority", "high=High Priority")}  # type: ignore[dict-item]
    )
    untitledMulti: list[str] = Field(
        json_schema_extra={"items": {"type": "string", "enum": ["read", "write", "execute"]}}
    )
    titledMulti: list[str] = Field(
        json_schema_extra={"items": {"anyOf": _titled("feature=New Feature", "bug=Bug Fix", "docs=Documentation")}}  # type: ignore[dict-item]
    )
    legacyEnum: str = Field(
        json_schema_extra={
            "enum": ["small", "medium", "large"],
            "enumNames": ["Small Size", "Medium Size", "Large Size"],
        }
    )


async def _asked(ctx: Context, said: str, message: str, schema: type[BaseModel]) -> str:
    result = await ctx.elicit(message=message, schema=schema)
    content = result.data.model_dump_json() if result.action == "accept" else "{}"
    return f"{said}: action={result.action}, content={content}"


def _add_questions(server: MCPServer[Any]) -> None:
    @server.tool()
    async def test_sampling(prompt: str, ctx: Context) -> str:
        """Has the client's model write."""
        result = await ctx.session.create_message(
            messages=[SamplingMessage(role="user", content=_text(prompt))],
            max_tokens=100,
            related_request_id=ctx.request_id,
        )
        return f"LLM response: {getattr(result.content, 'text', 'No response')}"

    @server.tool()
    async def test_elicitation(message: str, ctx: Context) -> str:
        """Asks the user."""
        return await _asked(ctx, "User response", message, Reply)

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """Asks with defaults of each type."""
        return await _asked(ctx, "Elicitation result", "Please provide user information", Defaults)

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        """Asks with enumerations of each form."""
        return await _asked(ctx, "Elicitation completed", "Please select values", Choices)

    @server.tool()
    async def test_missing_capability(ctx: Context) -> str:
        """Needs a client that offers sampling."""
        offered = ctx.session.client_capabilities
        if offered is None or offered.sampling is None:
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message="This tool requires the client 'sampling' capability",
                data={"requiredCapabilities": {"sampling": {}}},
            )
        return "Client declared sampling capability; proceeding."


def _form(message: str, **properties: str) -> ElicitRequest:
    fields = {name: {"type": kind} for name, kind in properties.items()}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(text: str, most: int = 100) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=_text(text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=most))


def _answer(ctx: Context, name: str, field: str) -> Any:
    """What the user entered; None if it is not there."""
    found = (ctx.input_responses or {}).get(name)
    return found.content.get(field) if isinstance(found, ElicitResult) and found.content else None


def _add_input_required(server: MCPServer[Any]) -> None:
    @server.tool()
    async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
        """Needs a name."""
        name = _answer(ctx, "user_name", "name")
        asked = InputRequiredResult(input_requests={"user_name": _form("What is your name?", name="string")})
        return f"Hello, {name}!" if name else asked

    @server.tool()
    async def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
        """Needs a reply of the client's model."""
        found = (ctx.input_responses or {}).get("capital_question")
        if isinstance(found, CreateMessageResult):
            return f"Model said: {getattr(found.content, 'text', '?')}"
        return InputRequiredResult(input_requests={"capital_question": _sample("What is the capital of France?")})

    @server.tool()
    async def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
        """Needs the client's roots."""
        found = (ctx.input_responses or {}).get("client_roots")
        if isinstance(found, ListRootsResult):
            return f"Client exposed {len(found.roots)} root(s)."
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})

    @server.tool()
    async def test_input_required_result_request_state(ctx: Context) -> str | InputRequiredResult:
        """Needs its state back."""
        if "confirm" in (ctx.input_responses or {}) and ctx.request_state == "nonce":
            return "state-ok: confirmation received"
        return InputRequiredResult(
            input_requests={"confirm": _form("Please confirm", ok="boolean")}, request_state="nonce"
        )


def _add_states(server: MCPServer[Any]) -> None:
    @server.tool()
    async def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequiredResult:
        """Needs its own state back, which the SDK signs."""
        if ctx.request_state is not None:
            return f"state-ok: {ctx.request_state}"
        return InputRequiredResult(
            input_requests={"confirm": _form("Please confirm", ok="boolean")}, request_state="round-1"
        )

    @server.tool()
    async def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
        """Needs three things at once."""
        wanted: dict[str, InputRequest] = {
            "user_name": _form("What is your name?", name="string"),
            "greeting": _sample("Generate a greeting", 50),
            "client_roots": ListRootsRequest(),
        }
        if wanted.keys() <= (ctx.input_responses or {}).keys():
            return "All inputs received."
        return InputRequiredResult(input_requests=wanted, request_state="multiple-inputs")

    @server.tool()
    async def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
        """Needs two things, one after the other."""
        state = json.loads(ctx.request_state) if ctx.request_state else {"round": 0}
        if state["round"] == 2 and (colour := _answer(ctx, "step2", "color")):
            return f"{state.get('name')} likes {colour}."
        name = _answer(ctx, "step1", "name")
        if state["round"] == 1 and name:
            asked, left = {"step2": _form("What is your favorite color?", color="string")}, {"round": 2, "name": name}
        else:
            asked, left = {"step1": _form("What is your name?", name="string")}, {"round": 1}
        return InputRequiredResult(input_requests=dict(asked), request_state=json.dumps(left))

    @server.tool()
    async def test_input_required_result_capabilities(ctx: Context) -> InputRequiredResult:
        """Asks only for what the client offers."""
        offered = ctx.client_capabilities
        wanted: dict[str, InputRequest] = {}
        if offered is None or offered.sampling is not None:
            wanted["sample"] = _sample("Say hello", 50)
        if offered is None or offered.elicitation is not None:
            wanted["ask"] = _form("What is your name?", name="string")
        return InputRequiredResult(input_requests=wanted, request_state="capability-gated")


def _add_resources(server: MCPServer[Any]) -> None:
    server.resource("test://static-text", name="static_text")(
        lambda: "This is the content of the static text resource."
    )
    server.resource("test://static-binary", name="static_binary", mime_type="image/png")(
        lambda: base64.b64decode(IMAGE)
    )
    server.resource("test://watched-resource", name="watched_resource")(lambda: "Watched resource content")

    @server.resource("test://template/{id}/data")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def _add_prompts(server: MCPServer[Any]) -> None:
    def said(*contents: Any) -> list[UserMessage]:
        return [UserMessage(role="user", content=content) for content in contents]

    @server.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """Has no arguments."""
        return said(_text("This is a simple prompt for testing."))

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
        """Has arguments."""
        return said(_text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
        """Holds a resource."""
        resource = _embedded(resourceUri, "Embedded resource content for testing.")
        return said(resource, _text("Please process the embedded resource above."))

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """Holds an image."""
        return said(_image(), _text("Please analyze the image above."))

    @server.prompt()
    async def test_input_required_result_prompt(ctx: Context) -> list[UserMessage] | InputRequiredResult:
        """Needs something from the user."""
        if context := _answer(ctx, "user_context", "context"):
            return said(_text(f"Use the following context: {context}"))
        return InputRequiredResult(
            input_requests={"user_context": _form("What context should the prompt use?", context="string")}
        )


def _add_handlers(server: MCPServer[Any]) -> None:
    async def nothing(*_: object) -> EmptyResult:
        return EmptyResult()

    for method, params in (
        ("logging/setLevel", SetLevelRequestParams),
        ("resources/subscribe", SubscribeRequestParams),
        ("resources/unsubscribe", UnsubscribeRequestParams),
    ):
        server._lowlevel_server.add_request_handler(method, params, nothing)


class Events(EventStore):
    """Events in memory, so that a stream can be resumed."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        if not 0 < last <= len(self._events):
            return None
        stream = self._events[last - 1][0]
        for number, (other, message) in enumerate(self._events[last:], start=last + 1):
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def _offer_fixtures(server: MCPServer[Any]) -> None:
    """Our server lists and calls its own operations alone: here the suite's tools too, which the SDK's server knows."""
    own_list, own_call = server.list_tools, server.call_tool

    async def list_tools() -> list[Tool]:
        return [*await own_list(), *await MCPServer.list_tools(server)]

    async def call_tool(name: str, *given: Any, **named: Any) -> Any:
        is_own = name in OPERATIONS
        return await (own_call(name, *given, **named) if is_own else MCPServer.call_tool(server, name, *given, **named))

    vars(server).update(list_tools=list_tools, call_tool=call_tool)


def application(folder: Path) -> ASGIApp:
    """The server's application, behind the checks of Host and Origin that the product has."""

    async def open_stash() -> Stash:
        return Stash(await open_sqlite(folder / "sessions.db"))

    server = build_server(open_stash, "all")
    add_fixtures(server)
    _offer_fixtures(server)
    endpoint = server.streamable_http_app(streamable_http_path="/mcp", event_store=Events(), retry_interval=100)
    return HostChecks(endpoint)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        uvicorn.run(application(Path(where)), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
