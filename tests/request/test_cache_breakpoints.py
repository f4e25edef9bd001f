"""The cache breakpoints of what is sent, before and after a prune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.stashes import SESSION, stash_at, valid_view

MARK = {"cache_control": {"type": "ephemeral"}}


def turn(number: int) -> list[dict[str, Any]]:
    """A marked question and a tool call with a large result."""
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": f"make {number}"}}
    output = "".join(f"{line}: built {number}\n" for line in range(300))
    return [
        {"role": "user", "content": [{"type": "text", "text": f"Question {number}?", **MARK}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}]},
        {"role": "assistant", "content": f"Answer {number}."},
    ]


def marked(messages: list[dict[str, Any]]) -> list[str]:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return [block["text"] for block in blocks if "cache_control" in block]


async def test_after_a_prune_the_last_breakpoint_before_it_is_sent_with_the_newest(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "b.db") as stash:
        await stash.record_messages(
            [message for number in range(6) for message in turn(number)], session_id=SESSION, format="anthropic"
        )
        assert marked(await valid_view(stash, "anthropic")) == ["Question 4?", "Question 5?"]
        pruned = await stash.prune_tool_outputs(SESSION, keep_last=2)
        assert pruned.archived
        assert marked(await valid_view(stash, "anthropic")) == ["Question 0?", "Question 5?"]
        await stash.restore_outputs([each.handle for each in pruned.archived], session_id=SESSION)
        assert marked(await valid_view(stash, "anthropic")) == ["Question 4?", "Question 5?"]
