"""A compaction by a mod is read out of Claude Code's transcript: what the mod returned is not recorded twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.follow import ingest
from contextstash.record.transcript_records import window_key
from contextstash.stash import Stash
from tests.support.client_files import SESSION, Record, call, keys, prompt, read, record, reply, result, write_lines

OURS = "[contextstash: hand-off] The user said: keep the public interface."


def at(second: int, found: Record) -> Record:
    return {**found, "timestamp": f"2026-11-23T20:53:{second:02}.000Z"}


def boundary(second: int, **more: Any) -> Record:
    found = {"type": "system", "subtype": "compact_boundary", "uuid": f"boundary-{second}", "sessionId": SESSION}
    return at(second, {**found, **more})


def synthetic(uuid: str, parent: str, content: Any) -> Record:
    found = record("assistant", uuid, parent, content)
    return {**found, "message": {**found["message"], "model": "<synthetic>"}, "madeBy": "other"}


def window(first: str = OURS) -> list[Record]:
    """What a mod returned at second 20, as 2.1.330 writes it: new ids, old times on what it returned unchanged."""
    pruned = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]
    return [
        boundary(20),
        at(19, prompt("w1", "boundary-20", first)),
        at(19, synthetic("w2", "w1", pruned)),
        at(19, result("w3", "w2", "t1", "[archived: out_1]")),
        at(5, prompt("w4", "w3", "now the second step")),
        at(19, synthetic("w5", "w4", [{"type": "text", "text": "second done"}])),
    ]


BEFORE = [
    at(1, prompt("p1", None, "list the files")),
    at(2, call("c1", "p1", "t1")),
    at(3, result("r1", "c1", "t1", "a long output")),
    at(5, prompt("p2", "r1", "now the second step")),
    at(6, reply("a2", "p2", "second done")),
]
AFTER = [at(30, prompt("p3", "w5", "and the third")), at(31, reply("a3", "p3", "third done"))]


def test_the_window_of_a_mod_is_one_compaction_and_nothing_is_recorded_twice(tmp_path: Path) -> None:
    found = read(write_lines(tmp_path / "s.jsonl", [*BEFORE, *window(), *AFTER]))
    assert keys(found) == ["p1", "c1", "r1", "p2", "a2", window_key(OURS), "p3", "a3"]
    [begins] = [message for message in found if message.covers_before]
    assert begins.by_host, "the mod's words are not the user's"
    assert all(message.rewind_to_key is None for message in found)


def test_it_is_the_same_when_it_is_read_while_it_is_written(tmp_path: Path) -> None:
    path, records = tmp_path / "s.jsonl", [*BEFORE, *window(), *AFTER]
    state: dict[str, Any] = {}
    found = [key for each in records for key in keys(read(write_lines(path, [each]), state))]
    assert found == keys(read(write_lines(path, records)))


def test_the_window_of_another_mod_has_the_id_of_its_record(tmp_path: Path) -> None:
    found = read(write_lines(tmp_path / "s.jsonl", [*BEFORE, *window("What happened so far"), *AFTER]))
    assert [message.key for message in found if message.covers_before] == ["w1"]


def test_the_command_that_compacted_is_recorded(tmp_path: Path) -> None:
    typed = [
        at(18, prompt("k1", "w5", "<local-command-caveat>The command was run directly.", isMeta=True)),
        at(18, prompt("k2", "k1", "<command-name>/compact</command-name> <command-args>keep the plan</command-args>")),
        at(21, prompt("k3", "k2", "<local-command-stdout>Compacted</local-command-stdout>")),
    ]
    found = read(write_lines(tmp_path / "s.jsonl", [*BEFORE, *window(), *typed, *AFTER]))
    assert keys(found)[5:] == [window_key(OURS), "k1", "k2", "k3", "p3", "a3"]


def test_the_file_of_a_fork_begins_with_the_window_and_keeps_all_of_it(tmp_path: Path) -> None:
    found = read(write_lines(tmp_path / "s.jsonl", [*window(), *AFTER]))
    assert keys(found) == [window_key(OURS), "w2", "w3", "w4", "w5", "p3", "a3"]
    assert [message.model for message in found[1:5]] == [None] * 4


def test_a_fork_is_not_billed_for_the_replies_that_it_copies(tmp_path: Path) -> None:
    usage = {"input_tokens": 900, "output_tokens": 5}
    first, second = at(31, reply("a3", "p3", "third done")), at(41, reply("a4", "p4", "fourth done"))
    for each in (first, second):
        each["message"] = {**each["message"], "usage": usage}
    copied = {**first, "requestSessionId": "the-other-session"}
    forked = [*window(), AFTER[0], copied, at(40, prompt("p4", "a3", "and the fourth")), second]
    found = read(write_lines(tmp_path / "s.jsonl", forked))
    assert [message.key for message in found if message.usage] == ["a4"]


def test_a_prompt_after_the_window_can_be_taken_back(tmp_path: Path) -> None:
    again = [at(40, prompt("p4", "w5", "rather this")), at(41, reply("a4", "p4", "done"))]
    found = read(write_lines(tmp_path / "s.jsonl", [*BEFORE, *window(), *AFTER, *again]))
    assert {message.key: message.rewind_to_key for message in found}["p4"] == window_key(OURS)


def test_a_compaction_by_the_client_itself_is_read_as_before(tmp_path: Path) -> None:
    summary = at(20, prompt("s1", "boundary-20", "This session is being continued.", isCompactSummary=True))
    found = read(write_lines(tmp_path / "s.jsonl", [*BEFORE, boundary(20), summary, *AFTER]))
    assert keys(found) == ["p1", "c1", "r1", "p2", "a2", "s1", "p3", "a3"]
    assert [message.key for message in found if message.covers_before] == ["s1"]


async def test_the_session_holds_each_output_and_each_request_once(stash: Stash, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s.jsonl", [*BEFORE, *window(), *AFTER])
    report = await ingest(stash, path)
    assert report.session_id
    view = await stash.get_context(report.session_id)
    outputs = await stash.store.read_outputs(report.session_id)
    assert report.recorded == 8
    assert len(outputs) == 1
    texts = str(view.messages)
    assert "a long output" not in texts, "it left the client's window"
    assert OURS in texts


@pytest.mark.parametrize("kind", ["api-request", "api-request-shape", "api-request-blob", "cost-state", "tools-used"])
def test_records_of_requests_and_costs_are_no_messages(tmp_path: Path, kind: str) -> None:
    blob = {"type": kind, "hash": "h", "totalCostUSD": 1.5, "message": BEFORE[1]["message"]}
    found = read(write_lines(tmp_path / "s.jsonl", [*BEFORE, blob, *AFTER]))
    assert keys(found) == ["p1", "c1", "r1", "p2", "a2", "p3", "a3"]


def test_a_result_does_not_wait_for_a_call_that_a_later_request_repeats(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    state: dict[str, Any] = {}
    read(write_lines(path, BEFORE[:2]), state)
    blob = {"type": "api-request-blob", "hash": "h", "message": BEFORE[1]["message"]}
    assert keys(read(write_lines(path, [*BEFORE[2:], blob, *AFTER]), state)) == ["r1", "p2", "a2", "p3", "a3"]
