"""The files under edit: the text of each as it stands after the edits that the session made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextstash.handoff.file_pieces import KnownFile, focus_of, known_files, lines_shown, pieces_of_files
from contextstash.safety.secret_masks import masked
from tests.support.turns import Script, laws, quarter

TOKEN = "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC2dF4gH6"
FUNCTIONS = [line for name in "abcdefghij" for line in (f"def {name}_total(x):", f"    return x + {ord(name)}", "")]


def numbered(lines: list[str], first: int = 1) -> str:
    """Lines as Claude Code's Read prints them."""
    return "\n".join(f"{first + place:6}→{line}" for place, line in enumerate(lines))


def edited(script: Script) -> KnownFile:
    (file,) = known_files(script.turns)
    return file


def read_whole(path: str = "/srv/a.py") -> Script:
    return Script().call("Read", {"file_path": path}, numbered(FUNCTIONS))


def edit(script: Script, old: str, new: str, path: str = "/srv/a.py", **more: object) -> Script:
    return script.call("Edit", {"file_path": path, "old_string": old, "new_string": new, **more}, "updated")


def lines_of(file: KnownFile) -> list[str]:
    return [line for chunk in file.chunks for line in chunk.lines]


def test_the_text_of_a_patch_is_followed_and_a_refused_one_is_not() -> None:
    made = "*** Begin Patch\n*** Add File: src/lend.py\n+def lend(copy):\n+    return copy\n*** End Patch\n"
    head = "*** Begin Patch\n*** Update File: src/lend.py\n*** Move to: src/loan.py\n@@ def lend\n"
    change = f"{head} def lend(copy):\n-    return copy\n+    return Loan(copy)\n*** End Patch"
    script = Script().call("apply_patch", made, "Success.").call("apply_patch", change, "Success.")
    script.call("apply_patch", change.replace("Loan(", "Other("), "apply_patch verification failed: no such lines")
    file = edited(script)
    assert (file.path, lines_of(file)) == ("src/loan.py", ["def lend(copy):", "    return Loan(copy)"])


def test_shell_reads_and_here_documents_are_followed() -> None:
    script = Script().call("Bash", {"command": "cat > /srv/a.txt <<'EOF'\none\ntwo\nEOF"}, "")
    script.call("Bash", {"command": "cat >> /srv/a.txt <<'EOF'\nthree\nEOF"}, "")
    assert lines_of(edited(script)) == ["one", "two", "three"]
    script.call("Bash", {"command": "cd /srv && sed -i 's/one/1/' a.txt"}, "")
    assert known_files(script.turns) == []
    script.call("Bash", {"command": "cd /srv && sed -n '1,2p' a.txt | head -5"}, "1\ntwo\n")
    assert lines_of(edited(script)) == ["1", "two"]


def test_of_a_cut_output_only_the_lines_before_the_cut_are_known() -> None:
    output = "one\ntwo\nthr…120 tokens truncated…ee\nnine\n"
    script = Script().call("shell", {"command": ["bash", "-lc", "cat a.txt"]}, output)
    (file,) = known_files(script.turns)
    assert (lines_of(file), file.whole) == (["one", "two"], False)


def test_a_deleted_file_has_no_text_and_failed_edits_count_as_nothing() -> None:
    script = edit(read_whole(), "return x + 99", "gone").call("Bash", {"command": "rm /srv/a.py"}, "")
    assert known_files(script.turns) == []
    failed = read_whole().call("Edit", {"file_path": "/srv/a.py"}, "String to replace not found", is_error=True)
    assert lines_of(edited(failed)) == FUNCTIONS


def test_what_a_kept_message_shows_is_not_shown_again() -> None:
    script = edit(edit(read_whole(), "return x + 99", "return 0"), "return x + 106", "return 1")
    start = len(script.turns)
    diff = "@@ -7,3 +7,3 @@\n def c_total(x):\n-    return x + 99\n+    return 0\n"
    kept = script.call("Bash", {"command": "git diff"}, diff).turns[start:]
    files = known_files(script.turns)
    text = pieces_of_files(files, 40, quarter, seen=lines_shown(kept))
    assert "def c_total" in pieces_of_files(files, 40, quarter)
    assert "def c_total" not in text
    assert "def j_total(x):\n    return 1" in text


def test_a_file_is_shown_whole_if_there_is_room_and_else_around_its_edits() -> None:
    files = known_files(edit(read_whole(), "return x + 102", "return 0").turns)
    whole = pieces_of_files(files, 1_000, quarter)
    assert whole.startswith("`/srv/a.py`, whole, message 3:\n```\ndef a_total(x):")
    assert whole.endswith("    return x + 106\n```")
    assert pieces_of_files(files, 24, quarter) == ("`/srv/a.py`, message 3:\n```\ndef f_total(x):\n    return 0\n```")
    assert pieces_of_files(files, 10, quarter) == ""


def test_the_functions_that_the_newest_messages_speak_of_are_shown_before_others() -> None:
    script = edit(read_whole(), "return x + 102", "return 0").assistant("Next, b_total has to change too.")
    files = known_files(script.turns)
    shown = pieces_of_files(files, 36, quarter, focus_of(script.turns))
    assert [line for line in shown.split("\n") if line.startswith("def ")] == ["def b_total(x):", "def f_total(x):"]


LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "", "def f():", "    return a"]), min_size=1, max_size=12)


@laws
@given(LINES, st.lists(st.tuples(st.integers(0, 11), st.integers(1, 4), LINES), max_size=5), st.integers(0, 300))
def test_a_file_that_was_read_whole_stands_as_its_edits_made_it(
    before: list[str], edits: list[tuple[int, int, list[str]]], room: int
) -> None:
    script = Script().call("Read", {"file_path": "a.py"}, numbered(before))
    text = "\n".join(before)
    for start, length, new in edits:
        old = "\n".join(text.split("\n")[start : start + length])
        if old:
            edit(script, old, "\n".join(new), "a.py", replace_all=text.count(old) > 1)
            text = text.replace(old, "\n".join(new))
    (file,) = known_files(script.turns)
    assert "\n".join(lines_of(file)) == text
    assert quarter(pieces_of_files([file], room, quarter)) <= room


def test_of_lines_that_a_newer_read_shows_otherwise_the_newer_ones_are_known() -> None:
    """A script changed the lines: those of the older read with these numbers are not known any more."""
    script = read_whole()
    now = ["def b_total(x, y):", "    return x * y", ""]
    script.call("Read", {"file_path": "/srv/a.py", "offset": 4, "limit": 3}, numbered(now, 4))
    known = lines_of(edited(script))
    assert "    return x + 98" not in known
    assert sorted(known) == sorted([*FUNCTIONS[:3], *now, *FUNCTIONS[6:]])


def test_lines_in_which_a_secret_is_masked_are_left_out() -> None:
    """A model that writes the file as it is shown would put the mask in the place of the user's key."""
    lines = ["import os", "", f'TOKEN = "{masked(TOKEN)}"', *FUNCTIONS]
    script = edit(Script().call("Read", {"file_path": "/srv/a.py"}, numbered(lines)), "return x + 99", "return x * 2")
    text = pieces_of_files([edited(script)], 2_000, quarter)
    assert "masked" not in text
    assert "whole" not in text
    assert text.startswith("`/srv/a.py`, message 3:\n```\nimport os\n[…]\ndef a_total")


def test_a_line_that_was_replaced_is_not_told_beside_its_replacement() -> None:
    shown = numbered(["def f():", "    total = first(x)", "    return total", "", "", "def g():"], 11)
    script = Script().call("Read", {"file_path": "/srv/a.py", "offset": 11, "limit": 6}, shown)
    edit(script, "    before = 1\n    total = first(x)", "    before = 1\n    total = second(x)")
    lines = lines_of(edited(script))
    told = [line in lines for line in ("    total = second(x)", "    return total", "    total = first(x)")]
    assert told == [True, True, False]


def patch(script: Script, *hunks: str) -> Script:
    text = "\n".join(("*** Begin Patch", "*** Update File: /srv/a.py", *hunks, "*** End Patch"))
    return script.call("apply_patch", text, "Success.")


def read_parts() -> Script:
    """Two parts of a file whose functions all end with the same line."""
    script = Script()
    for first, name in ((20, "a"), (60, "b")):
        lines = [f"func {name}() error {{", f"\tcall{name}()", "\treturn nil", "}"]
        script.call("Read", {"file_path": "/srv/a.py", "offset": first, "limit": 4}, numbered(lines, first))
    return script


def test_a_change_is_laid_over_one_certain_place_only() -> None:
    """Codex writes such patches: the last lines of a function, which are those of others, too."""
    grown = " }\n+\n+func c() {\n+}"
    named = lines_of(edited(patch(read_parts(), "@@ func b() error {", grown)))
    assert named[named.index("\tcallb()") :] == ["\tcallb()", "\treturn nil", "}", "", "func c() {", "}"]
    chunks = [chunk.lines for chunk in edited(patch(read_parts(), "@@", grown)).chunks]
    assert chunks[-1] == ["}", "", "func c() {", "}"]
    grown_above = edited(edit(read_parts(), "\tcalla()", "\tcalla()\n\tmore()"))
    assert [chunk.first for chunk in grown_above.chunks] == [20, 61]
    again = [chunk.lines for chunk in edited(edit(read_parts(), "\treturn nil", "\treturn failed")).chunks]
    assert again[-1] == ["\treturn failed"]
    assert not any("\treturn nil" in lines for lines in again)


def test_a_text_from_before_git_took_other_versions_says_so() -> None:
    def head(*commands: str) -> str:
        script = read_whole()
        for command in commands:
            script.call("Bash", {"command": command}, "")
        return pieces_of_files(known_files(script.turns), 900, quarter).split("\n")[0]

    assert head("git checkout -b fines", "git checkout -- b.py", "git push") == "`/srv/a.py`, whole, message 1:"
    assert head("git switch main && git pull") == "`/srv/a.py`, whole, message 1, before `git switch` in 3:"
    again = (
        read_whole()
        .call("Bash", {"command": "git pull"}, "")
        .call("Read", {"file_path": "/srv/a.py"}, numbered(FUNCTIONS))
    )
    assert "before" not in pieces_of_files(known_files(again.turns), 900, quarter).split("\n")[0]
    partly = read_parts().call("Bash", {"command": "git pull"}, "")
    lines = [f"import {name}" for name in "abcd"]
    partly.call("Read", {"file_path": "/srv/a.py", "offset": 1, "limit": 4}, numbered(lines, 1))
    told = [line for line in pieces_of_files(known_files(partly.turns), 900, quarter).split("\n") if "message" in line]
    assert told == [
        "`/srv/a.py`, message 7:",
        "[… message 1, before `git pull` in 5]",
        "[… message 3, before `git pull` in 5]",
    ]


def test_a_file_that_a_script_changed_has_to_be_read_again() -> None:
    script = read_whole().call("Write", {"file_path": "/srv/fix.py", "content": "open('/srv/a.py', 'w').write(x)"}, "")
    patch = "python - <<'EOF'\ntext = open('/srv/a.py').read()\nopen('/srv/a.py', 'w').write(text)\nEOF"
    assert "/srv/a.py" in {file.path for file in known_files(script.turns)}
    assert "/srv/a.py" not in {file.path for file in known_files(script.call("Bash", {"command": patch}, "").turns)}


def test_a_change_without_a_result_yet_is_not_shown_as_made() -> None:
    script = read_whole()
    change = {"file_path": "/srv/a.py", "old_string": "    return x + 97", "new_string": "    return x + 1000"}
    assert "    return x + 97" in lines_of(edited(script.call("Edit", change, None)))
