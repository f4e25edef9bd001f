# ruff: noqa: E501
"""What the fuzzing begins with: short inputs with what readers look for."""

from __future__ import annotations

import json

from contextstash_storage.records import Native

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
