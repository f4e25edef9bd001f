"""`open_stash`: contextstash within a program, driven by the providers' real SDKs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash
from tests.support.effort import examples
from tests.support.plain_loops import MODELS, run_loop
from tests.support.strict_provider import strict_provider

TURNS = examples(100)


@pytest.mark.parametrize("fmt", MODELS)
async def test_a_loop_many_times_its_window_is_never_refused(tmp_path: Path, fmt: str) -> None:
    with strict_provider(window=32_000, turns=TURNS) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job-7", model=MODELS[fmt], window=32_000)
            messages: list[Any] = [{"role": "user", "content": "Why do loans fail?"}]
            assert await run_loop(fmt, provider.url, session, messages) == "done"
            recorded = await stash.use_cases.read_messages("job-7", limit=500)
        assert (provider.invalid, provider.over) == ([], [])
        assert len(provider.accepted) == TURNS + 1
        assert recorded.total == len(messages)  # each reply once, though the list holds it in another form
