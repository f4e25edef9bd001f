"""Which summarizer is used, and when the text that a host passes is accepted."""

from __future__ import annotations

import pytest

from contextstash.events.state import fold
from contextstash.handoff.summary import summary_of
from contextstash.writers.base import SummaryRequest, WriterSettings
from contextstash.writers.writer_fallback import choose, write_summary
from contextstash_storage.errors import BadInputError
from tests.support.turns import Script, quarter


def request(most: int = 300) -> SummaryRequest:
    turns = Script().user("Fix the fines.").assistant("The fines are fixed now.").turns
    return SummaryRequest(tuple(turns), most, quarter, lambda: summary_of(fold(turns), max_tokens=most, count=quarter))


async def test_auto_uses_the_hosts_text_unchanged() -> None:
    written = await write_summary(request(), choose("auto", "  The fines are fixed; next is the log.\n"))
    assert (written.text, written.strategy) == ("The fines are fixed; next is the log.", "host")


async def test_auto_writes_an_extractive_summary_if_the_host_passed_none() -> None:
    written = await write_summary(request(), choose("auto"))
    assert written.strategy == "extractive"
    assert written.text.startswith("## Task\n- (0) Fix the fines.")


@pytest.mark.parametrize("summary", ["", " \n ", "done"])
def test_a_text_that_is_not_a_summary_is_refused(summary: str) -> None:
    with pytest.raises(BadInputError, match="summary is empty or too short"):
        choose("auto", summary)


async def test_an_endless_summary_is_refused_with_its_size() -> None:
    with pytest.raises(BadInputError, match="25,000 tokens"):
        await write_summary(request(), choose("host", "word " * 20_000))


@pytest.mark.parametrize(
    ("strategy", "text", "says"),
    [
        ("host", None, "needs `summary`"),
        ("extractive", "A summary that the host wrote.", "either"),
        ("gpt", None, "auto, host, anthropic, extractive"),
        ("anthropic", None, "ANTHROPIC_API_KEY"),
    ],
)
def test_a_strategy_that_cannot_be_used_is_refused_with_what_to_do(strategy: str, text: str | None, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        choose(strategy, text, settings=WriterSettings(model="m"))


@pytest.mark.parametrize(("key", "order"), [("k", ["anthropic", "extractive"]), (None, ["extractive"])])
def test_auto_tries_a_model_then_extraction(key: str | None, order: list[str]) -> None:
    writers = choose("auto", settings=WriterSettings(model="m", api_key=key))
    assert [writer.strategy for writer in writers] == order
