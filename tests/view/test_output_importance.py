"""What is superseded, and what belongs to the work: by the calls of a session and the texts of its outputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from contextstash.view.output_importance import Importance, importance_of
from contextstash_storage.records import Output

FILE = "\n".join(f"def step_{number}(): ..." for number in range(40))
EDITED = FILE.replace("step_7()", "step_7(again)")
OTHER_PART = "\n".join(f"def later_{number}(): ..." for number in range(40))
FAILED = "FAILED tests/test_a.py::test_one - assert 1 == 2\n===== 1 failed, 3 passed in 0.21s ====="
PASSED = "===== 4 passed in 0.20s ====="


@dataclass(frozen=True)
class Ran:
    tool: str
    argument: str
    text: str


def read(text: str, path: str = "/srv/a.py") -> Ran:
    return Ran("Read", path, text)


def importance(*ran: Ran) -> Importance:
    outputs = [
        Output(
            handle=f"out_{seq}",
            seq=seq,
            block=0,
            tool=each.tool,
            argument=each.argument,
            tokens=len(each.text) // 4,
            characters=len(each.text),
            lines=each.text.count("\n") + 1,
            sha256=hashlib.sha256(each.text.encode()).hexdigest(),
        )
        for seq, each in enumerate(ran)
    ]
    return importance_of(outputs, {(seq, 0): each.text for seq, each in enumerate(ran)})


def superseded(*ran: Ran) -> list[int]:
    return sorted(seq for seq, _ in importance(*ran).superseded)


def working(*ran: Ran) -> list[int]:
    return sorted(seq for seq, _ in importance(*ran).working)


def test_a_read_is_superseded_by_a_later_read_with_nearly_all_of_its_lines() -> None:
    assert superseded(read(FILE), read(EDITED)) == [0]
    numbered = "\n".join(f"{number:6}→{line}" for number, line in enumerate(EDITED.splitlines(), start=1))
    assert superseded(read(FILE), read(numbered)) == [0]
    assert superseded(Ran("bash", "cat /srv/a.py", FILE), Ran("bash", "cd /srv && head -60 /srv/a.py", EDITED)) == [0]


def test_another_part_of_the_file_or_another_file_supersedes_nothing() -> None:
    assert superseded(read(FILE), read(OTHER_PART)) == []
    assert superseded(read(FILE), read(EDITED, "/srv/b.py")) == []


def test_a_part_of_what_was_read_before_does_not_supersede_the_whole() -> None:
    assert superseded(read(FILE), read(FILE[:200])) == []


def test_a_read_is_superseded_if_the_file_is_written_as_a_whole_later_but_not_if_it_is_edited() -> None:
    assert superseded(read(FILE), Ran("Write", "/srv/a.py", "File written.")) == [0]
    assert superseded(Ran("bash", "cat a.py", FILE), Ran("bash", "cat > a.py <<'EOF' import os", "")) == [0]
    assert superseded(read(FILE), Ran("Edit", "/srv/a.py", "File edited.")) == []


def test_of_equal_outputs_only_the_newest_counts() -> None:
    assert superseded(Ran("bash", "git status", "clean"), read(FILE), Ran("bash", "git status", "clean")) == [0]


def test_the_newest_read_of_each_file_under_edit_belongs_to_the_work() -> None:
    edit = Ran("Edit", "/srv/a.py", "File edited.")
    assert working(read(FILE), read(EDITED), read(OTHER_PART, "/srv/b.py"), edit) == [1]
    in_place = Ran("bash", "sed -i 's/one/two/' src/a.py", "")
    assert working(Ran("bash", "cat src/a.py", FILE), Ran("bash", "cat src/b.py", OTHER_PART), in_place) == [0]


def test_the_newest_test_run_belongs_to_the_work_as_long_as_tests_fail() -> None:
    first, second = Ran("bash", "pytest", FAILED), Ran("bash", "pytest -x", FAILED.replace("0.21", "0.22"))
    assert working(first, second) == [1]
    assert working(first, second, Ran("bash", "pytest", PASSED)) == []


def test_the_text_of_an_output_that_was_hidden_meanwhile_is_passed_over() -> None:
    assert importance_of([], {(3, 0): "a line"}) == Importance()
