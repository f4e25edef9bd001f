"""`contextstash prune` and `restore`: archiving old tool outputs, and undoing prunes and compactions."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.errors import BadInputError
from tests.support.command_line import WINDOW, CommandLine, Orchard, failure_of
from tests.support.stashes import stash_at


def test_prune_and_status_say_whose_window_they_name(orchard: Orchard) -> None:
    done = orchard.run("prune", orchard.session, "--keep-last", "2", "--dry-run").stdout
    assert done.startswith("Your window is unchanged: your client sends ")
    assert "by its own count. A prune or compaction changes this view" in orchard.run("status").stdout


def test_a_prune_that_can_do_nothing_names_the_options_that_can_and_takes_the_newest_session(orchard: Orchard) -> None:
    shown = orchard.run("prune").stdout
    assert "Pass --keep-last or --protect-tokens to prune more" in shown
    assert "keep_last" not in shown
    assert orchard.json("status")["outputs_archived"] == 0


def test_a_prune_says_how_to_undo_it_and_that_undoes_all_of_it(orchard: Orchard) -> None:
    before = orchard.json("status")["estimate"]["view_tokens"]
    last = orchard.run("prune", orchard.session, "--keep-last", "2").stdout.splitlines()[-1]
    assert last == f"To undo: contextstash restore {orchard.session} --last"
    assert orchard.run(*last.removeprefix("To undo: contextstash ").split()).returncode == 0
    status = orchard.json("status")
    assert (status["outputs_archived"], status["estimate"]["view_tokens"]) == (0, before)


def test_the_last_change_is_undone_alone_and_then_the_one_before_it(orchard: Orchard) -> None:
    full = orchard.json("prune", orchard.session, "--keep-last", "6")
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2")
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    assert orchard.json("restore", orchard.session, "--last")["tokens_after"] == compacted["tokens_before"]
    assert orchard.json("restore", "--last", orchard.session)["tokens_after"] == pruned["tokens_before"]
    assert orchard.json("restore", "--last")["tokens_after"] == full["tokens_before"]
    assert "Nothing to undo" in failure_of(orchard.run("restore", "--last"))


def test_what_is_no_handle_is_named_without_a_word_about_servers(orchard: Orchard) -> None:
    for wrong in ((), ("nonsense",), ("a", "b", "--last")):
        assert "Pass handles of outputs (out_…)" in failure_of(orchard.run("restore", *wrong))
    assert failure_of(orchard.run("restore", "sum_nonsense")).startswith("There is no output or summary 'sum_nonsense'")
    assert "server" not in failure_of(orchard.run("restore", "sum_nonsense"))


def test_a_pinned_output_is_not_pruned_and_an_unpinned_one_is(orchard: Orchard) -> None:
    first = orchard.json("prune", orchard.session, "--keep-last", "0", "--dry-run")["archived"][0]["handle"]
    assert (
        f"Pinned in session {orchard.session}: {first}."
        in orchard.run("pin", first, "--session", orchard.session).stdout
    )
    pruned = orchard.json("prune", orchard.session, "--keep-last", "0")["archived"]
    assert first not in [each["handle"] for each in pruned]
    orchard.run("pin", first, "--session", orchard.session, "--remove")
    again = orchard.json("prune", orchard.session, "--keep-last", "0")["archived"]
    assert [each["handle"] for each in again] == [first]


def test_a_pin_of_a_file_that_no_output_shows_says_so(orchard: Orchard) -> None:
    assert "No output shows foo.py so far" in orchard.run("pin", "foo.py").stdout
    assert "No output shows" not in orchard.run("pin", "orchard/row_03.txt").stdout


def test_words_are_a_rule_of_the_newest_session_and_a_secret_in_it_is_not_echoed(orchard: Orchard) -> None:
    pinned = f"Pinned in session {orchard.session}: rule: never push to main.\n"
    assert orchard.run("pin", "never push to main").stdout == pinned
    assert orchard.run("pin").stdout == pinned
    assert orchard.run("pin", "rule: never push to main", "--remove").stdout.endswith(": nothing.\n")
    secret = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hL3nR6"
    assert secret not in orchard.run("pin", f"push with {secret}").stdout


def test_pins_are_listed_and_a_handle_names_its_session(orchard: Orchard) -> None:
    handle = orchard.json("show", orchard.session, "--message", "2")["handles"][0]
    (orchard.folder / "newer.json").write_text('[{"role": "user", "content": "Hello."}]')
    orchard.run("import", orchard.folder / "newer.json")
    assert orchard.json("status")["session_id"] != orchard.session
    assert orchard.json("pin", handle)["session_id"] == orchard.session
    before = orchard.run("export", orchard.session).stdout
    assert (
        orchard.run("pin", "--session", orchard.session).stdout == f"Pinned in session {orchard.session}: {handle}.\n"
    )
    assert orchard.run("export", orchard.session).stdout == before
    assert orchard.run("pin").stdout.endswith(": nothing.\n")


def test_a_session_is_deleted_only_if_that_is_confirmed(orchard: Orchard) -> None:
    assert "--yes" in failure_of(orchard.run("delete", orchard.session, typed="n\n"))
    assert orchard.json("status")["session_id"] == orchard.session
    assert orchard.json("delete", orchard.session, "--yes")["deleted"] is True
    assert "no session" in failure_of(orchard.run("status"))


def test_the_sessions_of_its_sub_agents_go_with_it(contextstash: CommandLine) -> None:
    """They are rows below it in the list: whoever deletes it must not find them there alone afterwards."""

    async def record() -> None:
        async with stash_at(contextstash.database) as stash:
            for name, parent in (("main", None), ("main.agent-1", "main"), ("fork", "main")):
                said = [{"role": "user", "content": f"zebra of {name}"}]
                await stash.record_messages(said, session_id=name, parent_session_id=parent)

    asyncio.run(record())
    assert contextstash.run("delete", "main", "--yes").stdout == (
        "Session main is deleted, 1 message with it, and 1 session of its sub-agents.\n"
    )
    assert [hit["session_id"] for hit in contextstash.json("search", "zebra")["hits"]] == ["fork"]


DAYS = (0, 10, 40, 100, 400)


def filled(path: Path) -> None:
    """A session for each age, of which that of 100 days has a pin."""

    async def fill() -> None:
        async with stash_at(path) as stash:
            for age in DAYS:
                text = f"Work {age}: " + "some words " * 2_000
                await stash.record_messages([{"role": "user", "content": text}], session_id=f"aged-{age}")
            await stash.configure_session("aged-100", settings={"pin": ["rule: keep this"]})

    asyncio.run(fill())


def make_old(path: Path) -> None:
    """As if all sessions had been recorded in 2020."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "UPDATE sessions SET created_at = ?1, updated_at = ?1, last_message_at = 0", (1_577_836_800_000_000,)
        )


def test_the_command_says_what_would_go_and_needs_yes(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    filled(database)
    make_old(database)
    line = CommandLine(tmp_path)
    assert "keep_days" in failure_of(line.run("retain", "--db", database))
    said = line.run("retain", "--days", "1", "--db", database)
    assert said.returncode == 0, said.stderr
    assert "Would delete 4 sessions; 1 session kept for a pin." in said.stdout
    assert len(json.loads(line.run("sessions", "--json", "--db", database).stdout)["sessions"]) == 5
    done = line.run("retain", "--days", "1", "--yes", "--db", database)
    assert "Deleted 4 sessions" in done.stdout
    assert len(json.loads(line.run("sessions", "--json", "--db", database).stdout)["sessions"]) == 1


def test_a_session_cannot_shorten_its_own_life(tmp_path: Path) -> None:
    async def run() -> None:
        async with stash_at(tmp_path / "s.db") as stash:
            await stash.record_messages([{"role": "user", "content": "Hello."}], session_id="a")
            with pytest.raises(BadInputError, match="the user's alone"):
                await stash.configure_session("a", settings={"keep_days": 1})

    asyncio.run(run())
