"""Forty patterns that backtrack, on a real server over stdio: another retrieval does not wait for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.servers import SESSION, answer, stdio_client

PATTERNS = 40
RUNAWAY = r"(a+)+$"


def tool_output(place: int, text: str) -> list[dict[str, Any]]:
    call = {"id": f"call_{place}", "type": "function", "function": {"name": "read", "arguments": f'{{"n":{place}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text},
    ]


async def test_a_plain_retrieval_returns_before_half_of_forty_runaway_patterns(tmp_path: Path) -> None:
    texts = ["walrus " + "a" * 20_000 + "!", "porcupine\n" * 50]
    messages = [message for place, text in enumerate(texts) for message in tool_output(place, text)]
    async with stdio_client(tmp_path / "p.db") as client:
        await answer(client, "record_messages", session_id=SESSION, messages=messages)
        trap, plain = [
            (await answer(client, "search_history", query=word, session_id=SESSION))["hits"][0]["handle"]
            for word in ("walrus", "porcupine")
        ]
        runaway = [
            asyncio.create_task(client.call_tool("get_archived_output", {"handle": trap, "pattern": RUNAWAY}))
            for _ in range(PATTERNS)
        ]
        await asyncio.sleep(0.5)  # all forty are on their way; were some not, the test would only be milder
        page = await answer(client, "get_archived_output", handle=plain)
        answered = sum(task.done() for task in runaway)
        for ended in asyncio.as_completed(runaway):
            refused = (await ended).content[0].text  # type: ignore[union-attr]
            if "takes too long" in refused:  # on a busy machine some are refused earlier: they waited for their turn
                break
        for task in runaway:
            task.cancel()
        await asyncio.gather(*runaway, return_exceptions=True)
    assert page["text"] == texts[1]
    assert answered < PATTERNS / 2
    assert "takes too long" in refused
