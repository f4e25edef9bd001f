"""`contextstash prune`, `restore`, `pin`, `delete` and `retain`: what changes a session."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.errors import BadInputError
from tests.support.command_line import WINDOW, CommandLine, Orchard, failure_of
from tests.support.stashes import stash_at


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


def test_words_are_a_rule_of_the_newest_session_and_a_secret_in_it_is_not_echoed(orchard: Orchard) -> None:
    pinned = f"Pinned in session {orchard.session}: rule: never push to main.\n"
    assert orchard.run("pin", "never push to main").stdout == pinned
    assert orchard.run("pin").stdout == pinned
    assert orchard.run("pin", "never", "push", "to", "main").stdout == pinned
    assert failure_of(orchard.run("pin", "never push", "--remove")).endswith("Pinned: rule: never push to main.")
    assert orchard.run("pin", "rule: never push to main", "--remove").stdout.endswith(": nothing.\n")
    secret = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hL3nR6"
    assert secret not in orchard.run("pin", f"push with {secret}").stdout
    assert "--with-secrets" in orchard.run("export").stderr
    assert "no file pear.py here" in orchard.run("pin", "pear.py").stdout


def test_pins_are_listed_and_a_handle_names_its_session(orchard: Orchard) -> None:
    handle = orchard.json("show", orchard.session, "--message", "2")["handles"][0]
    (orchard.folder / "newer.json").write_text('[{"role": "user", "content": "Hello."}]')
    orchard.run("import", orchard.folder / "newer.json")
    assert orchard.json("status")["session_id"] != orchard.session
    assert orchard.run("sessions", "--limit", "1").stderr == "More: the same command with --limit 2\n"
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
    assert "contextstash import" in orchard.run("search", "quince").stderr


def test_a_session_is_not_deleted_by_an_unset_variable_or_a_few_characters(orchard: Orchard) -> None:
    assert "8 characters" in failure_of(orchard.run("delete", orchard.session[:7], "--yes"))
    for arguments in (
        ("delete", "", "--yes"),
        ("search", "--session", "", "orchard"),
        ("continue", "codex", "", "--print"),
    ):
        assert "id is empty" in failure_of(orchard.run(*arguments))
    assert orchard.json("delete", orchard.session[:8], "--yes")["deleted"] is True


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


def test_sessions_go_by_their_age_only_with_yes_and_none_can_shorten_its_own_life(contextstash: CommandLine) -> None:
    async def fill() -> None:
        async with stash_at(contextstash.database) as stash:
            for name in ("one", "two", "pinned"):
                await stash.record_messages([{"role": "user", "content": "Hello."}], session_id=name)
            await stash.configure_session("pinned", settings={"pin": ["rule: keep this"]})
            with pytest.raises(BadInputError, match="the user's alone"):
                await stash.configure_session("one", settings={"keep_days": 1})

    asyncio.run(fill())
    with closing(sqlite3.connect(contextstash.database)) as db, db:  # as if all had been recorded in 2020
        db.execute(
            "UPDATE sessions SET created_at = ?1, updated_at = ?1, last_message_at = 0", (1_577_836_800_000_000,)
        )
    assert "keep_days" in failure_of(contextstash.run("retain"))
    said = contextstash.run("retain", "--days", "1")
    assert said.returncode == 0, said.stderr
    assert "Would delete 2 sessions; 1 session kept for a pin." in said.stdout
    assert len(contextstash.json("sessions")["sessions"]) == 3
    assert "Deleted 2 sessions" in contextstash.run("retain", "--days", "1", "--yes").stdout
    assert [each["session_id"] for each in contextstash.json("sessions")["sessions"]] == ["pinned"]
