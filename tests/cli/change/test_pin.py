"""`contextstash pin`: keeping outputs in the view."""

from __future__ import annotations

from tests.support.orchard import Orchard


def test_a_pinned_output_is_not_pruned_and_an_unpinned_one_is(orchard: Orchard) -> None:
    first = orchard.json("prune", orchard.session, "--keep-last", "0", "--dry-run")["archived"][0]["handle"]
    assert f"Pinned in session {orchard.session}: {first}." in orchard.run("pin", orchard.session, first).stdout
    pruned = orchard.json("prune", orchard.session, "--keep-last", "0")["archived"]
    assert first not in [each["handle"] for each in pruned]
    orchard.run("pin", orchard.session, first, "--remove")
    again = orchard.json("prune", orchard.session, "--keep-last", "0")["archived"]
    assert [each["handle"] for each in again] == [first]


def test_a_pin_of_a_file_that_no_output_shows_says_so(orchard: Orchard) -> None:
    assert "No output shows foo.py so far" in orchard.run("pin", orchard.session, "foo.py").stdout
    assert "No output shows" not in orchard.run("pin", orchard.session, "orchard/row_03.txt").stdout
    assert 'To pin a rule, write "rule: …"' in orchard.run("pin", orchard.session, "never push to main").stdout
