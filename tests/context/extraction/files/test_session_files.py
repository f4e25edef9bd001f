"""Which files a tool call used, for the tools of common agents and for shell commands."""

from __future__ import annotations

import pytest

from contextstash.context.extraction.actions import actions_of
from contextstash.context.extraction.files.file_actions import FileUse, file_uses
from contextstash.context.extraction.files.session_files import file_lines
from tests.support.turns import Script

PATCH = """\
*** Begin Patch
*** Update File: src/app.py
@@
-    return old_name(x)
+    return new_name(x)
*** Add File: src/lend.py
+def lend(copy):
*** Delete File: src/old.py
*** End Patch
"""


def uses_of(tool: str, arguments: dict[str, object] | str) -> list[FileUse]:
    (action,) = actions_of(Script().call(tool, arguments, "ok").turns)
    return file_uses(action)


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("Read", {"file_path": "a.py"}, [FileUse("a.py", "read")]),
        ("Write", {"file_path": "a.py", "content": "class Loan:"}, [FileUse("a.py", "created", ("Loan",))]),
        ("Edit", {"file_path": "a.py", "old_string": "f(x)", "new_string": "total_fine = 1"},
         [FileUse("a.py", "edited", ("total_fine",))]),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, [FileUse("a.py", "read")]),
        ("str_replace_editor", {"command": "create", "path": "a.py"}, [FileUse("a.py", "created")]),
        ("delete_file", {"path": "a.py"}, [FileUse("a.py", "deleted")]),
        ("apply_patch", PATCH, [
            FileUse("src/app.py", "edited", ("new_name", "old_name")),
            FileUse("src/lend.py", "created", ("lend",)),
            FileUse("src/old.py", "deleted"),
        ]),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}EOF"]}, [
            FileUse("src/app.py", "edited", ("new_name", "old_name")),
            FileUse("src/lend.py", "created", ("lend",)),
            FileUse("src/old.py", "deleted"),
        ]),
        ("Bash", {"command": "cat > a.py <<'EOF'\ndef f():\n  rm(x) > y.txt\nEOF\npython a.py"},
         [FileUse("a.py", "created", ("f",)), FileUse("a.py", "run")]),
        ("Bash", {"command": "sed -i 's/a/b/' src/a.py && sed -n '1,9p' b.py"},
         [FileUse("src/a.py", "edited"), FileUse("b.py", "read")]),
        ("Bash", {"command": "cd x; git mv a.py b.py; rm -rf build 2>/dev/null"},
         [FileUse("x/b.py", "renamed", was="x/a.py"), FileUse("x/build", "deleted")]),
        ("Bash", {"command": "jq '.[] | select(.id > 7)' data.json"}, []),
        ("get_order", {"order_id": "7"}, []),
    ],
)  # fmt: skip
def test_a_call_uses_these_files(tool: str, arguments: dict[str, object] | str, expected: list[FileUse]) -> None:
    assert uses_of(tool, arguments) == expected


def test_a_failed_edit_uses_no_file() -> None:
    script = Script().call("Edit", {"file_path": "a.py"}, "String to replace not found", is_error=True)
    assert file_uses(actions_of(script.turns)[0]) == []


def test_a_file_that_is_not_there_was_not_read() -> None:
    script = Script().call("Read", {"file_path": "gone.py"}, "Error: File does not exist.", is_error=True)
    script = script.call(
        "Bash",
        {"command": "cat gone.txt there.txt"},
        "Exit code 1\ncat: gone.txt: No such file or directory\nhere",
        is_error=True,
    )
    assert [line for _, line in file_lines(actions_of(script.turns))] == ["Only read: `there.txt`"]


def test_files_are_listed_below_their_common_folder_changed_ones_first() -> None:
    script = Script()
    for name in ("a", "b", "c"):
        script.call("Read", {"file_path": f"/srv/app/src/{name}.py"}, "text")
    script.call("Edit", {"file_path": "/srv/app/src/b.py"}, "ok")
    lines = [line for _, line in file_lines(actions_of(script.turns))]
    assert lines == ["Below `/srv/app/src/`:", "`b.py`: edited, read", "Only read: `c.py`, `a.py`"]


def test_lines_of_an_earlier_summary_are_read_back() -> None:
    before = ["Below `/srv/app/src/`:", "`b.py`: edited, read (Loan)", "Only read: `c.py`, `a.py`"]
    assert [line for _, line in file_lines([], before)] == before


def test_a_deleted_file_is_only_deleted() -> None:
    script = Script().call("Edit", {"file_path": "a.py"}, "ok").call("Bash", {"command": "rm a.py"}, "")
    assert [line for _, line in file_lines(actions_of(script.turns))] == ["`a.py`: deleted"]


def lines_of(*commands: str) -> list[str]:
    script = Script()
    for command in commands:
        script.call("Bash", {"command": command}, "")
    return [line for _, line in file_lines(actions_of(script.turns))]


def test_a_backup_is_a_note_on_its_file() -> None:
    assert lines_of("sed -i s/a/b/ src/a.py", "cp src/a.py src/a.py.bak", "rm src/a.py.bak") == [
        "`src/a.py`: edited, read (backup in src/a.py.bak)"
    ]


@pytest.mark.parametrize("back", ["cp src/a.py.bak src/a.py", "mv src/a.py.bak src/a.py"])
def test_a_file_that_was_restored_from_its_backup_says_so(back: str) -> None:
    (line,) = lines_of("cp src/a.py src/a.py.bak", "sed -i s/a/b/ src/a.py", back)
    assert line == "`src/a.py`: edited, read (backup in src/a.py.bak, restored from its backup)"


def test_a_copy_under_another_name_is_a_file_of_its_own() -> None:
    assert "`src/b.py`: created (copy of src/a.py)" in lines_of("cp src/a.py src/b.py")


SCRIPT = "cat > fix.py <<'EOF'\npath = 'src/a.py'\ntext = open(path).read()\nwith open(path, 'w') as file:\n  ...\nEOF"


def test_a_file_that_a_script_changes_is_changed_when_the_script_runs() -> None:
    assert lines_of(SCRIPT) == ["`fix.py`: created"]
    assert "`src/a.py`: edited" in lines_of(SCRIPT, "python fix.py")
    assert "`src/a.py`: edited" in lines_of("python - <<'EOF'\nopen('src/a.py', 'w').write('x')\nEOF")
    assert "`src/a.py`: edited" in lines_of("python -c \"open('src/a.py', 'w').write('x')\"")


def test_a_file_that_is_committed_by_name_was_changed_by_whoever_it_was() -> None:
    script = Script().call("Read", {"file_path": "/w/src/loans.py"}, "class Loan:")
    script.call("Read", {"file_path": "/w/src/fines.py"}, "FINE = 3")
    script.call(
        "Bash", {"command": "git add src/loans.py README.md . && git commit -m 'Lend copies'"}, "2 files changed"
    )
    lines = [line for _, line in file_lines(actions_of(script.turns))]
    assert "`/w/src/loans.py`: edited, read" in lines
    assert "`/w/README.md`: edited" in lines
    assert "Only read: `/w/src/fines.py`" in lines


def test_a_created_file_is_still_created_in_the_next_summary() -> None:
    line = "`test_a.py`: created, edited, run, read"
    assert [text for _, text in file_lines([], [line])] == [line]


def test_older_changed_files_are_listed_by_path_and_read_back() -> None:
    lines = [f"`src/part_{number}.py`: edited (name_{number})" for number in range(30)]
    once = [text for _, text in file_lines([], lines)]
    again = [text for _, text in file_lines([], once)]
    assert once[0] == lines[0]
    assert [number for number in range(30) if f"`src/part_{number}.py`" not in "\n".join(again)] == []
    assert sum(line.startswith("Also changed: ") for line in again) == 3


def test_a_relative_path_is_the_file_below_the_common_folder_if_there_is_one() -> None:
    reads = [FileUse(f"/srv/app/{name}", "read") for name in ("a.py", "b.py", "tests/test_a.py")]
    script = Script()
    for use in reads:
        script.call("Read", {"file_path": use.path}, "1\tx")
    script.call("bash", {"command": "sed -i s/x/y/ tests/test_a.py && sed -i s/x/y/ other.py"}, "")
    lines = [line for _, line in file_lines(actions_of(script.turns))]
    assert "`tests/test_a.py`: edited, read" in lines
    assert "`other.py`: edited" in lines
    script = Script().call("Read", {"file_path": "/srv/docs/memo.md"}, "1\tx")
    script.call("bash", {"command": "sed -i s/x/y/ docs/memo.md && rm -f .git/index.lock"}, "")
    script.call("Read", {"file_path": "~/.claude/projects/-srv/5b1f/tool-results/toolu_1.txt"}, "1\tx")
    assert [line for _, line in file_lines(actions_of(script.turns))] == ["`/srv/docs/memo.md`: edited, read"]


def test_a_relative_path_is_below_the_folder_that_its_command_goes_to() -> None:
    script = Script()
    for name in ("one", "two", "three", "four", "five"):
        script.call("bash", {"command": f"cat /srv/app/lib/sql/{name}.py"}, "x")
    script.call("bash", {"command": "cd /srv/app && cp a.py b.py && cat > note.py <<'EOF'\nx = 1\nEOF"}, "")
    script.call("exec_command", {"cmd": "sed -i s/x/y/ run.py", "workdir": "/srv/other"}, "")
    script.call("bash", {"command": "cd /srv/app && python -c \"open('lib/sql/one.py', 'w')\""}, "")
    lines = [line for _, line in file_lines(actions_of(script.turns))]
    assert lines == [
        "Below `/srv/app/lib/sql/`:",
        "`one.py`: edited, read",
        "`/srv/other/run.py`: edited",
        "`/srv/app/note.py`: created",
        "`/srv/app/b.py`: created (copy of /srv/app/a.py)",
        "Only read: `five.py`, `four.py`, `three.py`, `two.py`",
    ]


def test_every_file_that_sed_edits_is_named_and_nothing_of_its_script() -> None:
    script = Script().call(
        "Bash", {"command": "cd /srv && sed -i '' 's/new(/new(a | b; c/g' client.go types.go; ls"}, ""
    )
    script.call(
        "Bash", {"command": "cd /srv && sed -i -e s/a/b/ -e 's/c/d/' main.go && git mv bridge internal/bridge"}, ""
    )
    lines = [line for _, line in file_lines(actions_of(script.turns))][1:]
    assert lines == [
        "`main.go`: edited",
        "`internal/bridge`: renamed (was /srv/bridge)",
        "`client.go`: edited",
        "`types.go`: edited",
    ]


def test_the_agents_own_scripts_are_one_line_behind_the_files_of_the_work() -> None:
    script = Script().call("Edit", {"file_path": "/srv/dates.py", "old_string": "a", "new_string": "b"}, "updated")
    for name in ("one.py", "two.py", "three.py"):
        script.call("bash", {"command": f"cat > {name} <<'EOF'\nprint()\nEOF\npython {name}"}, "")
    lines = [line for _, line in file_lines(actions_of(script.turns))]
    assert lines == ["`/srv/dates.py`: edited", "Created and run: `three.py`, `two.py`, `one.py`"]
    script = Script().call("bash", {"command": "sed -i s/a/b/ two.py"}, "")
    assert [line for _, line in file_lines(actions_of(script.turns), lines)] == [
        "`/srv/dates.py`: edited",
        "Created and run: `two.py`, `three.py`, `one.py`",
    ]
