"""The view: history with its edits applied."""

from __future__ import annotations

from contextstash.view.view import build_view, difference, edits_in_force
from contextstash_storage.records import ArchiveEdit, Edit, Message, Part, RestoreEdit, RewindEdit, SummaryEdit
from tests.support.handmade_views import loop
from tests.support.stored_edits import archiving, summarizing


def messages() -> list[Message]:
    return [entry.message for entry in loop([100, 200, 300]) if entry.message]


def summary(edit_id: int, first: int, last: int) -> SummaryEdit:
    return summarizing(first, last, edit_id=edit_id, tokens=20, text=f"s{edit_id}")


def archive(edit_id: int, seq: int) -> ArchiveEdit:
    return archiving(seq, edit_id=edit_id)


def shown(edits: list[Edit]) -> list[str]:
    entries = build_view(messages(), edits_in_force(edits))
    return [entry.summary.text if entry.summary else str(entry.first_seq) for entry in entries]


def test_a_later_summary_hides_an_earlier_one_until_it_is_undone() -> None:
    edits: list[Edit] = [summary(1, 0, 2), summary(2, 0, 4)]
    assert shown(edits) == ["s2", "5", "6"]
    assert shown([*edits, RestoreEdit(edit_id=3, undoes=(2,))]) == ["s1", "3", "4", "5", "6"]


def test_a_rewind_hides_messages_and_shows_nothing_instead() -> None:
    assert shown([RewindEdit(edit_id=1, first_seq=3, last_seq=4)]) == ["0", "1", "2", "5", "6"]


def test_an_archived_output_takes_the_tokens_of_its_placeholder() -> None:
    before = build_view(messages(), edits_in_force([]))
    after = build_view(messages(), edits_in_force([archive(1, 2)]))
    assert difference(before, after).parts == {Part.ARCHIVED: 5, Part.TOOL_RESULTS: -100}


def test_only_visible_messages_have_to_be_read() -> None:
    overlay = edits_in_force([summary(1, 0, 2), RewindEdit(edit_id=2, first_seq=5, last_seq=5)])
    assert overlay.visible_ranges(7) == [(3, 4), (6, 6)]
