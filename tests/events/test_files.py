"""Which files a tool call used, for the tools of common agents and for shell commands."""

from __future__ import annotations

import pytest

from contextstash.events.calls import GO_TO, calls_of
from contextstash.events.files import file_uses
from contextstash.events.turns import FileUse
from contextstash.handoff.file_pieces import known_files
from tests.support.turns import Script, Section, extract_summary, quarter, read_summary

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


def lines_in(script: Script) -> list[str]:
    text = extract_summary(script.turns, max_tokens=4_000, count=quarter)
    return [line.split(": + ")[0] for line in read_summary(text).get(Section.FILES, [])]


def uses_of(tool: str, arguments: dict[str, object] | str) -> list[FileUse]:
    (call,) = calls_of(Script().call(tool, arguments, "ok").turns)
    return file_uses(call)


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("Read", {"file_path": "a.py"}, [FileUse("a.py", "read")]),
        ("Write", {"file_path": "a.py", "content": "class Loan:"}, [FileUse("a.py", "created")]),
        ("Edit", {"file_path": "a.py", "old_string": "f(x)", "new_string": "total_fine = 1"},
         [FileUse("a.py", "edited")]),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, [FileUse("a.py", "read")]),
        ("str_replace_editor", {"command": "create", "path": "a.py"}, [FileUse("a.py", "created")]),
        ("delete_file", {"path": "a.py"}, [FileUse("a.py", "deleted")]),
        ("apply_patch", PATCH, [
            FileUse("src/app.py", "edited"),
            FileUse("src/lend.py", "created"),
            FileUse("src/old.py", "deleted"),
        ]),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}EOF"]}, [
            FileUse("src/app.py", "edited"),
            FileUse("src/lend.py", "created"),
            FileUse("src/old.py", "deleted"),
        ]),
        ("Bash", {"command": "cat > a.py <<'EOF'\ndef f():\n  rm(x) > y.txt\nEOF\npython a.py"},
         [FileUse("a.py", "created"), FileUse("a.py", "run")]),
        ("Bash", {"command": "sed -i 's/a/b/' src/a.py && sed -n '1,9p' b.py"},
         [FileUse("src/a.py", "edited"), FileUse("b.py", "read")]),
        ("Bash", {"command": "cd x; git rm --cached c.py; git mv a.py b.py; rm -rf build 2>/dev/null"},
         [FileUse("x/b.py", "renamed", was="x/a.py"), FileUse("x/build", "deleted")]),
        ("Bash", {"command": "jq '.[] | select(.id > 7)' data.json"}, []),
        ("get_order", {"order_id": "7"}, []),
    ],
)  # fmt: skip
def test_a_call_uses_these_files(tool: str, arguments: dict[str, object] | str, expected: list[FileUse]) -> None:
    assert uses_of(tool, arguments) == expected


@pytest.mark.parametrize(
    ("tool", "arguments", "output", "is_error", "told"),
    [
        ("Bash", {"command": "sed -i s/a/b/ /a.py; cat c.py"}, "Exit code 2\nfailed", True, ["`/a.py`: edited"]),
        ("Bash", {"command": "echo > b.py && python b.py"}, "Exit code 2\nfailed", True, ["`b.py`: created, run"]),
        ("Bash", {"command": "sed -i s/a/b/ /a.py"}, "Exit code 2\nsed: can't read /a.py: No such file", True, []),
        ("Bash", {"command": "sed -i s/a/b/ a.py && pytest && rm b.py"}, "Exit code 1\n", True, ["`a.py`: edited"]),
        ("Bash", {"command": "cat > a.py <<E\nE\nsh a.sh && rm b.py"}, "Exit code 1\n", False, ["`a.py`: created"]),
        ("Edit", {"file_path": "a.py"}, "String to replace not found", True, []),
        ("Read", {"file_path": "gone.py"}, "Error: File does not exist.", True, []),
        ("Bash", {"command": "cat gone.txt there.txt"},
         "Exit code 1\ncat: gone.txt: No such file or directory\nhere", True, ["Also read: `there.txt`"]),
        ("Bash", {"command": "cat > /srv/a.py <<'EOF'\nnew = 1\nEOF"}, "bash: /srv/a.py: Permission denied", True, []),
        ("Bash", {"command": "cat > /srv/a.py <<'EOF'\nnew = 1\nEOF"}, "bash: /srv/a.py: Permission denied", False, []),
        ("Bash", {"command": "echo 1 > a.txt; echo 2 > /b.txt"}, "bash: /b.txt: Read-only file system", False,
         ["`a.txt`: created"]),
    ],
)  # fmt: skip
def test_a_file_that_a_call_did_not_reach_was_not_used(
    tool: str, arguments: dict[str, object], output: str, is_error: bool, told: list[str]
) -> None:
    script = Script().call(tool, arguments, output, is_error=is_error)
    assert lines_in(script) == told
    assert known_files(script.turns) == []


def lines_of(*commands: str) -> list[str]:
    script = Script()
    for command in commands:
        script.call("Bash", {"command": command}, "")
    return lines_in(script)


SCRIPT = "cat > fix.py <<'EOF'\npath = 'src/a.py'\ntext = open(path).read()\nwith open(path, 'w') as file:\n  ...\nEOF"

EDIT = "sed -i s/x/y/ /srv/a.py"


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ([SCRIPT], ["`fix.py`: created"]),
        (["python - <<'EOF'\nopen('src/a.py', 'w').write('x')\nEOF"], ["`src/a.py`: edited"]),
        ([EDIT, "rm /srv/a.py"], ["Deleted: /srv/a.py"]),
        (["cd /srv && sed -i -e s/a/b/ -e 's/c/d/' main.go && git mv bridge internal/b"],
         ["`/srv/internal/b`: renamed (was /srv/bridge)", "`/srv/main.go`: edited"]),
        (["cd /srv/app && cp a.py b.py"], ["`/srv/app/b.py`: created"]),
        (["cd /srv && git checkout main -- a.py && git restore b.py && git restore --source main c.py"],
         ["`/srv/c.py`: edited", "`/srv/b.py`: restored", "`/srv/a.py`: edited"]),
        ([EDIT, "cd /srv && git add a.py b.py docs"], ["`/srv/b.py`: git add", "`/srv/a.py`: edited"]),
        ([EDIT, "cd /srv && git checkout -- a.py && git checkout release/1.2; git restore --staged c.py"],
         ["`/srv/a.py`: restored"]),
        (["cd /srv && git checkout main -- a.py && git restore --source=HEAD~3 b.py && git restore c.py"],
         ["`/srv/c.py`: restored", "`/srv/b.py`: edited", "`/srv/a.py`: edited"]),
    ],
)  # fmt: skip
def test_the_files_that_commands_changed_are_told_as_they_stand(commands: list[str], told: list[str]) -> None:
    assert lines_of(*commands) == told


def test_paths_are_told_from_the_folder_in_which_the_session_works() -> None:
    script = Script()
    for name in ("a", "b"):
        script.call("Read", {"file_path": f"/srv/app/src/{name}.py"}, "text")
    script.call("Edit", {"file_path": "/srv/app/src/b.py"}, "ok").call("Grep", {}, "src/a.py:1: x\nsrc/b.py:1: x")
    assert lines_in(script) == ["Folder of the paths below: `/srv/app/`", "`src/b.py`: edited", "Also read: `src/a.py`"]


@pytest.mark.timeout(20)
def test_a_command_of_blanks_is_read_in_one_pass() -> None:
    assert GO_TO.match("cd" + " " * 20_000) is None
