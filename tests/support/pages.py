"""The browser pages served by a real process, a real Chromium that opens them, and a session of everything that they
show, what an attacker would have recorded included."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import environment_of
from tests.support.servers import ended_by_sigterm
from tests.support.stashes import called

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def chromium() -> str | None:
    """The Chromium of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


REQUIRED = bool(os.environ.get("REQUIRE_CHROMIUM"))
"""Whether the browser tests fail without a browser: set by `.ci/run` on machines that can install one."""

needs_chromium = pytest.mark.skipif(
    not REQUIRED and (chromium() is None or importlib.util.find_spec("playwright") is None),
    reason="no Chromium (or playwright) on this machine",
)


@dataclass(frozen=True)
class Served:
    """Where the pages are: `address` without an ending slash, and the address that opens them."""

    address: str
    opening: str


@contextmanager
def pages_of(database: Path) -> Iterator[Served]:
    """The pages of a database; on leaving, the process must end with exit code 0 by SIGTERM."""
    command = [sys.executable, "-m", "contextstash", "ui", "--no-open", "--port", "0", "--db", str(database)]
    folder = database.parent
    with ended_by_sigterm(command, env=environment_of(folder), cwd=folder) as opening:
        address, token, _ = opening.partition("/?token=")
        assert token
        yield Served(address, opening)


@contextmanager
def browser_page(**context: Any) -> Iterator[Any]:
    """A page of a headless Chromium; on leaving, nothing may have gone wrong in it."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        page = browser.new_context(**context).new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.extend([message.text] if message.type == "error" else []))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        yield page
        browser.close()
    assert wrong == []


SCRIPT = "<script>document.title = 'taken'; alert(1)</script><img src=x onerror=alert(2)>"
RIGHT_TO_LEFT = "\u202egnihtemos\u202c \u2067שלום\u2069"
LONG_LINE = "x" * 1_000_000


def messages() -> list[dict[str, Any]]:
    """A hundred and forty-four messages: talk, tool outputs, and what an attacker would say."""
    found: list[dict[str, Any]] = [{"role": "user", "content": f"Build everything. {SCRIPT} {RIGHT_TO_LEFT}"}]
    for number in range(46):
        text = "\n".join(f"{line}: part {number} of the build" for line in range(60))
        output = LONG_LINE if number == 2 else f"{SCRIPT}\n{text}" if number == 45 else text
        found += called(number, "Bash", {"command": f"make part{number} {SCRIPT[:8]}"}, output)
        found.append({"role": "assistant", "content": f"Part {number} is built."})
    return [*found, *({"role": "user", "content": f"Question {number}"} for number in range(5))]
