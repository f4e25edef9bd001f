"""Recorded blocks prepared for a reader: calls, edits, diffs, folds."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.display.blocks import Piece, is_diff, shown
from tests.support.effort import examples

NO_LIMIT = 100_000


def call(**arguments: object) -> str:
    return json.dumps(arguments)


def text_of(piece: Piece) -> str:
    return "\n".join(line.text for line in (*piece.head, *piece.rest))


def test_short_arguments_are_fields_and_the_command_comes_first() -> None:
    found = shown("tool_call", call(description="List", timeout=5, command="ls -l\npwd"), NO_LIMIT)
    assert found.fields == (("description", "List"), ("timeout", "5"))
    assert [(piece.kind, text_of(piece)) for piece in found.pieces] == [("command", "ls -l\npwd")]


def test_a_shell_that_runs_a_program_is_left_out_of_the_command() -> None:
    found = shown("tool_call", call(command=["bash", "-lc", "make test"]), NO_LIMIT)
    assert text_of(found.pieces[0]) == "make test"


def test_a_replacement_is_a_diff_of_what_changed() -> None:
    found = shown("tool_call", call(file_path="a.py", old_string="x = 1\ny = 2", new_string="x = 1\ny = 3"), NO_LIMIT)
    assert found.fields == (("file_path", "a.py"),)
    assert [(line.look, line.text) for line in found.pieces[0].head] == [
        ("", " x = 1"),
        ("del", "-y = 2"),
        ("add", "+y = 3"),
    ]


def test_a_removed_line_of_hyphens_is_no_header_of_a_file() -> None:
    [piece] = shown("tool_call", call(old_string="-- a comment", new_string="++ b"), NO_LIMIT).pieces
    assert [line.look for line in piece.head] == ["del", "add"]


def test_a_reply_is_read_as_markdown_unless_it_is_very_long() -> None:
    assert [piece.kind for piece in shown("reply", "**yes**\n```\ncode\n```", NO_LIMIT).pieces] == ["markdown", "code"]
    assert [piece.kind for piece in shown("reply", "word " * 5_000, NO_LIMIT).pieces] == ["prose"]
    assert [piece.kind for piece in shown("text", "**yes**", NO_LIMIT).pieces] == ["prose"]


def test_several_edits_in_one_call_are_a_diff_each() -> None:
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}]
    found = shown("tool_call", call(edits=edits), NO_LIMIT)
    assert [text_of(piece) for piece in found.pieces] == ["-a\n+b", "-c\n+d"]


def test_a_patch_is_a_diff_as_an_argument_as_free_text_and_as_an_output() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-old\n+new\n*** End Patch"
    for kind, text in (("tool_call", patch), ("tool_call", call(input=patch)), ("tool_result", patch)):
        [piece] = shown(kind, text, NO_LIMIT).pieces
        assert piece.kind == "diff"
        assert [line.look for line in piece.head] == ["hunk", "del", "add", "hunk"]
    assert not is_diff("A list:\n- one\n+ two")


def test_code_between_fences_stands_apart_from_the_words() -> None:
    found = shown("text", "Look:\n```python\nx = 1\n```\nDone.", NO_LIMIT)
    assert [(piece.kind, piece.label, text_of(piece)) for piece in found.pieces] == [
        ("prose", "", "Look:"),
        ("code", "python", "x = 1"),
        ("prose", "", "Done."),
    ]


def test_a_long_output_is_folded_after_its_first_lines_and_cut_at_the_limit() -> None:
    [piece] = shown("tool_result", "\n".join(map(str, range(100))), NO_LIMIT).pieces
    assert (piece.more_lines, piece.more) == (88, 0)
    assert text_of(piece).split("\n") == list(map(str, range(100)))
    [piece] = shown("tool_result", "x" * 500, 200).pieces
    assert (text_of(piece), piece.more) == ("x" * 200, 300)


@settings(max_examples=examples(100))
@given(
    kind=st.sampled_from(["text", "tool_call", "tool_result", "thinking", "document"]),
    text=st.one_of(
        st.text(),
        st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.lists(st.text()), st.none())).map(json.dumps),
        st.lists(st.dictionaries(st.sampled_from(["old_string", "new_string", "x"]), st.text())).map(
            lambda edits: json.dumps({"edits": edits})
        ),
    ),
    limit=st.integers(1, 50),
)
def test_any_block_is_shown_without_an_error_within_the_limit(kind: str, text: str, limit: int) -> None:
    for piece in shown(kind, text, limit).pieces:
        # A control character of one place is shown by its code, of at most nine.
        assert len(text_of(piece)) <= 9 * limit + len(piece.head) + len(piece.rest)
