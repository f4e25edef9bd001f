"""Which names a summary lists as in use, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from contextstash.events.names import names_of
from contextstash.events.turns import Turn
from tests.support.turns import Script, Section, extract_summary, quarter, read_summary

SOURCE = "def charge_fine(loan_days):\n    return dailyRate * loan_days\n\n\ndef unrelated_helper():\n    pass\n"


def name_lines(turns: Sequence[Turn], shown: Sequence[Turn], room: int) -> list[str]:
    text = extract_summary(turns, shown=shown, max_tokens=room + 20, max_names=room + 20, count=quarter)
    return read_summary(text).get(Section.NAMES, [])


def reads(script: Script, path: str = "/srv/app/fines.py", text: str = SOURCE) -> Script:
    return script.call("Read", {"file_path": path}, text)


def changes(script: Script, path: str = "/srv/app/fines.py") -> Script:
    edit = {"file_path": path, "old_string": "    pass", "new_string": "    ..."}
    return reads(script, path).call("Edit", edit, "done")


def test_names_that_the_agent_only_saw_come_last() -> None:
    script = reads(Script()).call("Write", {"file_path": "/srv/app/holds.py", "content": "place_hold()"}, "done")
    listed = name_lines(script.turns, [], 200)[-1].split()
    assert listed[:2] == ["Names:", "place_hold"]
    assert "charge_fine" in listed
    assert "charge_fine" not in " ".join(name_lines(script.turns, [], 20))


@pytest.mark.parametrize("change", [{"role": "system"}, {"kind": "host"}])
def test_what_the_client_wrote_lends_no_names_and_the_keys_of_arguments_are_none(change: dict[str, Any]) -> None:
    turns = [replace(turn, **change) for turn in Script().user("tool_policy prefix_rule").turns]
    listed = " ".join(name_lines([*turns, *changes(Script()).turns], [], 200))
    assert not {"prefix_rule", "old_string", "file_path"} & set(listed.split())
    assert {"charge_fine", "loan_days", "dailyRate"} <= set(listed.split())


def test_literals_that_the_agent_uses_again_are_listed() -> None:
    script = Script()
    for text in ("a", "b"):
        written = {"file_path": "/srv/app/fines.py", "content": f'fail("no such loan: %s", 8090, {text})'}
        script.call("Write", written, "done")
    assert name_lines(script.turns, [], 200)[-1] == 'Literals: 8090 "no such loan: %s"'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see read/write, ./run, /dev/null and app/main.py", ["app/main.py"]),
        ("%s/0/prompt.txt and app/main.py", ["app/main.py"]),
        ("charge_fine is in out_k5baog36fdo6xvjz", ["charge_fine"]),
        (r"{\"text\": \"\tchargeFine(loanDays)\n\\treturn_loan\"}", ["chargeFine", "loanDays", "return_loan"]),
        ("diff --git a/app/fines.py b/app/fines.py\n--- a/app/fines.py\n+++ b/app/fines.py\n+charge_fine()\n",
         ["app/fines.py", "charge_fine"]),
    ],
)  # fmt: skip
def test_a_text_has_these_names(text: str, names: list[str]) -> None:
    assert list(names_of(text)) == names


def test_names_stand_beside_the_file_in_whose_text_they_were_seen() -> None:
    code = "     1\tdef place_hold(): ...\n     2\tdef cancel_hold(): ..."
    script = Script().call("Read", {"file_path": "/srv/holds.py"}, code).assistant("Next: `place_hold`.")
    script.call("Bash", {"command": "cat /srv/fines.py /srv/loans.py"}, "charge_fine()\nlend_copy()")
    read = "`/srv/holds.py` (seen in it: place_hold, cancel_hold)"
    files = read_summary(extract_summary(script.turns, max_tokens=600, count=quarter))[Section.FILES]
    assert files == [f"Also read: `/srv/loans.py`, `/srv/fines.py`, {read}"]
    edit = {"file_path": "/srv/holds.py", "old_string": "def cancel_hold(): ...", "new_string": "end_hold = 1"}
    script.call("Edit", edit, "done")
    files = read_summary(extract_summary(script.turns, max_tokens=600, count=quarter))[Section.FILES]
    assert files[0] == "`/srv/holds.py`: edited (seen in it: end_hold, cancel_hold, place_hold): + end_hold = 1"
    rest = read_summary(extract_summary(script.turns, max_tokens=600, max_names=100, count=quarter))
    assert rest[Section.FILES] == ["`/srv/holds.py`: edited: + end_hold = 1"]
