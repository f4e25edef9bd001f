"""Each kind of edit is read as it was stored."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from contextstash_storage.records import (
    EDIT,
    DigestEdit,
    Edit,
    RestoreEdit,
    RewindEdit,
    StripEdit,
    TruncateEdit,
)
from contextstash_storage.rows import edit_of, to_json
from tests.support.stored_edits import archiving, summarizing

EDITS: list[Edit] = [
    archiving(0, text="[\ud800]", edit_id=1),
    TruncateEdit(seq=3, block=1, handle="out_b", text="", tokens=0),
    DigestEdit(after_seq=4, handles=("out_a",), text="x", tokens=0),
    StripEdit(first_seq=2, last_seq=5, handles=("out_a",)),
    summarizing(0, 9, seq=9, summary_id="s", strategy="host", text="", summary=""),
    RewindEdit(first_seq=1, last_seq=2),
    RestoreEdit(undoes=(1, 2), strategy="host"),
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.kind)
def test_an_edit_comes_back_as_it_was_stored(edit: Edit) -> None:
    stored = to_json(edit)
    assert edit_of(stored) == edit
    assert json.loads(stored)["kind"] == edit.kind


def test_an_edit_without_what_its_kind_needs_is_refused() -> None:
    with pytest.raises(ValidationError):
        edit_of('{"kind": "archive", "seq": 0}')
    with pytest.raises(ValidationError):
        EDIT.validate_python({**archiving(0).model_dump(), "undoes": [1]})
