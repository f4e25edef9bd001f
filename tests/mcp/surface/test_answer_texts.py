"""Every tool's text holds what its structured content holds, because some clients give their model only the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp import Client

from contextstash.mcp.answers import readable
from contextstash.tokenizer import count_with
from tests.support.effort import examples
from tests.support.servers import SESSION, answer, leaves, record, small_session, stdio_client, text_of

pytestmark = pytest.mark.processes

any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=80),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=20,
)

SMALLEST_PAGE = 100
"""The smallest max_tokens that get_archived_output takes."""


@settings(max_examples=examples(200))
@example({"": [{"": "0 "}]}, "")
@given(st.dictionaries(st.text(max_size=8), any_json, max_size=5), st.text(max_size=40))
def test_a_readable_text_holds_every_name_and_value(value: dict[str, Any], headline: str) -> None:
    text = readable(value, headline)
    assert [leaf for leaf in leaves(value) if leaf not in text] == []
    assert text.startswith(headline)


def test_a_text_of_several_lines_stands_as_it_is_after_the_other_fields() -> None:
    output = '  indented "quoted"\n\tline 2\n'
    assert readable({"text": output, "total": 2, "hits": [{"seq": 3, "snippet": output}]}, "1 hit.") == (
        f"1 hit.\ntotal: 2\nhits:\n- seq: 3\n  snippet:\n{output}\ntext:\n{output}"
    )


def test_a_sentence_of_the_headline_is_not_said_again() -> None:
    assert readable({"reason": "Nothing to do.", "tokens": 7}, "Nothing to do. Level ok.") == (
        "Nothing to do. Level ok.\ntokens: 7"
    )


async def test_a_page_is_shown_word_for_word_below_one_line(tmp_path: Path) -> None:
    async with stdio_client(tmp_path / "s.db") as client:
        await record(client)
        pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
        page = await client.call_tool("get_archived_output", {"handle": pruned["archived"][0]["handle"]})
    headline, _, text = text_of(page).partition("\n\n")
    assert "\n" not in headline
    assert text == small_session()[3]["content"]


async def test_no_page_has_more_tokens_than_allowed_its_first_line_included(tmp_path: Path) -> None:
    count = count_with("o200k_base")
    wide = "".join(f"{number * 7919:x} " for number in range(20_000))
    async with stdio_client(tmp_path / "s.db") as client:
        for text in (small_session()[3]["content"], wide):
            handle = await _archived(client, text)
            for tokens in (SMALLEST_PAGE, 250, 2_000):
                for more in ({}, {"offset": 30 if text is not wide else 500_000_001}, {"pattern": "7"}):
                    given = {"handle": handle, "max_tokens": tokens, **more}
                    page = text_of(await client.call_tool("get_archived_output", given))
                    assert count(page) <= tokens, (given, page)


async def _archived(client: Client, text: str) -> str:
    session = f"of-{len(text)}-characters"
    call, result = small_session()[2:4]
    messages = [{"role": "user", "content": "Look."}, call, {**result, "content": text}]
    await answer(client, "record_messages", session_id=session, messages=messages)
    pruned = await answer(client, "prune_tool_outputs", session_id=session, keep_last=0)
    handle: str = pruned["archived"][0]["handle"]
    return handle
