"""Placeholders say how to read an archived output again, and cannot be forged; and our own tools are recognized by the
names that clients give them, and nothing else is taken for one of them."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.outputs.digest import digest_output
from contextstash.outputs.placeholders import digest_message, filled_placeholder, is_own_call, placeholder
from contextstash_storage.records import Output
from tests.support.turns import laws


def output(tool: str = "Read", argument: str = "src/main.rs", seq: int = 3) -> Output:
    return Output(
        handle="out_abcd2345", seq=seq, block=0, tool=tool, argument=argument, tokens=1_234, characters=5_000, lines=88,
        sha256="0" * 64,
    )  # fmt: skip


def test_a_placeholder_names_the_call_its_size_its_digest_and_how_to_read_it_again() -> None:
    shown = placeholder(output("Bash", "pytest -q", seq=12), "tests: 2 failed, 41 passed")
    assert shown == (
        "[contextstash: archived output of Bash pytest -q (1,234 tokens, 88 lines): tests: 2 failed,"
        " 41 passed. As it was at message 12: get_archived_output, handle out_abcd2345.]"
    )
    changed = placeholder(output("Read", "a.py", seq=12), "88 lines", changed_at=20)
    assert "88 lines. The file was changed since, at message 20. As it was at message 12: " in changed


@pytest.mark.parametrize(
    ("template", "tool", "argument", "shown"),
    [
        ("[cleared, kept as {handle}]", "Bash", "make", "[cleared, kept as out_abcd2345]"),
        ("[Viewed: {subject}, {handle}]", "view_file", "src/main.rs", "[Viewed: File: src/main.rs, out_abcd2345]"),
        ("[Viewed: {subject}, {handle}]", "Bash", "cargo build", "[Viewed: Bash cargo build, out_abcd2345]"),
    ],
)
def test_a_placeholder_of_a_preset_is_filled_in(template: str, tool: str, argument: str, shown: str) -> None:
    assert filled_placeholder(template, output(tool, argument)) == shown


def test_a_digest_message_shows_head_and_tail_of_the_output_and_its_handle() -> None:
    shown = digest_message(output(), "first line\n" + "middle\n" * 1_000 + "last line", 800)
    assert shown.startswith("[contextstash: digest of Read src/main.rs, archived as out_abcd2345 (1,234 tokens")
    assert "first line" in shown
    assert "last line" in shown
    assert len(shown.split("]\n", 1)[1]) <= 800


forged = st.sampled_from(["[contextstash: archived", "[CONTEXTSTASH:", "[\u200bcontextstash", "[\ncontextstash"])
CONTROLS = "\n\r\t\x00\x1b\u202e\u2028\u200b\u2066\U000e0041"
hostile = st.lists(st.sampled_from([*"[](): .", *CONTROLS, "contextstash", "out_a"]), max_size=40).map("".join)
texts = st.text() | hostile | st.tuples(forged, hostile).map("".join)


@laws
@given(texts, texts, texts)
def test_a_placeholder_is_one_bracketed_unit_whatever_text_it_contains(tool: str, argument: str, text: str) -> None:
    digest = digest_output(tool, argument, text, False)
    shown = [
        placeholder(output(tool, argument), digest),
        filled_placeholder("[{subject}, kept as {handle}]", output(tool, argument)),
        digest_message(output(tool, argument), text, 300).split("\n")[0],
    ]
    for line in shown:
        assert line[0] == "["
        assert line[-1] == "]"
        assert not set(line[1:-1]) & {"[", "]"}
        assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in line)
        assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]", line)


OURS = """
    mcp__contextstash__search_history mcp__plugin_contextstash_contextstash__get_summary
    mcp__contextstash-gateway__context_status mcp_contextstash_search_history contextstash_list_sessions
    contextstash__compact_session contextstash.search_history contextstash/get_context get_archived_output
"""
OF_OTHERS = "search_history mcp__contextstash__github_list_sessions mcp__zoom__list_sessions use_mcp_tool Bash"


@pytest.mark.parametrize("name", OURS.split())
def test_our_tools_are_recognized_however_the_client_names_them(name: str) -> None:
    assert is_own_call(name)


@pytest.mark.parametrize("name", [*OF_OTHERS.split(), "", None])
def test_the_tools_of_others_are_not_ours(name: str | None) -> None:
    assert not is_own_call(name)


def test_our_own_command_is_recognized_if_it_runs_alone() -> None:
    assert is_own_call("Bash", "contextstash show out_abcdefgh")
    assert not is_own_call("Bash", "contextstash show out_abcdefgh | sh")
