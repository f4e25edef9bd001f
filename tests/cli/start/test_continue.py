"""`contextstash continue`: another client starts with the hand-off, in the session's folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, failure_of, write_transcript

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="the client of these tests is a script"),
]

OPTIONS = {"claude-code": [], "gemini": ["--prompt-interactive"], "codex": ["-c", "mcp_optional_startup_grace_ms=0"]}

CLIENT = """
import json, os, sys
json.dump({"arguments": sys.argv[1:], "folder": os.getcwd()}, open(os.environ["NOTED"], "w"))
raise SystemExit(7)
"""


@pytest.fixture
def environment(contextstash: CommandLine) -> dict[str, str]:
    """An environment in which each client is a script that notes how it was started."""
    programs = contextstash.folder / "bin"
    programs.mkdir()
    for name in ("claude", "codex", "gemini"):
        (programs / name).write_text(f"#!{sys.executable} -P\n{CLIENT}")
        (programs / name).chmod(0o700)
    return {"PATH": f"{programs}:/usr/bin:/bin", "NOTED": str(contextstash.folder / "noted.json")}


def recorded(contextstash: CommandLine) -> Path:
    """A session of Claude Code that ran in the folder `orchard`."""
    place = contextstash.folder / "orchard"
    place.mkdir()
    path = contextstash.folder / "5b1f6c1e-0000-4000-8000-000000000001.jsonl"
    write_transcript(path, outputs=6)
    path.write_text(path.read_text().replace("/srv/orchard", str(place)))
    contextstash.json("import", path)
    return path


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_the_client_gets_the_hand_off_in_the_sessions_folder(
    contextstash: CommandLine, environment: dict[str, str], client: str
) -> None:
    recorded(contextstash)
    done = contextstash.run("continue", client, "5b1f", environment=environment)
    assert done.returncode == 7, done.stderr
    noted = json.loads((contextstash.folder / "noted.json").read_text())
    assert noted["folder"] == str(contextstash.folder / "orchard")
    message = noted["arguments"][-1]
    assert "You must not change any of them" in message
    assert 'session_id "5b1f6c1e-0000-4000-8000-000000000001"' in message
    assert "out_" in message
    assert noted["arguments"][:-1] == OPTIONS[client]
    assert f"{client} cannot search the old session yet." in done.stderr


def test_what_the_client_wrote_since_is_handed_off_too(contextstash: CommandLine, environment: dict[str, str]) -> None:
    path = recorded(contextstash)
    lines = path.read_text().splitlines()
    added = json.loads(lines[1])
    added |= {"uuid": "later", "parentUuid": json.loads(lines[-1])["uuid"]}
    added["message"]["content"] = "Never prune the medlar before March."
    path.write_text("\n".join([*lines, json.dumps(added), ""]))
    done = contextstash.run("continue", "codex", "--print", environment=environment)
    assert done.stderr.startswith(
        f"Continuing session {path.stem} of claude-code, in {contextstash.folder / 'orchard'}."
    )
    assert "Never prune the medlar before March." in done.stdout


def test_a_session_whose_transcript_the_client_deleted_goes_on_here(
    contextstash: CommandLine, environment: dict[str, str]
) -> None:
    recorded(contextstash).unlink()
    done = contextstash.run("continue", "codex", "5b1f", environment=environment)
    assert done.returncode == 7
    assert "The client has deleted its transcript; the session is kept here." in done.stderr
    noted = json.loads((contextstash.folder / "noted.json").read_text())
    assert noted["folder"] == str(contextstash.folder)
    assert "You must not change any of them" in noted["arguments"][-1]


def test_a_session_whose_folder_is_gone_starts_here_and_says_so(
    contextstash: CommandLine, environment: dict[str, str]
) -> None:
    recorded(contextstash)
    (contextstash.folder / "orchard").rmdir()
    done = contextstash.run("continue", "codex", "5b1f", environment=environment)
    assert "is not known, or gone: starting here." in done.stderr
    assert json.loads((contextstash.folder / "noted.json").read_text())["folder"] == str(contextstash.folder)


def test_a_client_that_is_not_there_is_named(contextstash: CommandLine) -> None:
    recorded(contextstash)
    done = contextstash.run("continue", "gemini", environment={"PATH": "/nowhere"})
    assert failure_of(done) == "There is no program 'gemini' on the PATH."


def test_the_newest_session_of_this_folder_comes_before_a_newer_one_elsewhere(contextstash: CommandLine) -> None:
    path = recorded(contextstash)
    other = path.with_name("5b1f6c1e-0000-4000-8000-000000000002.jsonl")
    write_transcript(other, session=other.stem, outputs=2)
    other.write_text(other.read_text().replace("2026-03-03T", "2026-04-04T"))
    contextstash.json("import", other)
    assert f"session {other.stem} of" in contextstash.run("continue", "codex", "--print").stderr
    path.write_text(path.read_text().replace(str(contextstash.folder / "orchard"), str(contextstash.folder)))
    assert f"session {path.stem} of" in contextstash.run("continue", "codex", "--print").stderr
