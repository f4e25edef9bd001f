"""Views made by hand: short conversations of messages with known tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from contextstash.view.view import Entry
from contextstash_storage.records import Block, Message, Output

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def message(seq: int, role: str, *blocks: Block) -> Message:
    return Message.model_validate(
        {"session_id": "s", "seq": seq, "role": role, "kind": "message", "blocks": blocks, "created_at": WHEN}
    )


def text(tokens: int) -> Block:
    return Block(type="text", tokens=tokens)


def call(call_id: str, tokens: int = 10) -> Block:
    return Block(type="tool_call", call_id=call_id, tool="Bash", tokens=tokens)


def result(call_id: str, tokens: int) -> Block:
    return Block(type="tool_result", call_id=call_id, tokens=tokens)


def outputs_of(entries: Sequence[Entry]) -> dict[tuple[int, int], Output]:
    """An output for each tool result, its tokens those of the block."""
    found = {}
    for entry in entries:
        for block, shown in enumerate(entry.message.blocks if entry.message else ()):
            if shown.type == "tool_result":
                found[entry.first_seq, block] = Output(
                    handle=f"out_{entry.first_seq}", seq=entry.first_seq, block=block, tool="Bash",
                    tokens=shown.tokens, characters=shown.tokens * 4, lines=1, sha256="0" * 64,
                )  # fmt: skip
    return found


def loop(results: Sequence[int]) -> list[Entry]:
    """A request of the user, and tool calls whose results have the tokens given."""
    said = [("user", text(10))]
    for place, tokens in enumerate(results):
        said += [("assistant", call(f"call_{place}")), ("tool", result(f"call_{place}", tokens))]
    return [Entry(message=message(seq, role, block)) for seq, (role, block) in enumerate(said)]
