"""LangChain's `create_agent` with our middleware against a strict provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash import open_stash, open_stash_sync
from contextstash_storage.records import Event, Request
from tests.support.strict_provider import QUESTION, SYSTEM, TURNS, WINDOW, StrictProvider, read_part, strict_provider

pytest.importorskip("langchain")
pytest.importorskip("langchain_openai")
pytest.importorskip("langchain_anthropic")

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from contextstash.adapters.langchain import StashMiddleware, _parts, _sent


def agent(provider: StrictProvider, *middleware: Any) -> Any:
    model = ChatOpenAI(
        model="gpt-5.4",
        base_url=f"{provider.url}/v1",
        api_key=SecretStr("test"),
        max_retries=0,
        max_completion_tokens=2_000,
        use_responses_api=False,
    )
    return create_agent(model, tools=[read_part], system_prompt=SYSTEM, middleware=list(middleware))


def binding_agent(provider: StrictProvider, form: str, *middleware: Any) -> Any:
    """An agent whose model binds its reasoning to what stands before it."""
    key = SecretStr("test")
    model = (
        ChatAnthropic(
            model_name="claude-opus-5-5",
            base_url=provider.url,
            api_key=key,
            max_tokens_to_sample=2_000,
            thinking={"type": "adaptive"},
            max_retries=0,
            timeout=None,
            stop=None,
        )
        if form == "anthropic"
        else ChatOpenAI(
            model="gpt-6.2-sol",
            base_url=f"{provider.url}/v1",
            api_key=key,
            max_retries=0,
            max_completion_tokens=2_000,
            use_responses_api=True,
            include=["reasoning.encrypted_content"],
            store=False,
        )
    )
    return create_agent(model, tools=[read_part], system_prompt=SYSTEM, middleware=list(middleware))


ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": QUESTION}]}
MANY = {"recursion_limit": 10_000}
BOUND_TURNS = max(TURNS, 30)
"""Enough for a compaction."""


async def test_an_agent_many_times_its_window_is_never_refused(tmp_path: Path) -> None:
    with strict_provider(window=WINDOW, turns=TURNS) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model="gpt-5.4", window=WINDOW)
            done = await agent(provider, StashMiddleware(session)).ainvoke(ASKED, MANY)
            requests = await stash.use_cases.store.read_log("job", Request, newest=True, limit=3)
            recorded = await stash.use_cases.read_messages("job", limit=500)
    assert done["messages"][-1].content == "done"
    assert (provider.invalid, provider.over, len(provider.accepted)) == ([], [], TURNS + 1)
    assert [request.usage.prompt_tokens for request in requests if request.usage] == provider.accepted[:-4:-1]
    assert recorded.total == 2 * TURNS + 2
    assert all(len(str(message.content)) > 3_000 for message in done["messages"] if message.type == "tool")


def test_a_synchronous_agent_too(tmp_path: Path) -> None:
    with strict_provider(window=WINDOW, turns=12) as provider, open_stash_sync(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4", window=WINDOW)
        done = agent(provider, StashMiddleware(session)).invoke(ASKED, MANY)
    assert done["messages"][-1].content == "done"
    assert (provider.invalid, provider.over) == ([], [])


async def test_a_refused_call_is_made_again_smaller(tmp_path: Path) -> None:
    with strict_provider(window=WINDOW // 2, turns=8) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model="gpt-5.4", window=WINDOW)
            done = await agent(provider, StashMiddleware(session)).ainvoke(ASKED, MANY)
    assert done["messages"][-1].content == "done"
    assert (provider.invalid, len(provider.over)) == ([], 1)


@pytest.mark.parametrize(
    ("form", "model"), [("anthropic", "claude-opus-5-5"), ("openai-responses", "gpt-6.2-sol")], ids=lambda value: value
)
async def test_reasoning_that_is_bound_to_what_stands_before_it_stays_valid(
    form: str, model: str, tmp_path: Path
) -> None:
    with strict_provider(window=WINDOW, turns=BOUND_TURNS, binds=True) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model=model, window=WINDOW)
            done = await binding_agent(provider, form, StashMiddleware(session)).ainvoke(ASKED, MANY)
            events = await stash.use_cases.store.read_log("job", Event)
    assert done["messages"][-1].text == "done"
    assert (provider.invalid, provider.over, len(provider.accepted)) == ([], [], BOUND_TURNS + 1)
    assert set(provider.mismatched) == {0}
    assert "compaction" in {event.kind for event in events}
    thoughts = [block for each in done["messages"] for block in each.content if isinstance(block, dict)]
    assert sum(block["type"] in ("thinking", "reasoning") for block in thoughts) == BOUND_TURNS + 1


@pytest.mark.parametrize(("asked", "form"), [(True, "openai-responses"), (False, "openai-chat"), (None, "openai-chat")])
def test_the_form_is_that_of_the_api_which_the_model_uses(asked: bool | None, form: str) -> None:
    """LangChain has no public name for it: if `_get_request_payload` changes, `adapters/langchain.py` must follow."""
    model = ChatOpenAI(model="gpt-5.4", api_key=SecretStr("test"), use_responses_api=asked)
    assert _sent(model, [HumanMessage("Hello.")])[0] == form


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses", "anthropic"])
def test_a_system_message_in_the_list_stays_and_an_empty_reply_is_no_error(form: str) -> None:
    key = SecretStr("test")
    model = (
        ChatAnthropic(model_name="claude-opus-4-5", api_key=key, timeout=None, stop=None)
        if form == "anthropic"
        else ChatOpenAI(model="gpt-5.4", api_key=key, use_responses_api=form == "openai-responses")
    )
    messages = [SystemMessage("Answer in French."), HumanMessage("Hello."), AIMessage([]), HumanMessage("Go on.")]
    assert {0, 1, 3} <= {part.source[0] for part in _parts(messages, model, form) if part.source}
