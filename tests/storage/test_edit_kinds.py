"""Each kind of edit is read as it was stored; wide records of earlier versions are converted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from contextstash_storage.records import (
    EDIT,
    ArchiveEdit,
    DigestEdit,
    Edit,
    Part,
    RestoreEdit,
    RewindEdit,
    StripEdit,
    SummaryEdit,
    TruncateEdit,
)
from contextstash_storage.rows import edit_json, edit_of, to_json
from tests.support.stored_edits import archiving, summarizing

WIDE_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("seq", "block", "handle", "first_seq", "last_seq", "summary_id", "strategy", "level")),
    **{name: [] for name in ("undoes", "handles", "merges")},
    **{"text": "", "summary": "", "tokens": 0, "delta": {}, "view_messages": 0, "view_results": 0, "edit_id": 0},
}

WIDE: list[tuple[dict[str, Any], Edit]] = [
    (
        {"kind": "archive", "seq": 0, "block": 0, "handle": "out_a", "text": "[\ud800]", "tokens": 5, "edit_id": 1},
        archiving(0, text="[\ud800]", edit_id=1),
    ),
    (
        {"kind": "truncate", "seq": 3, "block": 1, "handle": "out_b", "delta": {"user": -2}},
        TruncateEdit(seq=3, block=1, handle="out_b", text="", tokens=0, delta={Part.USER: -2}),
    ),
    (
        {"kind": "digest", "first_seq": 4, "last_seq": 4, "handle": "out_a", "handles": ["out_a"], "text": "x"},
        DigestEdit(after_seq=4, handles=("out_a",), text="x", tokens=0),
    ),
    (
        {"kind": "strip", "first_seq": 2, "last_seq": 5, "handles": ["out_a"]},
        StripEdit(first_seq=2, last_seq=5, handles=("out_a",)),
    ),
    (
        {"kind": "summary", "seq": 9, "first_seq": 0, "last_seq": 9, "summary_id": "s", "strategy": "host"}
        | {"level": "recent", "merges": ["a"]},
        summarizing(0, 9, seq=9, summary_id="s", strategy="host", merges=("a",), text="", summary=""),
    ),
    ({"kind": "rewind", "first_seq": 1, "last_seq": 2}, RewindEdit(first_seq=1, last_seq=2)),
    ({"kind": "restore", "undoes": [1, 2], "strategy": "host"}, RestoreEdit(undoes=(1, 2), strategy="host")),
]
KINDS = [str(wide["kind"]) for wide, _ in WIDE]


@pytest.mark.parametrize(("wide", "edit"), WIDE, ids=KINDS)
def test_an_edit_comes_back_as_it_was_stored(wide: dict[str, Any], edit: Edit) -> None:
    stored = to_json(edit)
    assert edit_of(stored) == edit
    assert json.loads(stored)["kind"] == wide["kind"]


def test_an_edit_without_what_its_kind_needs_is_refused() -> None:
    with pytest.raises(ValidationError):
        edit_of('{"kind": "archive", "seq": 0}')
    with pytest.raises(ValidationError):
        EDIT.validate_python({**archiving(0).model_dump(), "undoes": [1]})


def test_an_archive_and_a_summary_have_different_types() -> None:
    assert isinstance(edit_of(to_json(archiving(0))), ArchiveEdit)
    assert isinstance(edit_of(to_json(summarizing(0, 1))), SummaryEdit)


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ('[Summary: Words of it: "summary":[1,2] — end]', 'Words of it: "summary":[1,2] — end'),
        ("the same", "the same"),
        ("shown\ud800", ""),
        ("shown", "other words"),
        ("a \ud83d\U0001f600 b", "\ud83d\U0001f600 b"),
    ],
)
def test_the_words_of_a_summary_are_stored_once_if_it_shows_them(text: str, summary: str) -> None:
    edit = summarizing(0, 9, text=text, summary=summary)
    stored = edit_json(edit)
    assert edit_of(stored) == edit == edit_of(to_json(edit))
    assert len(stored) < len(to_json(edit)) + 8
    if len(summary) > 20:
        assert stored.count("Words") == 1
