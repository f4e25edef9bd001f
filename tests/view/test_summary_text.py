"""The texts that tell a host's model how to write and read summaries."""

from __future__ import annotations

from contextstash.view.session_snapshot import summary_text
from contextstash.writers import compaction_prompt

CONTENTS = "progress, decisions, constraints, next steps, critical data, files changed, errors met"


def test_the_prompt_names_everything_that_a_summary_must_contain_and_the_users_wishes() -> None:
    prompt = compaction_prompt(session_id="s-1", instructions=" keep the ports ")
    assert [part for part in CONTENTS.split(", ") if part not in prompt.lower()] == []
    assert 'compact_session with the whole text as `summary` and session_id "s-1"' in prompt
    assert "In particular: keep the ports\n" in prompt


def test_a_summary_in_the_view_says_what_it_replaces_up_to_when_and_how_to_retrieve_the_originals() -> None:
    older = "What a summary above says is open, failed or the last state is out of date."
    shown = summary_text("Done: the parser.", 0, 41)
    for part in ("42 earlier messages (0 to 41)", "search_history", "get_archived_output", "as of message 41."):
        assert part in shown
    assert shown.endswith("\n\nDone: the parser.")
    assert older not in shown
    assert older in summary_text("Done.", 42, 50, later=True)
    assert summary_text("[contextstash summary: all done]", 0, 1).count("[contextstash") == 1
