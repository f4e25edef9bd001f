"""What a session says on a terminal: the list of sessions, status, messages, searches, receipts and advice; and that
nothing that it holds controls the terminal."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from contextstash.results import AdvisedWindow, WindowAdvice
from contextstash.stash import Stash
from contextstash_storage.records import ProxiedSession, ProxiedTotals
from contextstash_storage.sqlite import open_sqlite
from tests.support.command_line import ANSI, WINDOW, CommandLine, Orchard, failure_of, printed_on_terminal
from tests.support.stashes import round_of


def test_sessions_are_listed_with_ids_that_commands_take_and_no_colour_in_a_pipe(orchard: Orchard) -> None:
    output = orchard.run("sessions").stdout
    name = output.splitlines()[1].split()[0]
    assert orchard.session.startswith(name)
    assert orchard.json("status", name)["session_id"] == orchard.session
    assert orchard.json("sessions")["sessions"][0]["session_id"] == orchard.session
    assert ANSI not in output


def test_sessions_are_filtered_by_project_and_title_and_a_wrong_filter_says_so(orchard: Orchard) -> None:
    [found] = orchard.json("sessions", "orchard")["sessions"]
    assert found["session_id"] == orchard.session
    assert orchard.json("sessions", "/srv/") == orchard.json("sessions", orchard.session[2:9]) == {"sessions": [found]}
    assert orchard.run("sessions", "nowhere").stdout == "No session matches.\n"


def test_status_says_how_full_the_session_is(orchard: Orchard) -> None:
    status = orchard.json("status", *WINDOW)
    estimate = status["estimate"]
    assert status["session_id"] == orchard.session
    assert estimate["window"] == 32_000
    shown = orchard.run("status", orchard.session[:8], *WINDOW).stdout
    assert f"{estimate['tokens']:,} of {estimate['usable']:,} usable tokens" in shown
    trigger = estimate["tokens_trigger"]
    assert trigger["value"] == estimate["tokens"]
    assert re.search(f"compaction at {trigger['threshold']:,} tokens +\\S+ +{trigger['percent']:.0f} %", shown)
    assert f"{status['messages']} messages in history (0 summarized)" in shown
    assert ANSI not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_the_clients_window_and_our_own_view_are_one_count_each_and_a_change_of_ours_is_shown(orchard: Orchard) -> None:
    estimate = orchard.json("status", *WINDOW)["estimate"]
    assert sum(estimate["breakdown"].values()) == estimate["tokens"]
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2", *WINDOW)
    assert estimate["view_tokens"] == pruned["tokens_before"]
    lines = orchard.run("status", orchard.session, *WINDOW).stdout.splitlines()
    assert f"Your client sends {estimate['tokens']:,} of {estimate['usable']:,} usable tokens" in lines[2]
    [own] = [line for line in lines if line.startswith("contextstash's own view")]
    after = pruned["tokens_after"]
    assert f"has {after:,} tokens by its own count." in own
    assert "prune" in lines[-1]
    assert f"{pruned['tokens_before']:,} → {after:,}" in lines[-1]


def test_one_message_is_printed_in_full_a_call_with_its_arguments_a_result_with_its_handle(orchard: Orchard) -> None:
    [output] = orchard.json("show", orchard.session, "--message", "2")["handles"]
    shown = orchard.run("show", orchard.session[:8], "--message", "2").stdout
    assert shown.startswith("message 2, user, 2026-03-03 ")
    assert f"[result, {output}]\n{orchard.texts[0]}" in shown
    call = orchard.run("show", orchard.session, "--message", "1").stdout
    assert "[calls Read]\nfile_path: orchard/row_00.txt" in call
    total = orchard.json("status")["messages"]
    assert f"the session has {total}" in failure_of(orchard.run("show", orchard.session, "--message", "999"))
    assert "--message" not in orchard.run("show", orchard.session, "--first", "999").stderr


def test_a_pruned_output_is_shown_whole_by_its_handle(orchard: Orchard) -> None:
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2")
    assert len(pruned["archived"]) == len(orchard.texts) - 2
    assert pruned["tokens_after"] < pruned["tokens_before"]
    handle = pruned["archived"][0]["handle"]
    shown = orchard.run("show", handle).stdout
    assert shown in orchard.texts


def test_an_unknown_handle_and_an_unknown_session_say_what_to_do(orchard: Orchard) -> None:
    assert "search" in failure_of(orchard.run("show", "out_nosuch00"))
    assert "contextstash search --session" in failure_of(orchard.run("show", orchard.session, "--pattern", "row"))
    assert failure_of(orchard.run("show", "out_cdvh")).startswith("'out_cdvh' is too short, or no handle. Handles look")
    assert "contextstash sessions" in failure_of(orchard.run("status", "nosuchsession"))
    assert "contextstash status SESSION" in failure_of(orchard.run("show", "sum_unknown"))


def test_each_hit_ends_with_the_command_that_shows_it_whole(orchard: Orchard) -> None:
    for words, shown_whole in (("tree 733", "tree 733:"), ("oldest tree", "The quince in row 7 is the oldest tree.")):
        lines = orchard.run("search", words, "--limit", "1").stdout.splitlines()
        command = lines[-1].strip().removeprefix("in full: contextstash ")
        assert shown_whole in orchard.run(*command.split()).stdout
    assert "--message 25" in command


NOW = 1_800_000_000.0
"""2027-01-15, the last request of the sessions of these tests."""


def proxied(folder: Path, **sessions: ProxiedSession) -> CommandLine:
    """The command line on a database with these proxied sessions."""

    async def write() -> None:
        async with Stash(await open_sqlite(folder / "sessions.db")) as stash:
            for name, state in sessions.items():
                await stash.record_messages(round_of(1, "log line\n"), session_id=name, model="claude-sonnet-4-5")
                await stash.store.put_note(name, state)

    asyncio.run(write())
    return CommandLine(folder)


def state(paid: float, direct: float, **fields: object) -> ProxiedSession:
    """Two requests that cost so many dollars, and would have cost so many."""
    totals = {"requests": 2, "priced": 2, "sent": 10_000, "direct": 20_000}
    dollars = {"dollars_paid": paid, "dollars_direct": direct}
    return ProxiedSession.model_validate({**totals, **dollars, "last_at": NOW, **fields})


@pytest.mark.parametrize(
    ("paid", "direct", "said"),
    [
        (3.0, 4.0, "Billed 3.00 US dollars; without contextstash about 4.00: 1.00 saved (25.0 %)."),
        (3.0, 2.5, "Billed 3.00 US dollars; without contextstash about 2.50: 0.50 lost (20.0 %)."),
    ],
)
def test_the_first_line_is_the_bill_with_what_was_saved_or_lost(
    tmp_path: Path, paid: float, direct: float, said: str
) -> None:
    line = proxied(tmp_path, one=state(paid, direct))
    shown = line.run("receipt", "one").stdout
    assert shown.splitlines()[0] == said
    assert "list prices" in shown
    assert line.json("receipt", "one")["dollars_saved"] == pytest.approx(direct - paid)


def test_a_receipt_since_a_day_leaves_out_what_came_before(tmp_path: Path) -> None:
    before = ProxiedTotals(requests=1, priced=1, sent=4_000, direct=8_000, dollars_paid=1.0, dollars_direct=1.5)
    line = proxied(tmp_path, one=state(3.0, 4.0, days={"2027-01-10": ProxiedTotals(), "2027-01-15": before}))
    found = line.json("receipt", "one", "--since", "2027-01-12")
    assert (found["requests"], found["dollars_billed"], found["dollars_saved"]) == (1, 2.0, 0.5)
    assert line.json("receipt", "one", "--since", "2027-01-16")["requests"] == 0


def test_a_receipt_of_imported_requests_says_that_nothing_could_be_saved(contextstash: CommandLine) -> None:
    path = contextstash.folder / "build.json"
    reply = {"role": "assistant", "model": "claude-haiku-4-5", "content": "Built.", "usage": {"input_tokens": 1_000}}
    path.write_text(json.dumps([{"role": "user", "content": "Build it."}, reply]))
    assert contextstash.run("import", path).returncode == 0
    said = contextstash.run("receipt", "--since", "2020-01-01").stdout
    assert "Nothing could be saved in them: they were recorded later." in said


def test_without_a_session_that_can_be_replayed_it_says_what_that_takes(orchard: Orchard) -> None:
    assert "30 calls with the usage" in orchard.run("advise").stdout
    advice = orchard.json("advise", orchard.session)
    assert (advice["conversations"], advice["left_out"]) == (0, 1)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        (
            {60_000: 55.0, 100_000: 58.0, 150_000: 75.0},
            "Recommended: 100k, for about 58 % of the recorded cost. For one run",
        ),
        ({60_000: 95.0, 150_000: 99.0}, "leave the window as it is"),
        ({}, "leave the window as it is"),
    ],
)
def test_it_recommends_a_window_and_the_command_that_sets_it(costs: dict[int, float], said: str) -> None:
    windows = [
        AdvisedWindow(compaction_point=point, dollars=1.0, cost_percent=cost, lacking_percent=5.0)
        for point, cost in costs.items()
    ]
    advice = WindowAdvice(conversations=1, left_out=0, requests=40, dollars=2.0, windows=windows)
    text = advice.in_words()
    assert said in text
    assert ("contextstash run --window 100k claude" in text) == ("100k" in said)


CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
LINK = "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\"
HOSTILE = f"{CLIPBOARD}\x1b]0;owned\x07{LINK}\x1b[2J\x1b[8mhidden \x9b2J \u202egnihtemos\rover plum"

OWN_STYLES = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[2?K|\x1b\[1?A|\r(?=\x1b|Compacting)")
"""Colours, and what a progress bar does with its line."""


@pytest.fixture
def hostile(contextstash: CommandLine) -> CommandLine:
    """A session in which everything that is recorded holds sequences for terminals."""
    call = {"type": "tool_use", "id": f"toolu_1{HOSTILE}", "name": f"bash{HOSTILE}", "input": {"command": HOSTILE}}
    output = {"type": "tool_result", "tool_use_id": f"toolu_1{HOSTILE}", "content": f"{HOSTILE}\n" * 400}
    usage = {"input_tokens": 1_000, "output_tokens": 40}
    messages = [
        {"role": "user", "content": f"Find the plum. {HOSTILE}"},
        {"role": "assistant", "model": f"claude{HOSTILE}", "content": [call], "usage": usage},
        {"role": "user", "content": [output]},
        {"role": "assistant", "model": "claude-haiku-4-5", "content": f"Found. {HOSTILE}"},
        {"role": "user", "content": "And the pear?"},
        {"role": "assistant", "model": "claude-haiku-4-5", "content": "Gone.", "usage": usage},
    ]
    path = contextstash.folder / "hostile.json"
    path.write_text(json.dumps(messages))
    assert contextstash.run("import", path).returncode == 0
    return contextstash


def handle_of(line: CommandLine) -> str:
    messages = line.json("show", session_of(line))["messages"]
    return next(str(handle) for message in messages for handle in message.get("handles") or ())


def session_of(line: CommandLine) -> str:
    return str(line.json("sessions")["sessions"][0]["session_id"])


def commands(line: CommandLine) -> list[tuple[str, ...]]:
    handle, session = handle_of(line), session_of(line)
    shows = [
        ("show", handle), ("show", handle, "--pattern", "plum"), ("show", session),
        ("show", session, "--message", "0"), ("show", session, "--message", "1"), ("show", session, "--message", "2"),
    ]  # fmt: skip
    others = [("sessions",), ("status",)]
    searches = [("search", "plum"), ("search", "nowhere")]
    changes = [("pin", handle, "--session", session), ("compact", session, "--strategy", "extractive")]
    as_json = ((*each, "--json") for each in (shows[0], shows[3], searches[0]))
    return [*shows, *others, *searches, *as_json, *changes, ("status",)]


def test_no_command_sends_a_recorded_sequence_to_a_terminal(hostile: CommandLine) -> None:
    seen = b""
    for command in commands(hostile):
        printed = OWN_STYLES.sub(b"", printed_on_terminal(hostile.database, *command))
        text = printed.decode().replace("\r\n", "\n")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), command
        seen += printed
    assert "␛]52;c;".encode() in seen


def test_a_pipe_gets_the_output_as_it_was_recorded(hostile: CommandLine) -> None:
    handle = handle_of(hostile)
    assert CLIPBOARD in hostile.run("show", handle).stdout
    assert CLIPBOARD.encode() not in printed_on_terminal(hostile.database, "show", handle)


def test_an_import_does_not_send_names_and_roles_of_files_to_a_terminal(contextstash: CommandLine) -> None:
    folder = contextstash.folder / "repo"
    folder.mkdir()
    said = {"type": "user", "sessionId": "s", "timestamp": "2026-11-20T10:00:00Z"}
    bad = {**said, "uuid": "b", "message": {"role": f"user{HOSTILE}", "content": "x"}}
    good = {**said, "uuid": "a", "message": {"role": "user", "content": "Find the plum."}}
    name = "a\x1b]0;owned\x07\x1b[41m\u202e[bold]gpj.jsonl"
    (folder / name).write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    printed = OWN_STYLES.sub(b"", printed_on_terminal(contextstash.database, "import", str(folder)))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed.decode().replace("\r\n", "\n"))
