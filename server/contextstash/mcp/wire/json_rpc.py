"""JSON-RPC messages on the wire: bytes become a message, or the error that is returned to their sender."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from itertools import islice
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

from contextstash.json.json_text import BadJsonError, strict_value
from contextstash.mcp.wire.sendable import has_lone_surrogate, sendable, sendable_text, with_texts

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Bytes of one message: a batch of messages with images in it can be tens of megabytes."""

MAX_OF_A_BATCH = 100
"""Requests of a batch that get an error each, below 20 KB together; further ones get none."""

MAX_ID_LENGTH = 200
"""Longest id, in characters, that is searched in a message that cannot be parsed (a UUID has 36). The error of a
message with a longer id names none."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that is not accepted. `replies` go back to the sender: none if the message was itself a reply.
    `kind` is for the log and contains nothing of the message."""

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
    """A request or notification. Lone surrogates are accepted in the arguments of a tool only."""
    if has_lone_surrogate(_without_arguments(value)):
        text = "Half of a surrogate pair (an escape such as \\ud83d alone) is accepted in a tool's arguments only."
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
    """A response to a request of this server. An invalid one gets no reply: two programs would refuse each other for
    ever."""
    try:
        return jsonrpc_message_adapter.validate_python(sendable(value), by_name=False)
    except ValueError:
        return Refusal("malformed reply", ())


def _batch(items: list[Any]) -> Refusal:
    requests = [item for item in items[:MAX_OF_A_BATCH] if isinstance(item, dict) and "method" in item]
    known: list[int | str] = [each for item in requests if (each := _usable_id(item.get("id"))) is not None]
    text = "JSON-RPC batches (a list) are not supported. Send each message separately, on its own line."
    return Refusal("batch", tuple(refusal(INVALID_REQUEST, text, each) for each in known or (None,)))


def _problem(value: dict[str, Any]) -> str | None:
    """Why an object is not a valid request or notification; None if it is valid."""
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
        return None if has_lone_surrogate(value) else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _refused(kind: str, code: int, text: str, request_id: int | str | None = None) -> Refusal:
    return Refusal(kind, (refusal(code, text, request_id),))


def refusal(code: int, text: str, request_id: int | str | None = None) -> JSONRPCError:
    """The error response to a sender."""
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text))


def read_answer(data: bytes) -> JSONRPCMessage:
    """The message in a line of a server behind the gateway; lone surrogates stay in its texts. Raises BadJsonError,
    with the reason, if it is not a message."""
    value = strict_value(data)
    try:
        return jsonrpc_message_adapter.validate_python(with_plain_names(value), by_name=False)
    except ValueError:
        raise BadJsonError("wrong shape", "It is not a JSON-RPC message.") from None


def with_plain_names(value: Any) -> Any:
    """The value with lone surrogates in names replaced, which the SDK cannot write; the same object if it has none."""
    return with_texts(value, str, sendable_text) if has_lone_surrogate(value) else value


def too_large(start: bytes, end: bytes) -> Refusal:
    """The refusal of a message over MAX_MESSAGE_BYTES, of which only both ends were kept."""
    most = MAX_MESSAGE_BYTES // (1024 * 1024)
    text = f"The message is larger than {most} MB. Send it in parts: fewer messages a call, or without large images."
    return _refused("too large", INVALID_REQUEST, text, found_id(start, end))


def written(message: JSONRPCMessage) -> bytes:
    """The message as JSON that every client can read: no lone surrogate."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:  # lone surrogates
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
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A string that is cut off is a token too: otherwise each quotation mark in it would be tried as the start of one, 20
KB of them for two seconds."""
_TAIL = 1_000
"""Bytes at the end in which the id is searched: the TypeScript SDK writes it last."""


def found_id(data: bytes, end: bytes | None = None) -> int | str | None:
    """The id of a message that cannot be read as JSON, if it is found; `end` is its end if `data` is only its start.
    Ids deeper inside are not the message's: an error with one of them would answer another request."""
    found = _AT_FRONT.match(data) or _AT_END.search((end or data)[-_TAIL:]) or _at_top(data)
    if found is None:
        return None
    text = found[1].decode("utf-8", "replace")
    return text[1:-1] if text.startswith('"') else int(text)


MAX_TOKENS = 100_000
"""Strings and brackets after which the search for an id ends, some 50 ms: 60 MB of brackets would take minutes."""


def _at_top(data: bytes) -> re.Match[bytes] | None:
    """The id at another place of the outermost object, if all brackets before it are balanced."""
    open_ones = bytearray()
    for token in islice(_TOKEN.finditer(data), MAX_TOKENS):
        first = token[0][:1]
        if first in b"{[":
            open_ones += first
        elif first in b"}]":
            if not open_ones or open_ones.pop() != (b"{" if first == b"}" else b"[")[0]:
                return None
        elif token[0] == b'"id"' and open_ones == b"{" and (found := _VALUE.match(data, token.end())):
            return found
    return None
