"""The pages in a real browser: links, widths, colour schemes, and hostile contents."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.pages import Served, browser_page, needs_chromium

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
