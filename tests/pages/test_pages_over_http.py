"""The pages over HTTP: access, escaping, pages of messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from contextstash.pages.app import Guard, build_ui
from tests.support.pages import SCRIPT, Served, pages_of
from tests.support.stashes import stash_at

pytestmark = pytest.mark.processes


@contextmanager
def opened(served: Served) -> Iterator[httpx2.Client]:
    """A client that has opened the pages."""
    with httpx2.Client(base_url=served.address, follow_redirects=True, timeout=60) as client:
        assert client.get(served.opening).status_code == 200
        yield client


@pytest.fixture
def client(served: Served) -> Iterator[httpx2.Client]:
    with opened(served) as client:
        yield client


PAGES = (
    "/",
    "/sessions/build",
    "/sessions/build/messages",
    "/sessions/build/messages?first=0",
    "/sessions/build/messages?message=0",
    "/sessions/build/messages?message=8",
    "/search?q=build",
    "/search?q=%3Cscript%3E",
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_escapes_every_text_and_has_a_strict_policy(client: httpx2.Client, page: str) -> None:
    answer = client.get(page)
    assert answer.status_code == 200
    assert SCRIPT not in answer.text
    assert "<img" not in answer.text
    assert set(re.findall(r"<script[^>]*>", answer.text)) <= {'<script src="/static/chart.js" defer>'}
    assert " style=" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.text) < 1_300_000


def test_without_the_token_nothing_is_shown(served: Served) -> None:
    for page in (*PAGES, "/static/chart.js"):
        answer = httpx2.get(f"{served.address}{page}")
        assert answer.status_code == 401
        assert "build" not in answer.text
    assert httpx2.get(f"{served.address}/?token=wrong").status_code == 401


def test_the_token_leaves_the_address_and_a_strict_cookie_without_it_opens_the_pages(served: Served) -> None:
    """Browsers send a host's cookies to all its ports: another server there could keep the token."""
    answer, token = httpx2.get(served.opening), served.opening.partition("token=")[2]
    assert answer.status_code == 303
    assert "token" not in answer.headers["location"]
    cookie = answer.headers["set-cookie"]
    assert all(each in cookie.lower() for each in ("httponly", "samesite=strict", "path=/"))
    assert token not in cookie
    [(name, value)] = answer.cookies.items()
    assert httpx2.get(f"{served.address}/?token={value}").status_code == 401
    assert httpx2.get(served.address, headers={"cookie": f"{name}={token}"}).status_code == 401
    assert httpx2.get(served.address, headers={"cookie": f"{name}={value}"}).status_code == 200


def test_another_hosts_name_is_refused(client: httpx2.Client) -> None:
    assert client.get("/", headers={"host": "evil.example:80"}).status_code == 421


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("/sessions/none", "There is no session &#39;none&#39;"),
        ("/outputs/out_none", ""),
        ("/nowhere", ""),
        ("/sessions/build/messages?message=9999", ""),
    ],
)
def test_an_unknown_address_is_an_error_in_the_words_of_a_page(client: httpx2.Client, page: str, says: str) -> None:
    answer = client.get(page)
    assert answer.status_code == 404
    assert says in answer.text
    assert "list_sessions" not in answer.text
    assert "Traceback" not in answer.text
    assert "All sessions" in answer.text


def test_a_call_is_shown_by_its_arguments_and_what_the_model_sees_only_where_it_differs(client: httpx2.Client) -> None:
    assert ">command: make part" in client.get("/sessions/build/messages?first=120").text
    assert "The model sees" in client.get("/sessions/build/messages?first=100").text
    assert "more characters: open the whole text" in client.get("/sessions/build/messages?first=0").text
    assert client.get("/sessions/build/messages?message=8").text.count("x" * 1_000_000) == 1


def test_messages_are_shown_in_pages(client: httpx2.Client) -> None:
    whole = client.get("/sessions/build/messages?first=0").text
    assert "0 to 99 of 144" in whole
    assert whole.count("<article") == 100
    assert "144" in client.get("/sessions/build/messages?first=999999").text
    assert client.get("/sessions/build/messages?first=-5").status_code == 200


async def test_an_empty_database_says_how_to_record_a_session(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "e.db"):
        pass
    with pages_of(tmp_path / "e.db") as own, opened(own) as client:
        assert "contextstash import" in client.get("/").text
        assert "No model calls yet" in client.get("/costs").text
        assert "Enter words" in client.get("/search").text


async def test_a_session_and_the_costs_name_the_bill(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Go on"}, {"role": "assistant", "content": "Done."}]
    usage = {"input_tokens": 5_000, "output_tokens": 10}
    async with stash_at(tmp_path / "m.db") as stash:
        for model in ("claude-opus-4-5", "claude-haiku-4-5"):
            await stash.record_messages(said, session_id="mixed", model=model, usage=usage)
    with pages_of(tmp_path / "m.db") as own, opened(own) as client:
        costs = client.get("/costs").text
        assert costs.count("2 requests at list prices") == 2  # of the last days, and of all
        assert "2 requests at list prices" in client.get("/sessions/mixed").text


def test_an_error_of_contextstash_is_a_page_too() -> None:
    with TestClient(
        build_ui(None, "secret"),  # type: ignore[arg-type]
        base_url="http://127.0.0.1",
        raise_server_exceptions=False,
    ) as client:
        answer = client.get("/costs?token=secret")
    assert answer.status_code == 500
    assert "Something went wrong" in answer.text
    assert "AttributeError" not in answer.text
    assert "All sessions" in answer.text


async def any_page(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("a page")(scope, receive, send)


def browser(guard: Guard) -> httpx2.AsyncClient:
    """A browser with cookies of its own."""
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(guard), base_url="http://127.0.0.1")


async def test_the_address_for_the_browser_opens_the_pages_once() -> None:
    """Other users of the machine see it in the list of processes."""
    guard = Guard(any_page, "secret", once="single")
    async with browser(guard) as client:
        assert (await client.get("/?token=single")).status_code == 303
        assert (await client.get("/")).status_code == 200
    async with browser(guard) as other:
        assert (await other.get("/?token=single")).status_code == 401
        assert (await other.get("/?token=secret")).status_code == 303
