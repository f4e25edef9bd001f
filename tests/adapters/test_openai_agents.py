"""The OpenAI Agents SDK with our filter and hooks against a strict provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash
from contextstash_storage.records import Request
from tests.support.strict_provider import QUESTION, SYSTEM, TURNS, WINDOW, StrictProvider, read_part, strict_provider

pytest.importorskip("agents")

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from contextstash.adapters.openai_agents import StashRun

set_tracing_disabled(True)
part_reader = function_tool(read_part)
MODELS = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}


def agent(client: AsyncOpenAI, kind: str = "responses", *tools: Any) -> Agent[Any]:
    return Agent(
        name="reader",
        instructions=SYSTEM,
        model=MODELS[kind]("gpt-5.4", client),
        tools=[part_reader, *tools],
        model_settings=ModelSettings(max_tokens=2_000),
    )


def client_of(provider: StrictProvider) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="test", max_retries=0)


@pytest.mark.parametrize("kind", MODELS)
async def test_a_run_many_times_its_window_is_never_refused(tmp_path: Path, kind: str) -> None:
    with strict_provider(window=WINDOW, turns=TURNS) as provider:
        async with open_stash(tmp_path / "s.db") as stash, client_of(provider) as client:
            run = StashRun(stash.session("job", model="gpt-5.4", window=WINDOW))
            config = RunConfig(call_model_input_filter=run.filter)
            reader = agent(client, kind, *run.tools())
            done = await Runner.run(reader, QUESTION, max_turns=TURNS + 2, hooks=run, run_config=config)
            requests = await stash.use_cases.store.read_log("job", Request, newest=True, limit=3)
            recorded = await stash.use_cases.read_messages("job", limit=500)
    assert done.final_output == "done"
    assert (provider.invalid, provider.over, len(provider.accepted)) == ([], [], TURNS + 1)
    assert [request.usage.prompt_tokens for request in requests if request.usage] == provider.accepted[:-4:-1]
    assert recorded.total == 2 * TURNS + 2 == len(done.to_input_list())


async def test_a_conversation_of_several_runs_goes_on_with_the_sdks_own_session(tmp_path: Path) -> None:
    with strict_provider(window=WINDOW, turns=3) as provider:
        async with client_of(provider) as client:
            for turn in range(3):  # each time another process
                async with open_stash(tmp_path / "s.db") as stash:
                    run = StashRun(stash.session("job", model="gpt-5.4", window=WINDOW))
                    session, config = (
                        SQLiteSession("job", tmp_path / "items.db"),
                        RunConfig(call_model_input_filter=run.filter),
                    )
                    await Runner.run(agent(client), f"{QUESTION} {turn}", session=session, hooks=run, run_config=config)
                    items = await session.get_items()
                    recorded = await stash.use_cases.read_messages("job", limit=500)
            assert recorded.total == len(items) == 8 + 2 + 2
            assert (provider.invalid, provider.over) == ([], [])
