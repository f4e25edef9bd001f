"""What the fuzzing begins with, short inputs with what readers look for; and changes of an input that keep most of its
form: a parser of JSON refuses nearly all others at once."""

from __future__ import annotations

import json
import random
from functools import reduce
from typing import Any, cast

from contextstash_storage.records import Native

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**400, 2**63, "", "x", "\ud800", "\x00", "a" * 3_000, [], {}, [[]], [None], {"": None},
    "1e999", "2026-13-45T99:99:99Z", "data:image/png;base64,AAAA", "sk-ant-api03-" + "a1B2" * 24,
    "<private>x</private>",
    [{"type": "text", "text": "x"}], {"type": "tool_result", "tool_use_id": 7, "content": None}, float("inf"),
)  # fmt: skip
"""What stands in the place of another value: the ends of ranges, wrong types, and what readers look for."""

BYTES = (b"\xff", b"\x00", b"(", b"\\", b"%", b'"', b"\r\n", b"\xed\xa0\x80")

MAX_CHANGES = 4
MAX_DEPTH = 2_000


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The input with some changes: of its JSON value or that of a line, of its lines, or of its bytes."""
    for _ in range(rng.randint(1, MAX_CHANGES)):
        lines = data.split(b"\n")
        at, choice = rng.randrange(len(lines)), rng.random()
        line = lines[at].removeprefix(b"data: ")
        if choice < 0.65 and (value := parsed(data)) is not None:
            data = _changed(value, rng)
        elif choice < 0.65 and (value := parsed(line)) is not None:
            lines[at] = lines[at][: len(lines[at]) - len(line)] + _changed(value, rng)
            data = b"\n".join(lines)
        elif 0.65 <= choice < 0.8:
            other = lines[rng.randrange(len(lines))]
            lines[at : at + 1] = rng.choice(([], [other], [lines[at], other], [lines[at][: len(lines[at]) // 2]]))
            data = b"\n".join(lines)
        else:  # some bytes are replaced by others, by none, or stand there several times
            place = rng.randrange(len(data) + 1)
            gone = data[place : place + rng.choice((0, 1, 8, 64))]
            put = rng.choice((b"", rng.choice(BYTES), bytes([rng.randrange(256)]), gone * rng.randrange(2, 5)))
            data = data[:place] + put + data[place + len(gone) :]
    return data


def parsed(data: bytes) -> Any:
    """The JSON value; None if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _changed(value: Any, rng: random.Random) -> bytes:
    """The JSON of the value with one change at a random place."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        children = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, child in children:
            places.append((each, key))
            waiting.append(child)
    if not places:
        value = rng.choice(VALUES)
    else:
        _change(*rng.choice(places), rng, places)
    try:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[]"


def _change(holder: Any, key: Any, rng: random.Random, places: list[tuple[Any, Any]]) -> None:
    choice = rng.randrange(5)
    if choice == 0:
        del holder[key]
    elif choice == 1:
        other, place = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[place]))  # a copy: no cycles
    elif choice == 2 and isinstance(holder, dict):
        holder[rng.choice(("", "type", "content", str(key).upper(), "\ud800"))] = holder.pop(key)
    elif choice == 3 and isinstance(holder[key], str):
        text = holder[key]
        cut = rng.randrange(len(text) + 1)
        holder[key] = text[:cut] + rng.choice(("\x00", "\ud800", "\n", "é", "‹", "")) + text[cut + rng.randrange(3) :]
    elif rng.random() < 0.98:
        holder[key] = rng.choice(VALUES)
    else:
        holder[key] = reduce(lambda inner, _: [inner], range(rng.randrange(MAX_DEPTH)), cast(Any, None))


# ruff: noqa: E501


CHAT: list[Native] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Look at x"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.py\nb.py"},
]  # fmt: skip
ANTHROPIC = [
    {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "Abc="}, {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": False, "content": [{"type": "text", "text": "1\tx"}]}]},
]  # fmt: skip
RESPONSES = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{\"command\": [\"ls\"]}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
]  # fmt: skip
GEMINI = [
    {"role": "user", "parts": [{"text": "go"}]},
    {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "ls", "args": {"dir": "."}}, "thoughtSignature": "AA=="}]},
    {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "ls", "response": {"output": "a.py"}}}]},
]  # fmt: skip
SHORT = {"openai-chat": CHAT, "anthropic": ANTHROPIC, "openai-responses": RESPONSES, "gemini": GEMINI}

STREAMS = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":5,"cache_read_input_tokens":3}}}\n\nevent: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":9}}\n\n',
    'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}\n\ndata: [DONE]\n\n',
    'data: {"type":"response.created","response":{}}\n\ndata: {"type":"response.completed","response":{"id":"r","output":[{"type":"message"}],"usage":{"input_tokens":7,"output_tokens":1,"input_tokens_details":{"cached_tokens":2}}}}\n\n',
    'data: {"type":"error","error":{"code":"context_length_exceeded"}}\n\n',
)  # fmt: skip
RECORDS = {
    "opencode": '[{"id":"ses_1","directory":"/p","title":"t","version":"1"},{"id":"msg_1","role":"user","sessionID":"ses_1","time":{"created":1},"parts":[{"type":"text","text":"x"}]},{"info":{"id":"msg_2","role":"assistant","modelID":"m","tokens":{"input":1,"output":2,"cache":{"read":1,"write":0}},"time":{"completed":2}},"parts":[{"type":"tool","callID":"c","tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a","time":{"start":1}}},{"type":"step-finish"}]}]',
    "gemini": '{"sessionId":"s","projectHash":"p","startTime":"2026-01-01T00:00:00Z","messages":[{"id":"1","type":"user","content":"x","timestamp":"2026-01-01T00:00:00Z"},{"id":"2","type":"gemini","content":"y","thoughts":[{"subject":"a","description":"b"}],"tokens":{"input":1,"output":2,"cached":0},"toolCalls":[{"id":"c","name":"ls","args":{},"result":[{"functionResponse":{"id":"c","name":"ls","response":{"output":"z"}}}],"status":"success"}]}]}',
}  # fmt: skip


def seeds_of(name: str) -> list[bytes]:
    """The inputs to begin with."""
    kind = name.partition("-")[0]
    if kind == "reply":
        return [each.encode() for each in STREAMS]
    records = [text for reader, text in RECORDS.items() if name.endswith(reader) or kind == "transcript"]
    return [each.encode() for each in (*records, *map(json.dumps, SHORT.values()))]
