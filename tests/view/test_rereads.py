"""Which outputs show again what was taken out of view."""

from __future__ import annotations

from hashlib import sha256

from contextstash.view.outputs_in_use import MadeCall
from contextstash.view.rereads import Key, OutputLines, Reread

FILE = "".join(f"    value_{number} = compute(number={number})\n" for number in range(60))


class Session:
    """Outputs in order, of which some are hidden after a while."""

    def __init__(self) -> None:
        self.lines = OutputLines()
        self.hidden: dict[Key, float] = {}
        self.now = 0.0

    def call(self, tool: str, argument: str, text: str, *, failed: bool = False) -> Reread | None:
        self.now += 1
        key = f"call_{self.now:.0f}", sha256(text.encode()).hexdigest()
        return self.lines.add(key, MadeCall(key[0], tool, argument, self.now), text, self.hidden, failed=failed)

    def hide(self) -> None:
        """Prune all outputs so far."""
        self.hidden |= {key: self.hidden.get(key, self.now) for key in self.lines.outputs}


def test_an_equal_output_of_another_tool_is_a_re_read_once_the_first_is_hidden() -> None:
    session = Session()
    session.call("Read", "/src/a.py", FILE)
    assert session.call("Bash", "cat /src/a.py", FILE) is None
    session.hide()
    again = session.call("Bash", "cd /src && cat a.py", FILE)
    assert again is not None
    assert again.share == 1.0


def test_a_part_of_a_file_is_known_by_its_lines_with_or_without_numbers() -> None:
    session = Session()
    session.call("Read", "/src/a.py", "".join(f"{n:6}→{line}\n" for n, line in enumerate(FILE.split("\n"), 1)))
    session.hide()
    part = FILE.split("\n")[20:30]
    for found in ("\n".join(part), "\n".join(f"src/a.py:{n}:{line}" for n, line in enumerate(part, 21))):
        again = Session.call(session, "Grep", "compute", found)
        assert again is not None
        assert again.share == 1.0
        session.hide()


def test_of_an_output_that_shows_more_only_the_known_part_counts() -> None:
    session = Session()
    session.call("Read", "/src/a.py", FILE)
    session.hide()
    other = "".join(f"an entirely different line of log, number {number}\n" for number in range(60))
    again = session.call("Bash", "cat /src/a.py /tmp/log", FILE + other)
    assert again is not None
    assert 0.3 < again.share < 0.5
    session.hide()
    assert session.call("Bash", "tail log", other.replace("different", "new") + FILE[:200]) is None


def test_a_file_that_was_changed_since_is_no_re_read_but_another_one_is() -> None:
    session = Session()
    session.call("Read", "/src/a.py", FILE)
    session.call("Read", "/src/b.py", FILE.replace("compute", "measure"))
    session.hide()
    session.call("Edit", "/src/a.py", "The file /src/a.py has been updated.")
    assert session.call("Bash", "cd /src && cat a.py", FILE.replace("value_7 ", "other ")) is None
    assert session.call("Read", "/src/b.py", FILE.replace("compute", "measure")) is not None


def test_a_change_that_failed_is_none_so_that_the_read_after_it_is_a_re_read() -> None:
    session = Session()
    session.call("Read", "/src/a.py", FILE)
    session.hide()
    session.call("Edit", "/src/a.py", "String to replace not found in file.", failed=True)
    assert session.call("Read", "/src/a.py", FILE) is not None


def test_the_tests_run_again_after_a_change_are_news_and_without_one_a_re_read() -> None:
    run = "".join(f"tests/test_{number}.py ........ PASSED\n" for number in range(40))
    session = Session()
    session.call("Bash", "make test", run)
    session.hide()
    assert session.call("Bash", "make test", run) is not None
    session.hide()
    session.call("Edit", "/src/a.py", "The file /src/a.py has been updated.")
    assert session.call("Bash", "make test", run) is None


def test_lines_that_a_later_output_still_shows_are_not_read_again() -> None:
    log = "".join(f"12:00:{number} worker {number} has started\n" for number in range(40))
    session = Session()
    session.call("Bash", "tail -40 log", log)
    session.hide()
    assert session.call("Bash", "tail -41 log", log + "12:01 one more line\n") is not None
    assert session.call("Bash", "tail -42 log", log + "12:01 one more line\n12:02 and another\n") is None


def test_what_our_own_tools_return_is_no_re_read() -> None:
    session = Session()
    session.call("Read", "/src/a.py", FILE)
    session.hide()
    assert session.call("mcp__contextstash__get_archived_output", "out_1", FILE) is None
