"""The pages in a real browser: links, widths, colour schemes, and hostile contents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contextstash.mcp.answers import TIMELINE
from contextstash.mcp.server import page as app_page
from tests.support.pages import Served, browser_page, needs_chromium
from tests.support.stashes import stash_at

pytestmark = [needs_chromium, pytest.mark.processes]


def follow(page: Any, what: str) -> None:
    """Click on a link or button, and wait for the page that it opens."""
    with page.expect_navigation():
        page.locator(what).first.click()


def test_everything_can_be_reached_by_clicking(served: Served) -> None:
    with browser_page() as page:
        page.goto(served.opening)
        follow(page, "a.row:has-text('Build everything')")
        assert page.locator("svg.chart polygon").count() >= 3
        assert page.locator("svg.chart .mark").count() == 2
        assert "summarized" in page.inner_text("main")
        follow(page, "a.button >> text=Messages")
        follow(page, "text=First")
        assert "What the model sees" in page.inner_text("main")
        page.locator(".covered summary").click()
        assert "Build everything." in page.locator(".covered details[open]").inner_text()
        page.goto(f"{served.address}/sessions/build/messages?first=100")
        follow(page, ".message:has(.badge.archive) .result h2 a")
        assert page.inner_text("h1").startswith("out_")
        assert "of the build" in page.inner_text("main > pre")
        follow(page, "text=Message")
        assert "make part" in page.inner_text("main")


SCHEMES = [("light", 1200), ("dark", 1200), ("light", 380), ("dark", 380)]
ADDRESSES = (
    "/",
    "/sessions/build",
    "/sessions/build/messages?first=0",
    "/sessions/build/messages?first=120",
    "/sessions/build/messages?message=0",
    "/search?q=build",
    "/search",
    "/costs",
)


@pytest.mark.parametrize(("scheme", "width"), SCHEMES)
def test_no_recorded_text_takes_over_a_page_or_widens_it(served: Served, scheme: str, width: int) -> None:
    with browser_page(color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        page.goto(served.opening)
        grounds = set()
        for address in ADDRESSES:
            page.goto(f"{served.address}{address}")
            assert page.title() != "taken"
            assert page.locator("main img, main script").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 1
        assert is_dark(grounds.pop()) == (scheme == "dark")


def is_dark(color: str) -> bool:
    return sum(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")) < 200


def test_the_app_in_the_chat_shows_the_result_of_the_tool(served: Served, database: Path) -> None:
    """A host as the specification of MCP Apps describes it: a sandboxed frame that communicates only by messages."""

    async def status() -> Any:
        async with stash_at(database, window=400_000) as stash:
            status = (await stash.context_status("build")).model_dump(mode="json")
            timeline = (await stash.timeline("build")).model_dump(mode="json")
            return {"content": [], "structuredContent": status, "_meta": {TIMELINE: timeline}}

    answer = asyncio.run(status())
    with browser_page(viewport={"width": 700, "height": 800}) as page:
        page.set_content(HOST)
        page.evaluate("([html, answer]) => start(html, answer)", [app_page(), answer])
        frame = page.frame_locator("iframe")
        frame.locator("text=usable tokens").wait_for()
        estimate = answer["structuredContent"]["estimate"]
        assert f"{estimate['percent']:g} %" in frame.locator("main").inner_text()
        assert frame.locator("svg polygon").count() == 6
        assert frame.locator("svg .mark").count() == 2
        frame.locator("button").click()
        frame.locator("text=usable tokens").wait_for()
        assert page.evaluate("calls") == [{"name": "context_status", "arguments": {"session_id": "build"}}]
        assert page.evaluate("sizes.at(-1).height") > 200


HOST = """<iframe sandbox="allow-scripts" width="680" height="700"></iframe><script>
var sizes = [], calls = [];
function start(html, answer) {
  const frame = document.querySelector("iframe");
  const send = (message) => frame.contentWindow.postMessage({jsonrpc: "2.0", ...message}, "*");
  addEventListener("message", ({source, data}) => {
    if (source !== frame.contentWindow) return;
    if (data.method === "ui/initialize") {
      const context = {theme: "dark"}, hostCapabilities = {serverTools: {}};
      send({id: data.id, result: {protocolVersion: "2026-01-26", hostCapabilities, hostContext: context}});
    } else if (data.method === "ui/notifications/initialized") {
      send({method: "ui/notifications/tool-result", params: answer});
    } else if (data.method === "ui/notifications/size-changed") {
      sizes.push(data.params);
    } else if (data.method === "tools/call") {
      calls.push(data.params);
      send({id: data.id, result: answer});
    }
  });
  frame.srcdoc = html;
}
</script>"""
