"""`contextstash pin`: keeping outputs in the view."""

from __future__ import annotations

from tests.support.command_line import Orchard


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
    assert "rule: never push again" in orchard.run("pin", "never", "push", "again").stdout
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


def test_a_session_before_the_words_of_a_rule_is_asked_for_as_an_option(orchard: Orchard) -> None:
    done = orchard.run("pin", orchard.session[:8], "never", "push")
    assert f"'{orchard.session[:8]}' names a session: pass it as --session." in done.stderr
