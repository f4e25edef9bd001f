"""OpenAI's two APIs. Chat Completions: tool calls in a field next to the content, results as messages of role `tool`.
Responses: a flat list in which each message, reasoning, call and output is an item of its own.

In Codex's code mode the model writes a script, and the script calls the tools (seen in 0.171, with GPT-6):

    const r = await tools.exec_command({cmd: "make test", workdir: "/src"});
    text(r.output);

is read as a call of `exec_command` with these arguments, so that what it ran, read or changed is known as of any call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from contextstash.messages import base
from contextstash.messages.base import Call, Format, Part, PartKinds, Piece
from contextstash.messages.rules import MISSING_RESULT
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native, Role

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# Chat Completions.

_CHAT_ROLES: dict[str, Role] = {**_ROLES, "tool": "tool"}

_SIGNED_THINKING = ("thinking_blocks", "reasoning_details")
"""Fields in which gateways to Anthropic store thinking with its signatures: LiteLLM and OpenRouter."""

_PLAIN_THINKING = ("reasoning_content", "reasoning")

_OTHER_CONTENT = ("tool_calls", "refusal")
"""Keys other than `content` that give a message content."""

_CHAT_REPLY_KEYS = frozenset({
    "usage", "annotations", "finish_reason", "logprobs", "model", "id", "object", "created", "index", "provider",
    "system_fingerprint", "timestamp", "extra",
})  # fmt: skip
"""Keys that replies and recorders add to a message, and that a request may not have."""

_NULLABLE = ("content", "refusal")
"""Keys that may be null in a request; any other key with the value null is left out."""

_CHAT_PARTS = ("image_url", "input_audio", "refusal", "file")
_NOT_OF_CHAT = ("tool_use", "tool_result", "server_tool_use", "function_call", "input_text")


class OpenAIChatFormat(Format):
    """OpenAI Chat Completions, and the fields that compatible APIs add (`reasoning_content`, `usage` on a message).

    A tool message is one block of type `tool_result`. Images in it follow as separate blocks with its call id, and
    are removed when it is replaced. `function_call`, of the API before it had tools, is refused.
    """

    name = "openai-chat"
    own_keys = frozenset({"tool_call_id", "reasoning_content", *_OTHER_CONTENT, *_SIGNED_THINKING})

    def pieces(self, native: Mapping[str, Any]) -> tuple[Role, list[Piece]]:
        if "choices" in native and "role" not in native:
            raise BadMessageError("this is a whole API response; record its choices[0].message.")
        if native.get("function_call") is not None:
            raise BadMessageError("function_call is of the API before it had tools; record it as one of tool_calls.")
        if native.get("audio") is not None:
            raise BadMessageError("spoken replies cannot be sent back by their data; record the transcript as content.")
        if "parts" in native and "content" not in native:
            raise BadMessageError("it has 'parts' instead of 'content'. Record it in its own format.")
        role = base.need_role(native, _CHAT_ROLES, f"one of {', '.join(_CHAT_ROLES)}")
        content = native.get("content")
        pieces = _OF_CHAT.read("" if content is None else content)
        if role == "tool":
            pieces = base.result_pieces(
                _call_answered(native), pieces, ("content",), tool=base.name_of(native.get("name"))
            )
        elif role == "assistant":
            refusal = native.get("refusal")
            spoken = [base.piece("text", refusal)] if isinstance(refusal, str) and refusal else []
            pieces = [*_chat_thinking(native), *pieces, *spoken, *_chat_calls(native)]
        return role, pieces

    def is_own_part(self, part: Mapping[str, Any]) -> bool:
        return part["type"] in _CHAT_PARTS

    def without_thinking(self, native: Native) -> Native | None:
        """A copy without the signed thinking of a Claude model behind a gateway. Other reasoning stays: DeepSeek and
        similar APIs refuse tool calls without it, and Gemini's signatures belong to the calls."""
        # OpenRouter names the provider; LiteLLM stores Anthropic's own blocks.
        formats = [str(part.get("format") or "anthropic") for part in _signed_parts(native)]
        if not any(name.startswith("anthropic") for name in formats):
            return native
        left = {key: value for key, value in native.items() if key not in (*_SIGNED_THINKING, *_PLAIN_THINKING)}
        return None if _is_empty(left) else left

    def system_message(self, text: str) -> Native | None:
        return {"role": "system", "content": text}

    def tool_definitions(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"type": "function", "function": each} for each in tools]

    def sent_parts(self, native: Native) -> tuple[Part, ...]:
        message = _chat_shaped(native)
        role = message["role"]
        if role == "tool":
            return (Part(message, False, native, None, (), (_call_answered(message),)),)
        if _is_empty(message):
            return ()
        calls: dict[str, Mapping[str, Any]] = {}
        for call in message.get("tool_calls") or ():  # each id once: results of two could not be distinguished
            calls.setdefault(call["id"], call)
        if not calls:
            return (Part(message, role == "assistant", native),)
        if len(calls) < len(message["tool_calls"]):
            message = {**message, "tool_calls": list(calls.values())}
        return (Part(message, True, native, None, tuple([Call((name,), call) for name, call in calls.items()])),)

    def missing(self, call: Call) -> Native:
        return {"role": "tool", "tool_call_id": call.keys[0], "content": MISSING_RESULT}

    def orphan(self, part: Part) -> list[Native]:
        shown: Any = _OF_CHAT.left_of(part.native["content"])
        if shown and isinstance(part.native["content"], str):
            shown = shown[0]["text"]
        return [{"role": "user", "content": shown}] if shown else []


def _call_answered(native: Mapping[str, Any]) -> str:
    return base.need_text(native, "tool_call_id", "the message", empty=False)


def _file_name(part: Mapping[str, Any]) -> str:
    file = part.get("file")
    return (base.name_of(file.get("filename")) if isinstance(file, dict) else None) or ""


_OF_CHAT = PartKinds(
    {"text": "text", "refusal": "refusal"},
    images=["image_url"],
    documents={"file": _file_name, "input_audio": lambda part: ""},
    foreign=lambda kind: kind in _NOT_OF_CHAT or kind.startswith("output_"),
)


def _chat_thinking(native: Mapping[str, Any]) -> Iterator[Piece]:
    for key in _PLAIN_THINKING:
        text = native.get(key)
        if isinstance(text, str) and text:
            yield base.piece("thinking", text)
            return
    signed = _signed_parts(native)
    texts = [part.get(key) for part in signed for key in ("thinking", "text", "summary")]
    if signed:
        yield base.piece("thinking", "\n".join(text for text in texts if isinstance(text, str)))


def _signed_parts(native: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    lists = [native.get(key) for key in _SIGNED_THINKING]
    return [part for parts in lists if isinstance(parts, list) for part in parts if isinstance(part, dict)]


def _chat_calls(native: Mapping[str, Any]) -> Iterator[Piece]:
    calls = native.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise BadMessageError(f"tool_calls is {base.kind_of(calls)}; expected a list.")
    for place, value in enumerate(calls or ()):
        where = f"tool_calls[{place}]"
        call = base.need_object(value, where)
        call_id = base.need_text(call, "id", where, empty=False)
        kind, argument = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
        made = base.need_object(call.get(kind), f"{where}.{kind}")
        given = made.get(argument)
        yield base.call_piece(call_id, base.need_text(made, "name", f"{where}.{kind}"), "" if given is None else given)


def _chat_shaped(native: Native) -> Native:
    """The message without keys that a request may not have."""
    allowed = (key for key in native if key not in _CHAT_REPLY_KEYS and (native[key] is not None or key in _NULLABLE))
    message = {key: native[key] for key in allowed}
    if message["role"] != "assistant" or not message.get("tool_calls"):
        message.pop("tool_calls", None)
    if message.get("content") == []:
        message["content"] = None
    if message.get("content") is None and message["role"] == "tool":
        message["content"] = ""
    return message


def _is_empty(message: Native) -> bool:
    """Whether a message has no content and no calls. An empty text does not count: OpenAI takes it, but other providers
    of this format refuse it, and a model learns nothing from it."""
    return not message.get("content") and not any(message.get(key) for key in _OTHER_CONTENT)


# Responses.

APPROVAL_REQUEST = "mcp_approval_request"
APPROVAL_RESPONSE = "mcp_approval_response"
PROGRAM, PROGRAM_OUTPUT = "program", "program_output"
"""A script of the model, which OpenAI runs: it calls the client's functions, and has an output in the end."""

ADDED_TOOLS = "additional_tools"
"""An item with the role `developer` that offers further tools, which keeps its place."""

_WITH_ROLE = ("message", ADDED_TOOLS)
_CALLS_WITH_ID = (APPROVAL_REQUEST, "computer_call", "local_shell_call")
"""Calls that the client answers by their id, or that may not be sent without one."""

_ANSWERED_BY_TEXT = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUT_TYPES = {APPROVAL_REQUEST: APPROVAL_RESPONSE, "tool_search_call": "tool_search_output"}
"""The type of the item that answers a call; of all others it is that of the call with `_output`."""

_ITEM_REPLY_KEYS = frozenset({"usage", "response_id", "model", "object", "created_at", "timestamp"})
"""Keys that recorders add to an item, and that a request may not have. `status` is allowed, but not null."""

_TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_NOT_OF_ITEMS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image_url")

Item = Mapping[str, Any]


def item_type(item: Item) -> str:
    """The item's type; a message may omit it."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else ""


class OpenAIResponsesFormat(Format):
    """OpenAI Responses items; each item is one message.

    Calls that the client answers have their `call_id`. Calls of the provider's own tools (web search, file search, code
    interpreter, MCP) have none: the call and its result are one item. A computer call is answered by a screenshot,
    which no text can replace: it is read as an image with the call's id, not as a tool result. Other outputs are one
    block of type `tool_result`, followed by the images and files nested in it.
    """

    name = "openai-responses"
    own_keys = frozenset({"type"})
    group_keys = ("response_id",)

    def pieces(self, native: Item) -> tuple[Role, list[Piece]]:
        kind = item_type(native)
        if "tool_calls" in native or "stop_reason" in native or ("role" in native and kind not in _WITH_ROLE):
            raise BadMessageError("it is a message of another API. Record it in its own format.")
        if not kind and isinstance(native.get("output"), list):
            raise BadMessageError("this is a whole API response; record the items of its `output` one by one.")
        if kind == "item_reference":
            raise BadMessageError("it names an item that OpenAI stores. Record the item itself: ask with store=False.")
        if not kind:
            raise BadMessageError("it has neither 'type' nor 'role'; expected an item of the Responses API.")
        if kind == "message":
            role = base.need_role(native, _ROLES, "assistant, user, system, developer")
            return role, _OF_ITEMS.read(native.get("content"))
        if kind == "reasoning":
            return "assistant", [base.piece("thinking", _reasoning_text(native))]
        if kind == ADDED_TOOLS:
            return "system", [base.opaque(native)]
        role = "tool" if is_input(native, kind) else "assistant"
        if kind.endswith("_call") or kind in (APPROVAL_REQUEST, PROGRAM):
            return role, [_read_call(native, kind)]
        if kind.endswith("_call_output"):
            return role, _read_output(native, kind)
        return role, [base.opaque(native, _answered_id(native, kind))]

    def is_own_part(self, part: Item) -> bool:
        return str(part["type"]).startswith(("input_", "output_"))

    def in_place_of(self, native: Native, text: str, old: Any) -> Any:
        if item_type(native) == "shell_call_output":
            last = old[-1] if isinstance(old, list) and old else {}
            outcome = last.get("outcome", {"type": "exit", "exit_code": 0})
            return [{"stdout": text, "stderr": "", "outcome": outcome}]
        return [{"type": "input_text", "text": text}] if isinstance(old, list) else text

    def without_thinking(self, native: Native) -> Native | None:
        """None for reasoning. Another item of the model loses its id: by that the API knows that there was reasoning,
        and refuses the item ("was provided without its required 'reasoning' item"). Calls of the provider's own tools
        cannot be sent without their ids: they are left out, and programs, whose calls become the model's own."""
        kind = item_type(native)
        if kind in ("reasoning", PROGRAM, PROGRAM_OUTPUT):
            return None
        bare = {key: value for key, value in native.items() if key not in ("id", "caller")}
        if is_input(native, kind) or kind in _CALLS_WITH_ID or len(bare) == len(native):
            return native
        if kind != "message" and _call_id(native, kind) is None:
            return None if kind.endswith("_call") else native
        return bare

    def user_message(self, text: str) -> Native:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def system_message(self, text: str) -> Native | None:
        return {**self.user_message(text), "role": "developer"}

    def tool_definitions(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"type": "function", **each} for each in tools]

    def sent_parts(self, native: Native) -> tuple[Part, ...]:
        item = _item_shaped(native)
        kind = item_type(item)
        call_id, answered = _call_id(item, kind), _answered_id(item, kind)
        if kind == "reasoning" and not isinstance(item.get("summary"), list):
            item = {**item, "summary": []}
        if kind.endswith("_call_output") and item.get("output") is None:
            item = {**item, "output": ""}
        if kind in (PROGRAM, PROGRAM_OUTPUT):
            return (Part(item, True, asks=call_id, gets=answered),)
        calls = (Call((call_id,), item),) if call_id else ()
        answers = (answered,) if answered else ()
        caller = item.get("caller")
        called_by = base.name_of(caller.get("caller_id")) if isinstance(caller, dict) else None
        is_model = not is_input(item, kind)
        return (Part(item, is_model, {}, None, calls, answers, kind == "reasoning", caller=called_by),)

    def missing(self, call: Call) -> Native | None:
        """A text, if the type of the call is answered by one; calls of other types are left out."""
        kind = item_type(call.native)
        if kind not in _ANSWERED_BY_TEXT:
            return None
        return {"type": f"{kind}_output", "call_id": call.native["call_id"], "output": MISSING_RESULT}

    def fitted(self, result: Native, call: Call) -> Native:
        """The output, of the type that answers this type of call."""
        wanted = _OUTPUT_TYPES.get(kind := item_type(call.native), f"{kind}_output")
        return result if result["type"] == wanted else {**result, "type": wanted}

    def orphan(self, part: Part) -> list[Native]:
        parts = _OF_ITEMS.left_of(part.native.get("output"), "input_text")
        return [{"type": "message", "role": "user", "content": parts}] if parts else []


def _item_shaped(native: Native) -> Native:
    """The item without keys that a request may not have."""
    left_out = _ITEM_REPLY_KEYS if native.get("status", "") is not None else _ITEM_REPLY_KEYS | {"status"}
    if native.keys().isdisjoint(left_out):
        return native
    return {key: value for key, value in native.items() if key not in left_out}


def _call_id(item: Item, kind: str) -> str | None:
    """The id of a call that the client answers; None for any other item, and for calls of the provider's own tools."""
    if kind == APPROVAL_REQUEST:
        return base.name_of(item.get("id"))
    return base.name_of(item.get("call_id")) if kind.endswith("_call") or kind == PROGRAM else None


def _answered_id(item: Item, kind: str) -> str | None:
    """The id of the call that this item answers; None if it does not answer one."""
    if kind == APPROVAL_RESPONSE:
        return base.name_of(item.get("approval_request_id"))
    if not kind.endswith("_output"):
        return None
    return base.name_of(item.get("call_id")) or (
        base.name_of(item.get("id")) if kind == "local_shell_call_output" else None
    )


def is_input(item: Item, kind: str) -> bool:
    """Whether the item comes from the client, not from the model."""
    if kind == "message":
        return item.get("role") != "assistant"
    return (kind.endswith("_output") and kind != PROGRAM_OUTPUT) or kind in (APPROVAL_RESPONSE, ADDED_TOOLS)


_OF_ITEMS = PartKinds(
    {**dict.fromkeys(_TEXT_PARTS, "text"), "refusal": "refusal"},
    images=["input_image", "computer_screenshot"],
    documents={"input_file": lambda part: base.name_of(part.get("filename")) or "", "input_audio": lambda part: ""},
    foreign=lambda kind: kind in _NOT_OF_ITEMS,
)


def _reasoning_text(native: Item) -> str:
    texts = []
    for key in ("summary", "content"):
        texts += [found.text for found in _OF_ITEMS.read(native.get(key) or [], key)]
    return "\n".join(texts)


def _read_call(native: Item, kind: str) -> Piece:
    call_id = _call_id(native, kind)
    if kind in ("function_call", "custom_tool_call"):
        base.need_text(native, "call_id", "the item", empty=False)
        base.need_text(native, "name", "the item")
    if kind == "image_generation_call":
        return base.piece("image")
    name, namespace = native.get("name"), native.get("namespace")
    tool = base.name_of(name) or kind.removesuffix("_call")
    if isinstance(namespace, str) and isinstance(name, str):
        tool = namespace + name
    if kind == "custom_tool_call" and tool == CODE_MODE and isinstance(script := native.get("input"), str):
        tool, argument = scripted_call(script) or (tool, script)
        return base.call_piece(call_id, tool, argument)
    for key in ("arguments", "input", "action", "operation", "actions"):
        if native.get(key) is not None and (call_id or key == "action"):
            return base.call_piece(call_id, tool, native[key])
    named = ("id", "type", "status", "call_id")
    return base.call_piece(call_id, tool, {key: value for key, value in native.items() if key not in named})


def _read_output(native: Item, kind: str) -> list[Piece]:
    output, call_id = native.get("output"), _answered_id(native, kind)
    if call_id is None:
        raise BadMessageError("call_id is missing; expected the id of the call that this answers.")
    if kind == "computer_call_output":
        return [base.piece("image", call_id=call_id)]
    if kind == "shell_call_output" and isinstance(output, list):
        chunks = [base.need_object(chunk, f"output[{place}]") for place, chunk in enumerate(output)]
        texts = [chunk.get(key) for chunk in chunks for key in ("stdout", "stderr")]
        parts = [base.piece("text", text) for text in texts if isinstance(text, str) and text]
    else:
        parts = _OF_ITEMS.read("" if output is None else output, "output")
    return base.result_pieces(call_id, parts, ("output",), is_error=native.get("status") == "failed")


# Code mode.

CODE_MODE = "exec"

_TEXT = r"(?:String\.raw)?(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|`(?:[^`\\$]|\\.|\$(?!\{))*+`)"
_NAME = r"(?:\w{1,200}|\"\w{1,200}\"|'\w{1,200}')"
_VALUE = rf"(?:{_TEXT}|-?[\w.]{{1,200}}+|\[[^\[\]]{{0,2000}}\])"
_CALL = re.compile(r"\btools\.(\w{1,200})\s*\(\s*")
_WRITTEN = re.compile(rf"{_TEXT}|//[^\n]*|/\*.*?\*/", re.DOTALL)
"""Texts and comments, in which nothing is called."""

_BOUND = re.compile(rf"\bconst\s+(\w{{1,200}})\s*=\s*({_TEXT})\s*(?:;|\n|\Z)", re.DOTALL)
_MEMBER = re.compile(rf"({_NAME})(?:\s*:\s*({_VALUE}))?", re.DOTALL)
_MEMBERS = rf"(?:[\s,]*+{_NAME}(?:\s*+:\s*+{_VALUE})?+\s*+(?=[,}}]))*+"
_ARGUMENT = re.compile(rf"(?:\{{({_MEMBERS})[\s,]*+\}}|({_VALUE}))\s*+,?\s*+\)", re.DOTALL)
"""An object whose members are texts, numbers, names and lists, or one of these; nothing that is computed."""

_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r?\n|.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}


def scripted_call(script: str) -> tuple[str, str | dict[str, str]] | None:
    """The tool that a script calls, and its argument: a text, or the texts among its arguments by their names. None if
    the script calls no tool or several, or says the argument in another way than by texts."""
    written = [found.span() for found in _WRITTEN.finditer(script)]
    calls = [call for call in _CALL.finditer(script) if not any(start < call.start() < end for start, end in written)]
    given = _ARGUMENT.match(script, calls[0].end()) if len(calls) == 1 else None
    if given is None:
        return None
    bound = {found[1]: _known(found[2], {}) for found in _BOUND.finditer(script)}
    argument: str | dict[str, str] | None = _known(given[2] or "", bound)
    if given[1] is not None:
        members = ((found[1].strip("\"'"), found[2] or found[1]) for found in _MEMBER.finditer(given[1]))
        argument = {name: value for name, said in members if (value := _known(said, bound)) is not None}
    return (calls[0][1], argument) if argument else None


def _known(said: str, bound: Mapping[str, str | None]) -> str | None:
    """The text or number that is written so, or bound to a name; None for other values."""

    def unescaped(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2] or escape[3]
        return chr(min(int(code, 16), 0x10FFFF)) if code else _ESCAPED.get(escape[4], escape[4])

    if not said.endswith(("'", '"', "`")):
        return said if said.isdecimal() else bound.get(said)
    literal = said.removeprefix("String.raw")[1:-1]
    return literal if said.startswith("S") else _ESCAPE.sub(unescaped, literal)
