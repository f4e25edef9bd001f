"""JSON-RPC messages read off the wire: bytes become a message, or the error that their sender is told."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any

import pydantic_core
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)

from contextstash.json_text import BadJsonError, strict_value
from contextstash.mcp.sendable import sendable, sendable_text
from contextstash.mcp.surrogates import holds_halves

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Bytes of one message: a batch of messages with images in it can be tens of megabytes."""

MAX_OF_A_BATCH = 100
"""How many requests of a batch are told one by one that there are no batches."""

MAX_ID_LENGTH = 200
"""Characters of an id that is looked for in what cannot be read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was sent and is no message of ours. `replies` go back to the sender: none where it was itself a reply;
    `kind` is for the log and repeats nothing of it."""

    kind: str
    replies: tuple[JSONRPCError, ...]


def read_message(data: bytes) -> JSONRPCMessage | Refusal:
    """The message in a line or a body from a client."""
    if not data.strip():
        return _refused("empty line", PARSE_ERROR, "The message is empty. Send one JSON object on each line.")
    try:
        value = strict_value(data)
    except BadJsonError as error:
        code = PARSE_ERROR if error.syntax else INVALID_REQUEST
        return _refused(error.kind, code, str(error), found_id(data))
    if isinstance(value, list):
        return _batch(value)
    if not isinstance(value, dict):
        return _refused("no object", INVALID_REQUEST, "A JSON-RPC message is an object. Send one with 'method'.")
    if "method" not in value and ("result" in value or "error" in value):
        return _reply(value)
    problem = _problem(value)
    if problem is not None:
        return _refused("wrong shape", INVALID_REQUEST, problem, _usable_id(value.get("id")))
    return _request(value)


def _request(value: dict[str, Any]) -> JSONRPCMessage | Refusal:
    """A request or notification; halves of surrogate pairs may stand in the arguments of a tool, nowhere else."""
    if holds_halves(_without_arguments(value)):
        text = "Half of a surrogate pair (an escape such as \\ud83d alone) can stand in a tool's arguments only."
        return _refused("half of a surrogate pair", INVALID_REQUEST, text, _usable_id(value.get("id")))
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValueError:
        text = "The message is not a JSON-RPC request. Send 'jsonrpc', 'id', 'method' and 'params'."
        return _refused("wrong shape", INVALID_REQUEST, text, _usable_id(value.get("id")))


def _without_arguments(value: dict[str, Any]) -> dict[str, Any]:
    params = value.get("params")
    if value["method"] != "tools/call" or not isinstance(params, dict):
        return value
    return {**value, "params": {name: each for name, each in params.items() if name != "arguments"}}


def _reply(value: dict[str, Any]) -> JSONRPCMessage | Refusal:
    """What answers a request of ours. It gets no reply, or two programs would refuse each other for ever."""
    try:
        return jsonrpc_message_adapter.validate_python(sendable(value), by_name=False)
    except ValueError:
        return Refusal("malformed reply", ())


def _batch(items: list[Any]) -> Refusal:
    requests = [item for item in items[:MAX_OF_A_BATCH] if isinstance(item, dict) and "method" in item]
    known: list[int | str] = [each for item in requests if (each := _usable_id(item.get("id"))) is not None]
    text = "This server takes no JSON-RPC batches (a list). Send each message by itself, on a line of its own."
    return Refusal("batch", tuple(refusal(INVALID_REQUEST, text, each) for each in known or (None,)))


def _problem(value: dict[str, Any]) -> str | None:
    """What is wrong with an object that should be a request or a notification; None if nothing is."""
    if value.get("jsonrpc") != "2.0":
        return "'jsonrpc' must be \"2.0\"."
    if "id" in value and _usable_id(value["id"]) is None:
        return "'id' must be a string or a whole number. Leave it out of a notification."
    if not isinstance(value.get("method"), str):
        return "'method' must be a string, such as \"tools/call\"."
    if not isinstance(value.get("params"), dict | None):
        return "'params' must be an object. Name each parameter."
    return None


def _usable_id(value: object) -> int | str | None:
    if isinstance(value, str):
        return None if holds_halves(value) else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _refused(kind: str, code: int, text: str, request_id: int | str | None = None) -> Refusal:
    return Refusal(kind, (refusal(code, text, request_id),))


def refusal(code: int, text: str, request_id: int | str | None = None) -> JSONRPCError:
    """The error that a sender is told."""
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text))


def read_answer(data: bytes) -> JSONRPCMessage:
    """The message in a line of a server behind the gateway; halves of surrogate pairs stay in its texts. Raises
    BadJsonError, which says what is wrong with it, if it is none."""
    value = strict_value(data)
    try:
        return jsonrpc_message_adapter.validate_python(with_plain_names(value), by_name=False)
    except ValueError:
        raise BadJsonError("wrong shape", "It is not a JSON-RPC message.") from None


def with_plain_names(value: Any) -> Any:
    """The value with halves in names replaced: the SDK writes results with none. The same one if there are none."""
    return _renamed(value) if holds_halves(value) else value


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {sendable_text(name): _renamed(child) for name, child in value.items()}
    return [_renamed(child) for child in value] if isinstance(value, list) else value


def too_large(start: bytes, end: bytes) -> Refusal:
    """What is told of a message over MAX_MESSAGE_BYTES, of which these two ends are known."""
    most = MAX_MESSAGE_BYTES // (1024 * 1024)
    text = f"The message is larger than {most} MB. Send it in parts: fewer messages a call, or without large images."
    return _refused("too large", INVALID_REQUEST, text, found_id(start, end))


def written(message: JSONRPCMessage) -> bytes:
    """The message as JSON that every client can read: no half of a surrogate pair, no NaN."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:  # halves of surrogate pairs
        pass
    try:
        return pydantic_core.to_json(sendable(message.model_dump(by_alias=True, exclude_unset=True)))
    except (ValueError, TypeError) as error:
        logger.error("an answer could not be written: %s", type(error).__name__)
        text = "The answer cannot be written as JSON. Ask for a smaller part of it."
        return refusal(INTERNAL_ERROR, text, getattr(message, "id", None)).model_dump_json(exclude_unset=True).encode()


_ID = rb'(-?[0-9]{1,18}(?![0-9.eE])|"[^"\\\x00-\x1f]{0,%d}")' % MAX_ID_LENGTH
_AT_FRONT = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*' + _ID + rb"\s*[,}]")
_AT_END = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*' + _ID + rb"\s*\}\s*\Z")
_VALUE = re.compile(rb"\s*:\s*" + _ID + rb"\s*[,}]")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_TAIL = 1_000
"""Bytes at the end that may hold an id which stands last, as the TypeScript SDK writes it."""


def found_id(data: bytes, end: bytes | None = None) -> int | str | None:
    """The id of a message that cannot be read as JSON, if it can be told; `end` is its end if `data` is only its start.
    Ids deeper inside are not the message's: an error with one of them would answer another request."""
    found = _AT_FRONT.match(data) or _AT_END.search((end or data)[-_TAIL:]) or _at_top(data)
    if found is None:
        return None
    text = found[1].decode("utf-8", "replace")
    return text[1:-1] if text.startswith('"') else int(text)


def _at_top(data: bytes) -> re.Match[bytes] | None:
    """The id where it stands elsewhere at the top of the object, if all before it is balanced."""
    open_ones = bytearray()
    for token in _TOKEN.finditer(data):
        first = token[0][:1]
        if first in b"{[":
            open_ones += first
        elif first in b"}]":
            if not open_ones or open_ones.pop() != (b"{" if first == b"}" else b"[")[0]:
                return None
        elif token[0] == b'"id"' and open_ones == b"{" and (found := _VALUE.match(data, token.end())):
            return found
    return None
