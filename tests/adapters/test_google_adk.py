"""An agent of Google's ADK with our callbacks against a strict provider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash
from contextstash_storage.records import Request
from tests.support.gemini_provider import GeminiProvider, Planned, gemini_provider
from tests.support.strict_provider import QUESTION, SYSTEM, TURNS, WINDOW, read_part

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types

from examples.google_adk_callbacks import StashCallbacks


@contextmanager
def provider_of(turns: int, window: int = WINDOW) -> Iterator[GeminiProvider]:
    def plan(turn: int) -> Planned:
        return Planned(text="done") if turn >= turns else Planned(calls=(("read_part", {"n": turn + 1}),))

    with gemini_provider(window, plan) as provider:
        yield provider


async def answer(provider: GeminiProvider, *tools: Any, **callbacks: Any) -> str:
    """The last text of a run."""
    agent = LlmAgent(
        name="reader",
        model=Gemini(model="gemini-3-pro-preview", base_url=provider.url),
        instruction=SYSTEM,
        tools=[read_part, *tools],
        **callbacks,
    )
    runner = InMemoryRunner(agent=agent, app_name="logs")
    session = await runner.session_service.create_session(app_name="logs", user_id="u")
    said = ""
    async for event in runner.run_async(
        user_id="u",
        session_id=session.id,
        new_message=types.Content(role="user", parts=[types.Part(text=QUESTION)]),
        run_config=RunConfig(max_llm_calls=10_000),
    ):
        for part in (event.content.parts if event.content else None) or ():
            said = part.text or said
    return said


def callbacks_of(stashed: StashCallbacks) -> dict[str, Any]:
    return {
        "before_model_callback": stashed.before_model,
        "after_model_callback": stashed.after_model,
        "on_model_error_callback": stashed.on_model_error,
    }


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "test")


async def test_a_run_many_times_its_window_is_never_refused(tmp_path: Path) -> None:
    with provider_of(TURNS) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            stashed = StashCallbacks(stash.session("job", model="gemini-3-pro-preview", window=WINDOW))
            assert await answer(provider, *stashed.tools(), **callbacks_of(stashed)) == "done"
            requests = await stash.use_cases.store.read_log("job", Request, newest=True, limit=3)
            recorded = await stash.use_cases.read_messages("job", limit=500)
    assert (provider.refusals, len(provider.sizes)) == ([], TURNS + 1)
    assert [request.usage.prompt_tokens for request in requests if request.usage] == provider.sizes[:-4:-1]
    assert recorded.total == 2 * TURNS + 2
