"""Draws the pictures of the README from the real program: `make pictures`. Needs a Chromium on this machine.

The terminal is `contextstash demo`, the page is that of the demonstration's session in a window too small for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from contextstash import open_stash_sync
from tests.support.command_line import printed_on_terminal

IMAGES = Path(__file__).parent / "images"
SESSION = Path(__file__).parents[1] / "server" / "contextstash" / "demo" / "session.jsonl"
WINDOW = 26_000
"""Tokens: the session has 33,000."""

COLUMNS = 112
STEPS = re.compile(r"^(?:2\. |\Z)", re.MULTILINE)
"""The README shows from the prune on to the end."""

FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Rich's own picture without its fonts, which a browser would load from elsewhere."""


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "demo.svg").write_text(terminal(demonstration()), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "sessions.db"
        fill(database)
        with served(database) as address:
            photograph(address)


def demonstration() -> str:
    """The prune, the compaction and the retrieval, with colours."""
    with tempfile.TemporaryDirectory() as folder:
        printed = printed_on_terminal(Path(folder) / "sessions.db", "demo", columns=COLUMNS)
    output = printed.decode().replace("\r\n", "\n")
    plain = Text.from_ansi(output).plain
    starts = [plain.count("\n", 0, found.start()) for found in STEPS.finditer(plain)]
    return "\n".join(output.splitlines()[starts[0] : starts[-1]]).rstrip() if starts else output


def terminal(output: str) -> str:
    """A terminal that shows this output, as SVG."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.from_ansi(output))
        return console.export_svg(title="contextstash demo", code_format=FORMAT, unique_id="demo")


def fill(database: Path) -> None:
    """Send the demonstration's session as an agent's loop does, in a window that is too small for it."""
    messages = [json.loads(line) for line in SESSION.read_text("utf-8").splitlines()]
    with open_stash_sync(database) as stash:
        session = stash.session("debug-the-web-service", window=WINDOW)
        for count, message in enumerate(messages, 1):
            if count == len(messages) or (messages[count]["role"] == "assistant" and message["role"] != "assistant"):
                session.request(messages[:count])


@contextmanager
def served(database: Path) -> Iterator[str]:
    """The address that opens the pages."""
    command = [sys.executable, "-m", "contextstash", "ui", "--no-open", "--port", "0", "--db", str(database)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            yield next(found[0] for line in process.stderr if (found := re.search(r"http://\S+", line)))
        finally:
            process.terminate()


def photograph(address: str) -> None:
    """The page of the session, 1280 pixels wide."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"))
        page = browser.new_page(viewport={"width": 1280, "height": 960})
        page.goto(address)
        page.locator("main a[href*='sessions/']").first.click()
        page.screenshot(path=IMAGES / "session.png")
        browser.close()


if __name__ == "__main__":
    main()
