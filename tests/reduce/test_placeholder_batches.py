"""Placeholders are counted in batches, beside which the next are written: the edits are those of one batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from contextstash.reduce import prune
from contextstash_storage.records import ArchiveEdit, Edit, Native
from tests.support.stashes import SESSION, stash_at

OUTPUTS = 23


def reads(number: int) -> list[Native]:
    """A call with an output that is longer than its placeholder, except each fifth."""
    function = {"name": "read_file", "arguments": json.dumps({"path": f"file_{number}.py"})}
    call = {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}
    text = f"def f_{number}():\n    return {number}\n" * (2 if number % 5 == 0 else 40 + number)
    return [call, {"role": "tool", "tool_call_id": f"c{number}", "content": text}]


async def pruned(path: Path, preset: str) -> list[Edit]:
    async with stash_at(path, preset=preset) as stash:
        messages = [{"role": "user", "content": "Go."}, *(each for number in range(OUTPUTS) for each in reads(number))]
        await stash.record_messages(messages, session_id=SESSION)
        result = await stash.prune_tool_outputs(SESSION, keep_last=1)
        estimate = await stash.estimate_context(SESSION)
        assert result.tokens_after == estimate.tokens
        return [edit.model_copy(update={"created_at": None}) for edit in await stash.store.read_edits(SESSION)]


@pytest.mark.parametrize("at_once", [1, 7, 22])
async def test_the_edits_do_not_depend_on_the_size_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, preset_with: Callable[..., str]
) -> None:
    whole = await pruned(tmp_path / "whole.db", preset_with(prune_smallest_tokens=0))
    monkeypatch.setattr(prune, "OUTPUTS_AT_ONCE", at_once)
    assert await pruned(tmp_path / "pieces.db", preset_with(prune_smallest_tokens=0)) == whole
    archived = [edit.seq for edit in whole if isinstance(edit, ArchiveEdit)]
    assert archived == sorted(archived)
    assert len(archived) == OUTPUTS - 1 - len(range(0, OUTPUTS - 1, 5))
