"""Who writes a summary, and what is asked of a text that a host passes."""

from __future__ import annotations

import pytest
from making_turns import Script, quarter

from contextstash.summarizers import SummaryRequest, choose
from contextstash_storage.errors import BadInputError


def request(most: int = 300) -> SummaryRequest:
    turns = Script().user("Fix the fines.").assistant("The fines are fixed now.").turns
    return SummaryRequest(turns=tuple(turns), max_tokens=most, count=quarter)


async def test_auto_takes_the_hosts_text_word_for_word() -> None:
    written = await choose("auto", "  The fines are fixed; next is the log.\n").write(request())
    assert (written.text, written.strategy) == ("The fines are fixed; next is the log.", "host")


async def test_auto_writes_an_extractive_summary_where_the_host_passed_none() -> None:
    written = await choose("auto").write(request())
    assert written.strategy == "extractive"
    assert written.text.startswith("## Task\n- Fix the fines.")


async def test_the_extractive_writer_keeps_to_its_room_and_carries_an_earlier_summary_on() -> None:
    earlier = "## Task\n- Build the library service."
    whole = SummaryRequest(request().turns, 100, quarter, previous=earlier)
    text = (await choose("extractive").write(whole)).text
    assert quarter(text) <= 100
    assert text.startswith("## Task\n- Build the library service.\n- Fix the fines.")


@pytest.mark.parametrize("summary", ["", " \n ", "done"])
def test_a_text_that_is_no_summary_is_refused(summary: str) -> None:
    with pytest.raises(BadInputError, match="summary is empty or too short"):
        choose("auto", summary)


async def test_an_endless_summary_is_refused_with_its_size() -> None:
    with pytest.raises(BadInputError, match="25,000 tokens"):
        await choose("host", "word " * 20_000).write(request())


def test_the_strategy_host_needs_a_text() -> None:
    with pytest.raises(BadInputError, match="needs `summary`"):
        choose("host")


def test_a_passed_text_and_the_strategy_extractive_contradict_each_other() -> None:
    with pytest.raises(BadInputError, match="either"):
        choose("extractive", "A summary that the host wrote.")


@pytest.mark.parametrize("strategy", ["anthropic", "sampling", ""])
def test_a_strategy_that_is_not_here_names_those_that_are(strategy: str) -> None:
    with pytest.raises(BadInputError, match="auto, host, extractive"):
        choose(strategy)
