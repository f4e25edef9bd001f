"""Strands Agents: a conversation manager that keeps the agent's messages within the window.

    with open_stash_sync() as stash:
        manager = StashConversationManager(stash.session("job-7", window=200_000))
        agent = Agent(model, tools=[*tools, *manager.tools()], conversation_manager=manager)

Strands manages `agent.messages` in place. What leaves it stays in the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strands import tool
from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AfterModelCallEvent, BeforeModelCallEvent, HookRegistry

from contextstash.library.alignment import align
from contextstash.library.blocking import BlockingSession
from contextstash.library.replies import as_natives
from contextstash.library.request import ContextRequest
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

FORMAT = "anthropic"
"""Strands' messages have the structure of Anthropic's: blocks, and tool results in the user's messages."""

MAX_TOKENS = ("max_completion_tokens", "max_tokens")
"""Under which names models hold the most tokens of a reply."""


class StashConversationManager(ConversationManager):  # type: ignore[misc, unused-ignore] # Any without Strands
    """Before each model call, `agent.messages` becomes what contextstash returns; after it, the reply and its usage are
    recorded. One for each agent."""

    def __init__(self, session: BlockingSession) -> None:
        """`session` is one of `open_stash_sync`: Strands calls its conversation managers synchronously."""
        super().__init__()
        session.speak(FORMAT)
        self._session = session
        self._whole: list[Any] = []
        self._shown: list[Any] = []

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """See `ConversationManager`."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(BeforeModelCallEvent, self._before_model_call)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)

    def apply_management(self, agent: Any, **kwargs: Any) -> None:
        """Nothing: the messages are managed before each model call."""

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:
        """Shrink the messages after the provider refused them as too long. Raises the error if they cannot shrink."""
        if e is None:
            return
        try:
            request = self._session.recover(f"{e}\n{e.__cause__ or ''}")
        except BadInputError as reason:
            raise e from reason
        self._show(agent, as_natives([_native(message) for message in self._whole]), request)

    def tools(self) -> list[Any]:
        """The two tools with which the model reads again what left its window, to be put among the agent's."""
        session = self._session

        def get_archived_output(
            handle: str, offset: int | None = None, limit: int | None = None, pattern: str | None = None
        ) -> str:
            named = {"handle": handle, "offset": offset, "limit": limit, "pattern": pattern}
            return str(session.call_tool("get_archived_output", named))

        def search_history(query: str, limit: int | None = None) -> str:
            return str(session.call_tool("search_history", {"query": query, "limit": limit}))

        definitions = {each["name"]: each for each in session.tools(FORMAT)}
        return [
            tool(
                name=call.__name__,
                description=definitions[call.__name__]["description"],
                inputSchema={"json": definitions[call.__name__]["input_schema"]},
            )(call)
            for call in (get_archived_output, search_history)
        ]

    def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        agent = event.agent
        messages = agent.messages
        known = len(self._shown)
        if len(messages) >= known and all(new is old for new, old in zip(messages, self._shown, strict=False)):
            self._whole += messages[known:]
        else:  # the program has set or edited the list: what it holds now is the conversation
            self._whole = list(messages)
        given = as_natives([_native(message) for message in self._whole])
        request = self._session.request(
            given, system=_system(agent.system_prompt), tools=_definitions(agent), max_tokens=_max_tokens(agent.model)
        )
        if not request.fits:
            raise BadInputError(request.reason or "The conversation does not fit the window.")
        self._show(agent, given, request)

    def _after_model_call(self, event: AfterModelCallEvent) -> None:
        if event.stop_response is not None and not event.retry:
            message = event.stop_response.message
            self._session.reply(as_natives([_native(message)]), usage=_usage(message))

    def _show(self, agent: Any, given: Sequence[Native], request: ContextRequest) -> None:
        """Make `agent.messages` what is sent; messages that are sent whole are the agent's own objects."""
        blocks = {repr(block): own for message in self._whole for own in message["content"] for block in [_block(own)]}
        results = {
            own["toolResult"]["toolUseId"]: own
            for message in self._whole
            for own in message["content"]
            if "toolResult" in own
        }
        self._shown = [
            self._whole[place] if place is not None else _message(native, blocks, results)
            for native, place in zip(request.messages, align(request.messages, given), strict=True)
        ]
        agent.messages[:] = self._shown


def _native(message: Any) -> Native:
    return {"role": message["role"], "content": [_block(block) for block in message["content"]]}


def _block(block: Any) -> Native:
    """A content block in Anthropic's form. Of media only the kind is recorded."""
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    if "toolUse" in block:
        use = block["toolUse"]
        return {"type": "tool_use", "id": use["toolUseId"], "name": use["name"], "input": use["input"]}
    if "toolResult" in block:
        result = block["toolResult"]
        native = {
            "type": "tool_result",
            "tool_use_id": result["toolUseId"],
            "content": [_piece(part) for part in result["content"]],
        }
        return {**native, "is_error": True} if result.get("status") == "error" else native
    if "reasoningContent" in block:
        text = block["reasoningContent"].get("reasoningText", {})
        return {"type": "thinking", "thinking": text.get("text", ""), "signature": text.get("signature") or "none"}
    return _piece(block)


def _piece(part: Any) -> Native:
    """Text, JSON or media within a message or a tool result."""
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "json" in part:
        return {"type": "text", "text": str(part["json"])}
    if "image" in part:
        media = f"image/{part['image'].get('format', 'png')}"
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": ""}}
    return {"type": "text", "text": f"[{next(iter(part), 'nothing')}]"}


def _message(native: Native, blocks: dict[str, Any], results: dict[str, Any]) -> Any:
    content = native["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {"role": native["role"], "content": [_own(block, blocks, results) for block in content]}


def _own(block: Native, blocks: dict[str, Any], results: dict[str, Any]) -> Any:
    """A block in Strands' form: the agent's own if it is unchanged."""
    if (own := blocks.get(repr(block))) is not None:
        return own
    if block["type"] == "tool_use":
        return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
    if block["type"] == "tool_result":
        content = block.get("content") or ""
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        known = results.get(block["tool_use_id"], {}).get("toolResult", {"status": "success"})
        return {
            "toolResult": {
                **known,
                "toolUseId": block["tool_use_id"],
                "content": [{"text": text} for text in texts],
            }
        }
    return {"text": str(block.get("text", ""))}


def _system(prompt: Any) -> str | None:
    if prompt is None or isinstance(prompt, str):
        return prompt
    return "\n\n".join(part["text"] for part in prompt if "text" in part)


def _definitions(agent: Any) -> list[dict[str, Any]]:
    return [
        {"name": spec["name"], "description": spec["description"], "input_schema": spec["inputSchema"].get("json", {})}
        for spec in agent.tool_registry.get_all_tool_specs()
    ]


def _max_tokens(model: Any) -> int | None:
    config = model.get_config()
    places = (config, config.get("params") or {})
    return next((place[name] for place in places for name in MAX_TOKENS if isinstance(place.get(name), int)), None)


def _usage(message: Any) -> dict[str, Any] | None:
    """The usage in the form of Chat Completions. Some models count cached tokens as input, others do not: the total
    shows it."""
    usage = (message.get("metadata") or {}).get("usage")
    if not usage or not usage.get("inputTokens"):
        return None
    read, written = (usage.get(f"cache{kind}InputTokens", 0) for kind in ("Read", "Write"))
    inside = usage["inputTokens"] + usage["outputTokens"] == usage["totalTokens"]
    return {
        "prompt_tokens": usage["inputTokens"] + (0 if inside else read + written),
        "completion_tokens": usage["outputTokens"],
        "prompt_tokens_details": {"cached_tokens": read},
    }
