"""`contextstash run` and `continue`: a client behind a proxy of its own, and a session that goes on in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contextstash.cli.client_commands import log_file
from contextstash.clients.install import is_configured
from contextstash.clients.proxied import launched_client
from contextstash_storage.errors import BadInputError
from tests.support.command_line import CommandLine, failure_of, write_transcript
from tests.support.proxies import CachingProvider, caching_provider, request_of, session

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="the client of these tests is a script"),
]

CLIENT = """
import json, os, sys, urllib.request
url, body = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true", open(sys.argv[1], "rb").read()
sessions = set()
for _ in range(2):
    with urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=60) as response:
        response.read()
        sessions.add(response.headers["x-contextstash-session"])
[session] = sessions
print(json.dumps({"database": os.environ["CONTEXTSTASH_DB"], "argument": sys.argv[2]}))
sys.exit(7)
"""

ONE_REQUEST = """
import os, sys, urllib.request
url, body = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true", open(sys.argv[1], "rb").read()
urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=60).read()
"""

HOLDS_THE_DATABASE = """
import subprocess, sys
hold = "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
hold += "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(3)"
held = subprocess.Popen([sys.executable, "-c", hold, sys.argv[2]], stdout=subprocess.PIPE)
held.stdout.readline()
"""


def run_client(
    folder: Path, script: str, provider: CachingProvider, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """`contextstash run` with a client that carries out a script, which gets the file of a request first."""
    body = folder / "body.json"
    body.write_text(json.dumps(request_of(session(2))), "utf-8")
    options = ["--upstream", provider.url, "--db", str(folder / "stash.db")]
    command = [sys.executable, "-m", "contextstash", "run", *options, script_at(folder, script), "--", str(body)]
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, env=environment)


def script_at(folder: Path, script: str) -> str:
    """The path of a client that carries out this script."""
    client = folder / "claude"
    client.write_text(f"#!{sys.executable}\n{script}", "utf-8")
    client.chmod(0o700)
    return str(client)


def said_by_run(folder: Path, script: str) -> str:
    """What `run` says beside a client whose script gets the database too."""
    with caching_provider() as provider:
        done = run_client(folder, script, provider, str(folder / "stash.db"))
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_client_goes_through_a_proxy_of_its_own_with_its_arguments_and_its_exit_code(tmp_path: Path) -> None:
    database = tmp_path / "stash.db"
    with caching_provider() as provider:
        done, resumed = (run_client(tmp_path, CLIENT, provider, "--resume") for _ in range(2))
    assert "Proxy: 2 requests, 0 edited" in done.stderr
    assert "Proxy: 4 requests, 0 edited" in resumed.stderr, "of the whole session, with the run before"
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout) == {"database": str(database), "argument": "--resume"}
    [listed] = CommandLine(tmp_path).json("sessions", "--db", database)["sessions"]
    assert listed["project"] == str(Path.cwd())
    assert [asked.data for asked in provider.asked] == [(tmp_path / "body.json").read_bytes()] * 4


def test_the_last_request_is_recorded_before_run_ends_however_busy_the_machine_is(tmp_path: Path) -> None:
    said = said_by_run(tmp_path, ONE_REQUEST + HOLDS_THE_DATABASE + ONE_REQUEST)
    assert "Proxy: 2 requests" in said


def test_requests_that_could_not_be_read_are_said_at_the_end(tmp_path: Path) -> None:
    odd = ONE_REQUEST.replace('open(sys.argv[1], "rb").read()', """b'{"messages": []}'""")
    assert "Could not be read, so neither recorded nor in the bill: 2 requests." in said_by_run(tmp_path, odd + odd)


@pytest.mark.slow
def test_what_could_not_be_recorded_is_said_at_the_end(tmp_path: Path) -> None:
    holding = HOLDS_THE_DATABASE.replace("sleep(3)", "sleep(60)")
    said = said_by_run(tmp_path, ONE_REQUEST + holding + ONE_REQUEST + ONE_REQUEST)
    assert "could not be recorded at once" in said
    assert str(tmp_path / "proxy.log") in said


def test_a_client_without_our_server_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    claude, file = launched_client("claude"), tmp_path / ".claude.json"
    assert not is_configured(claude)
    server: dict[str, object] = {"mcpServers": {"contextstash": {}}}
    for written, configured in (
        (json.dumps(server), True),
        (json.dumps({"projects": {str(tmp_path): server}}), True),  # as `claude mcp add` writes it
        (json.dumps({"projects": {"/srv/contextstash": {"mcpServers": {}}}}), False),
        ('{ "mcpServers": {}, // contextstash\n}', False),
    ):
        file.write_text(written)
        assert is_configured(claude) == configured, written


@pytest.mark.parametrize(
    ("upstream", "variables"),
    [
        (None, {"ANTHROPIC_BASE_URL"}),
        ("https://api.anthropic.com", {"ANTHROPIC_BASE_URL"}),
        ("https://api.openai.com/v1/", {"OPENAI_BASE_URL"}),
        ("http://127.0.0.1:4000", {"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"}),
    ],
)
def test_another_programs_key_for_one_provider_does_not_go_to_the_other(
    upstream: str | None, variables: set[str]
) -> None:
    proxied = launched_client("aider", upstream).proxied
    assert proxied is not None
    assert set(proxied.launch("http://127.0.0.1:1", ("aider",), None)[1]) == variables


def test_the_log_is_its_owners_alone_and_neither_a_link_nor_a_fifo(tmp_path: Path) -> None:
    log = tmp_path / "proxy.log"
    log.touch(mode=0o644)
    log_file(log).close()
    assert log.stat().st_mode & 0o777 == 0o600
    log.rename(tmp_path / "target")
    log.symlink_to(tmp_path / "target")
    with pytest.raises(BadInputError, match="Move it away"):
        log_file(log)
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(BadInputError, match="Move it away"):
        log_file(log)


PRINTS = """
import os, sys
print([os.environ.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW"), *sys.argv[1:]])
"""


@pytest.mark.parametrize("given", [["-p", "hello", "--window", "5"], ["--", "--window", "5"], []])
def test_what_stands_behind_the_client_is_for_the_client(tmp_path: Path, given: list[str]) -> None:
    options = ["--upstream", "http://127.0.0.1:9", "--window", "100k"]
    done = CommandLine(tmp_path).run("run", *options, script_at(tmp_path, PRINTS), *given)
    assert done.stdout == f"{['133000', *given[given[:1] == ['--'] :]]}\n", done.stderr


OPTIONS = {"claude-code": [], "gemini": ["--prompt-interactive"], "codex": ["-c", "mcp_optional_startup_grace_ms=0"]}

NOTING_CLIENT = """
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
        (programs / name).write_text(f"#!{sys.executable} -P\n{NOTING_CLIENT}")
        (programs / name).chmod(0o700)
    return {"PATH": f"{programs}:/usr/bin:/bin", "NOTED": str(contextstash.folder / "noted.json")}


def recorded(contextstash: CommandLine) -> Path:
    """A session of Claude Code that ran in the folder `orchard`."""
    place = contextstash.folder / "orchard"
    place.mkdir()
    path = contextstash.folder / "5b1f6c1e-0000-4000-8000-000000000001.jsonl"
    write_transcript(path, outputs=6)
    text = path.read_text().replace("You must", r"\u0000\ud800You must")  # no argument of a program holds these
    path.write_text(text.replace("/srv/orchard", str(place)))
    contextstash.json("import", path)
    return path


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_the_client_gets_the_hand_off_in_the_sessions_folder(
    contextstash: CommandLine, environment: dict[str, str], client: str
) -> None:
    recorded(contextstash)
    done = contextstash.run("continue", client.removesuffix("-code"), "5b1f", environment=environment)
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
