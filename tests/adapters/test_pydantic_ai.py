"""pydantic-ai's agent with our capability against a strict provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash
from contextstash_storage.records import Event, Request
from tests.support.strict_provider import QUESTION, SYSTEM, TURNS, WINDOW, StrictProvider, read_part, strict_provider

pytest.importorskip("pydantic_ai")

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ThinkingPart, ToolReturnPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from examples.pydantic_ai_capability import StashHistory

MANY = UsageLimits(request_limit=None)
BOUND_TURNS = max(TURNS, 30)
"""Enough for a compaction."""


async def answer(provider: StrictProvider, *capabilities: Any) -> Any:
    async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="test", max_retries=0) as client:
        model = OpenAIChatModel("gpt-5.4", provider=OpenAIProvider(openai_client=client))
        agent = Agent(
            model,
            instructions=SYSTEM,
            tools=[read_part],
            capabilities=list(capabilities),
            model_settings={"max_tokens": 2_000},
        )
        return await agent.run(QUESTION, usage_limits=MANY)


def returned(result: Any) -> list[str]:
    """The tool outputs in the agent's own history."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


async def test_a_run_many_times_its_window_is_never_refused(tmp_path: Path) -> None:
    with strict_provider(window=WINDOW, turns=TURNS) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model="gpt-5.4", window=WINDOW)
            result = await answer(provider, StashHistory(session))
            requests = await stash.use_cases.store.read_log("job", Request, newest=True, limit=3)
            recorded = await stash.use_cases.read_messages("job", limit=500)
    assert result.output == "done"
    assert (provider.invalid, provider.over, len(provider.accepted)) == ([], [], TURNS + 1)
    assert [request.usage.prompt_tokens for request in requests if request.usage] == provider.accepted[:-4:-1]
    assert recorded.total == 2 * TURNS + 2
    assert returned(result) == [read_part(turn) for turn in range(1, TURNS + 1)]


def binding_model(provider: StrictProvider, form: str) -> tuple[Any, AsyncAnthropic | AsyncOpenAI]:
    """A model that binds its reasoning to what stands before it, and the client that it uses."""
    if form == "anthropic":
        anthropic = AsyncAnthropic(base_url=provider.url, api_key="test", max_retries=0)
        return AnthropicModel("claude-opus-5-5", provider=AnthropicProvider(anthropic_client=anthropic)), anthropic
    openai = AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="test", max_retries=0)
    return OpenAIResponsesModel("gpt-6.2-sol", provider=OpenAIProvider(openai_client=openai)), openai


@pytest.mark.parametrize("form", ["anthropic", "openai-responses"])
async def test_reasoning_that_is_bound_to_what_stands_before_it_stays_valid(form: str, tmp_path: Path) -> None:
    with strict_provider(window=WINDOW, turns=BOUND_TURNS, binds=True) as provider:
        model, client = binding_model(provider, form)
        async with client, open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model=model.model_name, window=WINDOW)
            agent = Agent(
                model,
                instructions=SYSTEM,
                tools=[read_part],
                capabilities=[StashHistory(session)],
                model_settings={"max_tokens": 2_000},
            )
            result = await agent.run(QUESTION, usage_limits=MANY)
            events = await stash.use_cases.store.read_log("job", Event)
    assert result.output == "done"
    assert (provider.invalid, provider.over, len(provider.accepted)) == ([], [], BOUND_TURNS + 1)
    assert set(provider.mismatched) == {0}
    assert "compaction" in {event.kind for event in events}
    thoughts = [part for each in result.all_messages() for part in each.parts if isinstance(part, ThinkingPart)]
    assert len(thoughts) == BOUND_TURNS + 1
