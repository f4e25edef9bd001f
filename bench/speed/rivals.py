"""Other programs that do a part of the same work, each in an environment of its own, measured in the same run.

Each has a driver in `drivers/`: a program that reads messages as JSON lines and prints its milliseconds as JSON. One
that cannot be installed here is skipped, and the reason is printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .conversation import messages, queries

MESSAGES = 2_000
"""Of the conversation that each reduces to a window of 200,000 tokens: about twice that."""

SEARCHES = 60

INSTALL_SECONDS = 600
DRIVER_SECONDS = 300

DRIVERS = Path(__file__).parent / "drivers"
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Rival:
    """Packages of PyPI or npm, and the driver that uses them with one of these interpreters, or with Node."""

    name: str
    driver: str
    packages: tuple[str, ...]
    pythons: tuple[str, ...] = (sys.executable,)

    @property
    def is_npm(self) -> bool:
        return self.driver.endswith(".mjs")


RIVALS = (
    Rival("LangChain", "langchain_middleware.py", ("langchain", "tiktoken")),
    Rival("headroom", "headroom_compress.py", ("headroom-ai",)),
    Rival("OpenHands", "openhands_condenser.py", ("openhands-sdk",), ("python3.13", "python3.12")),
    Rival("context-mode", "context_mode.mjs", ("context-mode",)),
)

OURS = "contextstash.py"
"""The driver of the same work here, run in this environment."""


class UnavailableError(Exception):
    """A rival cannot be measured here; the message says why."""


def compared(folder: Path) -> dict[str, dict[str, float]]:
    """Milliseconds by the name of a program and of its work. Environments are made below `folder`, once."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "messages.jsonl"
    lines = [json.dumps(message) for message in islice(messages(MESSAGES + 2), MESSAGES + 2)]
    source.write_text("\n".join(lines), encoding="utf-8")
    wanted = folder / "queries.json"
    wanted.write_text(json.dumps(queries(SEARCHES)), encoding="utf-8")
    found = {"contextstash": _driven([sys.executable, str(DRIVERS / OURS)], source, wanted, folder)}
    for rival in RIVALS:
        try:
            found[rival.name] = _driven(_command(rival, folder), source, wanted, folder)
        except UnavailableError as error:
            print(f"{rival.name} is skipped: {error}", file=sys.stderr)
    return found


def rival_table(found: Mapping[str, Mapping[str, float]]) -> str:
    """The figures as a Markdown table, each with how many times ours it takes."""
    ours = found["contextstash"]
    rows = ["| work | contextstash, ms | another program | ms | times ours |", "| --- | ---: | --- | ---: | ---: |"]
    for work, base in ours.items():
        for name, figures in found.items():
            for label, value in figures.items():
                kind, _, how = label.partition(": ")
                if name != "contextstash" and kind == work:
                    shown = f"{name}, {how}" if how else name
                    rows.append(f"| {work} | {base:,.1f} | {shown} | {value:,.1f} | {value / base:.2g} |")
    return "\n".join(rows)


def _command(rival: Rival, folder: Path) -> list[str]:
    """The command of a rival's driver, in its environment. Raises UnavailableError if that cannot be made."""
    place = folder / rival.name
    driver = str(DRIVERS / rival.driver)
    if rival.is_npm:
        if not (place / "node_modules").exists():
            place.mkdir(exist_ok=True)
            _installed(["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", *rival.packages])
        return ["node", driver, str(place)]
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = place / "installed"
    if not done.exists():
        _installed([_interpreter(rival), "-m", "venv", str(place)])
        _installed([str(python), "-m", "pip", "install", "--quiet", *rival.packages])
        done.touch()
    return [str(python), driver]


def _interpreter(rival: Rival) -> str:
    """The first of a rival's interpreters that runs here. Raises UnavailableError if none does."""
    for python in rival.pythons:
        with suppress(OSError):
            if not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
                return python
    raise UnavailableError(f"it needs one of {', '.join(rival.pythons)}")


def _installed(command: Sequence[str]) -> None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"it cannot be installed here: {error}") from error
    if run.returncode:
        raise UnavailableError(f"it cannot be installed here: {_last_line(run.stderr)}")


def _driven(command: Sequence[str], source: Path, wanted: Path, folder: Path) -> dict[str, float]:
    environment = {**os.environ, "HOME": str(folder), "CONTEXTSTASH_SOURCES": str(REPOSITORY / "server")}
    try:
        run = subprocess.run(
            [*command, str(source), str(wanted)],
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"its driver failed: {error}") from error
    if run.returncode:
        raise UnavailableError(f"its driver failed: {_last_line(run.stderr)}")
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:300]
