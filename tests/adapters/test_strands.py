"""A Strands agent with our conversation manager against a strict provider, which it streams from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash, open_stash_sync
from contextstash.library.blocking import BlockingSession
from tests.support import adapter_runs
from tests.support.adapter_runs import QUESTION, SYSTEM, TURNS, WINDOW, unmanaged_overflows
from tests.support.strict_provider import StrictProvider, strict_provider

pytest.importorskip("strands")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel

from contextstash.adapters.strands import StashConversationManager

read_part = tool(adapter_runs.read_part)


def agent(provider: StrictProvider, manager: Any, *tools: Any) -> Any:
    model = OpenAIModel(
        client_args={"base_url": f"{provider.url}/v1", "api_key": "test", "max_retries": 0},
        model_id="gpt-5.4",
        params={"max_completion_tokens": 2_000},
    )
    return Agent(
        model=model,
        tools=[read_part, *tools],
        system_prompt=SYSTEM,
        conversation_manager=manager,
        callback_handler=None,
    )


def managed(provider: StrictProvider, session: BlockingSession) -> Any:
    manager = StashConversationManager(session)
    return agent(provider, manager, *manager.tools())


def test_without_the_manager_the_window_overflows() -> None:
    with strict_provider(window=WINDOW, turns=TURNS) as provider:
        with pytest.raises(Exception, match="too long"):
            agent(provider, NullConversationManager())(QUESTION)
        unmanaged_overflows(provider)


def test_an_agent_many_times_its_window_is_never_refused(tmp_path: Path) -> None:
    with strict_provider(window=WINDOW, turns=TURNS) as provider, open_stash_sync(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4", window=WINDOW)
        done = managed(provider, session)(QUESTION)
        recorded = session.messages()
        found = session.search("7:9 GET").hits
    assert str(done).strip() == "done"
    assert (provider.invalid, provider.over, len(provider.accepted)) == ([], [], TURNS + 1)
    assert len(recorded) == 2 * TURNS + 2
    assert found
    assert reported(tmp_path / "s.db") == provider.accepted[:-4:-1]


def reported(database: Path) -> list[int]:
    """The prompt tokens booked to the last three requests."""

    async def read() -> list[int]:
        async with open_stash(database) as stash:
            requests = await stash.use_cases.read_requests("job", last=3)
        return [request.usage.prompt_tokens for request in requests if request.usage]

    return asyncio.run(read())


def test_a_refused_call_is_made_again_smaller(tmp_path: Path) -> None:
    with strict_provider(window=WINDOW // 2, turns=8) as provider, open_stash_sync(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4", window=WINDOW)
        done = managed(provider, session)(QUESTION)
        assert len(session.messages()) == 2 * 8 + 2
    assert str(done).strip() == "done"
    assert (provider.invalid, len(provider.over)) == ([], 1)
