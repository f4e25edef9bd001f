"""pi's sessions: branches of its tree, compactions, and what is no plain message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextstash.clients.follow import ingest
from contextstash.record.transcript_records import window_key
from contextstash.stash import Stash
from tests.support.client_files import keys, read, write_lines
from tests.support.stashes import valid_view

SESSION = "d703a1a9-0000-4000-8000-000000000001"
HEAD = {"type": "session", "version": 3, "id": SESSION, "timestamp": "2026-05-01T10:00:00.000Z", "cwd": "/srv/orchard"}

Json = dict[str, Any]


def entry(key: str, parent: str | None, kind: str = "message", **more: Any) -> Json:
    return {"type": kind, "id": key, "parentId": parent, "timestamp": "2026-05-01T10:00:01.000Z", **more}


def user(key: str, parent: str | None, text: str) -> Json:
    return entry(key, parent, message={"role": "user", "content": text})


def reply(key: str, parent: str, text: str) -> Json:
    said = {"role": "assistant", "content": [{"type": "text", "text": text}], "model": "m", "usage": {"input": 9}}
    return entry(key, parent, message=said)


TALK = [HEAD, user("a1", None, "One"), reply("a2", "a1", "First"), entry("a3", "a2", "model_change", modelId="n")]
TALK += [user("a4", "a3", "Two"), reply("a5", "a4", "Second")]


async def test_a_branch_takes_the_conversation_back_to_where_it_begins(stash: Stash, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "1.jsonl", [*TALK, user("b1", "a3", "Other"), reply("b2", "b1", "Way")])
    assert [message.rewind_to_key for message in read(path)] == [None] * 4 + ["a2", None]
    await ingest(stash, path)
    shown = json.dumps(await valid_view(stash, "anthropic", SESSION))
    assert all(text in shown for text in ("One", "First", "Other", "Way"))
    assert "Second" not in shown


def test_a_branch_from_the_beginning_leaves_all_behind(tmp_path: Path) -> None:
    assert read(write_lines(tmp_path / "1.jsonl", [*TALK, user("b1", None, "Anew")]))[-1].rewind_to_key == ""


def test_a_branch_begun_by_an_entry_that_says_nothing_counts_at_the_next_message(tmp_path: Path) -> None:
    label = entry("b1", "a1", "label", targetId="a1", label="here")
    message = read(write_lines(tmp_path / "1.jsonl", [*TALK, label, user("b2", "b1", "Other")]))[-1]
    assert message.rewind_to_key == "a1"


def test_a_compaction_covers_all_before_the_first_entry_it_kept(tmp_path: Path) -> None:
    for kept, named in (("a4", "a4"), ("a3", "a4")):
        compaction = entry("c1", "a5", "compaction", summary="All so far", firstKeptEntryId=kept, tokensBefore=9)
        summary, after = read(write_lines(tmp_path / "1.jsonl", [*TALK, compaction, user("a6", "c1", "On")]))[-2:]
        assert "All so far" in summary.body["content"][0]["text"]
        assert (summary.covers_before, summary.covers_before_key) == (True, named)
        assert after.rewind_to_key is None


def test_a_compaction_by_our_extension_has_the_key_under_which_it_was_recorded(tmp_path: Path) -> None:
    ours = "[contextstash: hand-off of session s]"
    compaction = entry("c1", "a5", "compaction", summary=ours, firstKeptEntryId="a4", tokensBefore=9)
    later = [compaction, user("a6", "c1", "On"), user("a7", "c1", "Again")]
    messages = read(write_lines(tmp_path / "1.jsonl", [*TALK, *later]))
    assert messages[-3].key == window_key(ours)
    assert messages[-3].covers_before_key == "a4"
    assert [message.rewind_to_key for message in messages[-2:]] == [None, window_key(ours)]


def test_summaries_of_branches_commands_and_extensions_words_are_read(tmp_path: Path) -> None:
    command = {"role": "bashExecution", "command": "make", "output": "no rule", "exitCode": 2}
    kept = [
        entry("b1", "a5", "branch_summary", fromId="a4", summary="It was tried."),
        entry("b2", "b1", message=command),
        entry("b3", "b2", "custom_message", customType="x", content="From an extension", display=True),
        entry("b4", "b3", message={**command, "excludeFromContext": True}),
        entry("b5", "b4", "custom", customType="x", data={"private": 1}),
    ]
    messages = read(write_lines(tmp_path / "1.jsonl", [*TALK, *kept]))
    assert keys(messages)[4:] == ["b1", "b2", "b3"]
    assert [message.by_host for message in messages[4:]] == [True, True, True]
    assert not any(message.by_host for message in messages[:4])
    texts = [message.body["content"][0]["text"] for message in messages[4:]]
    assert "It was tried." in texts[0]
    assert texts[1] == "Ran `make`\n```\nno rule\n```\nIt exited with code 2."
    assert texts[2] == "From an extension"
