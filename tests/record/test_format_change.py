"""A session that begins with plain text takes the format that its later messages show."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, BadMessageError
from tests.support.stashes import SESSION, history

HELLO = {"role": "user", "content": "Look at the folder."}

CALLS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "ls"}}],
    },
    "openai-responses": {"type": "function_call", "call_id": "call_1", "name": "Bash", "arguments": "{}"},
    "openai-chat": {
        "role": "assistant",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}],
    },
}


@pytest.mark.parametrize("format_name", CALLS)
async def test_the_first_tool_call_decides_between_formats(stash: Stash, format_name: str) -> None:
    await stash.record_messages([HELLO], session_id=SESSION, first_seq=0)
    result = await stash.record_messages([CALLS[format_name]], session_id=SESSION, first_seq=1)
    assert result.recorded == 1
    assert (await stash.read_session(SESSION)).format == format_name
    assert await history(stash) == [HELLO, CALLS[format_name]]


async def test_tools_show_the_format_before_there_is_a_call(stash: Stash) -> None:
    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    request = await stash.get_context(SESSION, messages=[HELLO], system="Be brief.", tools=tools)
    assert request.messages == [HELLO]  # in Chat Completions the system prompt would be the first message


async def test_a_session_that_has_shown_its_format_keeps_it(stash: Stash) -> None:
    await stash.record_messages([HELLO, CALLS["openai-chat"]], session_id=SESSION, first_seq=0)
    with pytest.raises(BadMessageError, match="another format"):
        await stash.record_messages([CALLS["anthropic"]], session_id=SESSION, first_seq=2)
    with pytest.raises(BadInputError, match="holds openai-chat messages"):
        await stash.record_messages([HELLO], session_id=SESSION, format="anthropic")
    assert await history(stash) == [HELLO, CALLS["openai-chat"]]
