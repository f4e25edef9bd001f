"""Arbitrary JSON, weighted towards the words that provider messages are made of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

KEYS = (
    "role", "type", "content", "text", "id", "name", "call_id", "tool_call_id", "tool_use_id", "tool_calls",
    "function_call", "function", "custom", "arguments", "input", "output", "thinking", "signature", "summary",
    "usage", "input_tokens", "prompt_tokens", "action", "source", "audio", "refusal", "model", "parts",
    "functionCall", "functionResponse", "function_response", "inlineData", "args", "response", "thought",
    "thoughtSignature",
)  # fmt: skip
STRINGS = (
    "user", "assistant", "system", "tool", "function", "message", "text", "tool_use", "tool_result",
    "thinking", "image", "document", "image_url", "file", "input_text", "reasoning", "function_call",
    "function_call_output", "shell_call_output", "computer_call_output", "web_search_call",
    "mcp_approval_request", "custom", "compaction", "server_tool_use", "model", "", "\ud800", "\x00",
)  # fmt: skip

_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(STRINGS),
    st.text(max_size=8),
)


def _deeper(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.one_of(st.sampled_from(KEYS), st.text(max_size=4))
    return st.one_of(st.lists(values, max_size=3), st.dictionaries(keys, values, max_size=5))


json_values: st.SearchStrategy[Any] = st.recursive(_leaves, _deeper, max_leaves=20)

json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.one_of(st.sampled_from(KEYS), st.text(max_size=4)), json_values, max_size=6
)
