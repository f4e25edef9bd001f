"""Who writes a summary: which texts of a host are accepted, and what is used if the model fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError
from tests.support.model_provider import Answer, model_provider
from tests.support.sized_sessions import reply, user
from tests.support.stashes import SESSION, stash_at

TALK = [(user, reply)[place % 2](4_000 + place) for place in range(20)]

KEY = "sk-ant-a-very-secret-key"


@pytest.fixture
async def stash(tmp_path: Path) -> AsyncIterator[Stash]:
    async with stash_at(tmp_path / "s.db", window=16_000) as opened:
        await opened.record_messages(TALK, session_id=SESSION)
        yield opened


async def test_the_hosts_text_is_used_unchanged(stash: Stash) -> None:
    made = await stash.compact_session(SESSION, summary="  The fines are fixed; next is the log.\n")
    assert made.strategy == "host"
    assert "The fines are fixed; next is the log." in (await stash.get_summary(SESSION)).summary


async def test_without_a_host_and_a_model_the_state_of_the_session_is_told(stash: Stash) -> None:
    assert (await stash.compact_session(SESSION)).strategy == "extractive"


REFUSED = {
    "an empty text": ("auto", "", "summary is empty or too short"),
    "only spaces": ("auto", " \n ", "summary is empty or too short"),
    "a reply": ("auto", "done", "summary is empty or too short"),
    "an endless text": ("host", "word " * 25_000, r"25,0\d\d tokens"),
    "a host without a text": ("host", None, "needs `summary`"),
    "a text for another writer": ("extractive", "A summary that the host wrote.", "either"),
    "an unknown writer": ("gpt", None, "auto, host, anthropic, extractive"),
    "a model without consent": ("anthropic", None, "ANTHROPIC_API_KEY"),
}


@pytest.mark.parametrize(("strategy", "text", "says"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_used_is_refused_with_what_to_do(
    stash: Stash, strategy: str, text: str | None, says: str
) -> None:
    with pytest.raises(BadInputError, match=says):
        await stash.compact_session(SESSION, summary=text, strategy=strategy)


async def test_if_the_model_fails_the_state_is_told_and_a_note_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with model_provider(Answer(status=500, headers={"x-should-retry": "false"})) as provider:
        settings = {"window": 16_000, "summarizer_base_url": provider.url}
        async with stash_at(tmp_path / "f.db", api_key=KEY, **settings) as stash:
            await stash.record_messages(TALK, session_id=SESSION)
            made = await stash.compact_session(SESSION)
            calls = (await stash.list_calls(SESSION)).calls
    assert made.strategy == "extractive"
    assert "anthropic could not write the summary: The API answered with status 500" in (made.note or "")
    assert len(calls) == 1
    assert KEY not in caplog.text
