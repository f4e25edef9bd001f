"""Short ways to write down the turns of a session."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import settings

from contextstash.events.turns import Turn
from contextstash.messages.main_argument import main_argument
from contextstash_storage.records import Block
from tests.support.effort import examples

laws = settings(max_examples=examples(80))


def quarter(text: str) -> int:
    """Tokens as characters / 4, rounded up."""
    return (len(text) + 3) // 4


class Script:
    """Turns in order, numbered by themselves."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def user(self, *texts: str) -> Script:
        """One message with these texts."""
        blocks = tuple(Block(type="text", size=len(text)) for text in texts)
        self.turns.append(Turn(len(self.turns), "user", blocks, texts))
        return self

    def assistant(self, text: str) -> Script:
        return self._add("assistant", Block(type="text", size=len(text)), text)

    def thinking(self, text: str) -> Script:
        """A message with the assistant's thinking alone."""
        return self._add("assistant", Block(type="thinking", size=len(text)), text)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        output: str | None = "",
        *,
        is_error: bool = False,
    ) -> Script:
        """A tool call and its result; no result if `output` is None."""
        call_id = f"call-{len(self.turns)}"
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        block = Block(type="tool_call", call_id=call_id, tool=tool, argument=main_argument(arguments))
        self._add("assistant", block, text)
        if output is not None:
            result = Block(type="tool_result", call_id=call_id, tool=tool, size=len(output), is_error=is_error)
            self._add("tool", result, output, handle=f"out_{len(self.turns):08d}")
        return self

    def _add(self, role: Any, block: Block, text: str, handle: str | None = None) -> Script:
        handles = {0: handle} if handle else {}
        self.turns.append(Turn(len(self.turns), role, (block,), (text,), handles))
        return self
