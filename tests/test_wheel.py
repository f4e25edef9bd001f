"""The built wheel alone, installed into a fresh environment, is the whole program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from contextstash.mcp.stdio import round_trip

pytestmark = [pytest.mark.slow, pytest.mark.processes]

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel's environment. Its libraries are those of the tests, without the checkout itself: a path
    file of another environment is not followed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir"]
    build = ["uv", "build", "--wheel", "--out-dir"] if shutil.which("uv") else pip
    built = subprocess.run([*build, str(folder), str(ROOT)], capture_output=True, text=True, timeout=240)
    if built.returncode:
        pytest.skip(f"no wheel can be built here, it needs hatchling: {built.stderr[-200:]}")
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=os.name != "nt")
    scripts = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    site = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    (Path(site.strip()) / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return scripts / "contextstash"


def run(command: Path, home: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "PATH": os.defpath, "XDG_CONFIG_HOME": str(home), "PYTHONUTF8": "1"}
    return subprocess.run(
        [command, *arguments], input=typed, env=environment, cwd=home, capture_output=True, text=True, timeout=120
    )


def test_it_runs_from_its_own_environment_and_shows_the_demonstration(command: Path, tmp_path: Path) -> None:
    assert run(command, tmp_path, "--version").stdout.startswith("contextstash ")
    place = run(command.with_name("python"), tmp_path, "-c", "import contextstash; print(contextstash.__file__)")
    assert place.stdout.startswith(str(command.parents[1])), place.stderr
    demo = run(command, tmp_path, "demo")
    assert (demo.returncode, "get_archived_output" in demo.stdout) == (0, True), demo.stderr


async def test_it_serves_its_tools(command: Path, tmp_path: Path) -> None:
    tools, tokens = await round_trip([str(command), "serve", "--db", str(tmp_path / "sessions.db")], 60)
    assert tools >= 8
    assert tokens > 0


def test_what_install_writes_are_absolute_commands_that_run_elsewhere(command: Path, tmp_path: Path) -> None:
    done = run(command, tmp_path, "install", "codex", "--yes")
    assert done.returncode == 0, done.stderr
    server = tomllib.loads((tmp_path / ".codex" / "config.toml").read_text())["mcp_servers"]["contextstash"]
    assert server["command"] == str(command)
    settings = json.loads((tmp_path / ".codex" / "hooks.json").read_text())
    lines = {hook["command"] for groups in settings["hooks"].values() for each in groups for hook in each["hooks"]}
    parts = {f"{command} hook codex --part {number}/3" for number in (1, 2, 3)}
    assert lines == {f"{command} hook codex", *parts}
    event = json.dumps({"hook_event_name": "SessionStart", "source": "startup", "session_id": "s", "cwd": "/"})
    for line in lines:
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run(line, shell=True, input=event, env=environment, cwd="/", capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert "Traceback" not in ran.stderr
