"""The visits of the pages: each owner has their own places, requests and browsers."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2

from contextstash.ui.browsers import Visit, Visits
from contextstash.ui.guard import MAX_PAGES_OF_OWNER, Guard
from contextstash.web.host_names import OwnHosts, hosts_behind
from contextstash.web.request_limits import BURST_SECONDS, DEFAULT_RATE_LIMIT, Buckets


def test_nobody_pushes_out_the_browsers_of_others() -> None:
    visits = Visits(most=3)
    visits.keep("hers", Visit("alice"))
    for number in range(10):
        visits.keep(f"his {number}", Visit("bob"))
    assert visits.get("hers") == Visit("alice")
    assert [number for number in range(10) if visits.get(f"his {number}")] == [7, 8, 9]


def test_the_browser_that_was_not_used_for_the_longest_time_is_forgotten() -> None:
    visits = Visits(most=2)
    visits.keep("first", Visit())
    visits.keep("second", Visit())
    assert visits.get("first")
    visits.keep("third", Visit())
    assert [name for name in ("first", "second", "third") if visits.get(name)] == ["first", "third"]


async def page(scope: Any, _: Any, send: Any) -> None:
    """A page, or one that is never ready."""
    if scope["path"] == "/ui/slow":
        await anyio.sleep_forever()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def browser(guard: Guard, host: str = "127.0.0.1") -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(guard), base_url=f"http://{host}")


def guarded() -> Guard:
    return Guard(page, "secret", "/ui", hosts_behind("https://stash.example/mcp"))


async def test_too_many_pages_a_second_are_refused() -> None:
    guard = guarded()
    guard._rate = Buckets(DEFAULT_RATE_LIMIT, clock=lambda: 0.0)  # on a busy machine the requests take seconds
    async with browser(guard) as client:
        assert (await client.get("/ui/?token=secret")).status_code == 303
        statuses = [(await client.get("/ui/")).status_code for _ in range(2 * DEFAULT_RATE_LIMIT + 100)]
    burst = int(DEFAULT_RATE_LIMIT * BURST_SECONDS)
    assert statuses[:burst] == [200] * burst
    assert statuses[-1] == 429


async def test_pages_that_take_long_leave_room_and_give_it_back() -> None:
    async with browser(guarded()) as client, anyio.create_task_group() as group:
        await client.get("/ui/?token=secret")
        for _ in range(MAX_PAGES_OF_OWNER):
            group.start_soon(client.get, "/ui/slow")
        await anyio.wait_all_tasks_blocked()
        refused = await client.get("/ui/")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        group.cancel_scope.cancel()
    async with browser(guarded()) as client:
        await client.get("/ui/?token=secret")
        assert (await client.get("/ui/")).status_code == 200


async def test_a_browser_and_a_client_that_writes_the_usual_port_are_one_host() -> None:
    guard = guarded()
    async with browser(guard, "stash.example") as client:
        entered = await client.get("/ui/?token=secret", headers={"host": "stash.example:443"})
        assert "secure" in entered.headers["set-cookie"].lower()
        cookie = entered.headers["set-cookie"].split(";")[0]
        for host in ("stash.example", "stash.example:443", "Stash.Example:80"):
            headers = {"host": host, "cookie": cookie, "origin": "https://stash.example"}
            assert (await client.post("/ui/", headers=headers)).status_code == 200
        refused = await client.post("/ui/", headers=headers | {"origin": "https://stash.example:8443"})
        assert refused.status_code == 403


async def test_the_address_for_the_browser_opens_the_pages_once() -> None:
    """Other users of the machine see it in the list of processes."""
    guard = Guard(page, "secret", "/ui", OwnHosts(), once="single")
    async with browser(guard, "127.0.0.1") as client:
        assert (await client.get("/ui/?token=single")).status_code == 303
        assert (await client.get("/ui/")).status_code == 200
    async with browser(guard, "127.0.0.1") as other:
        assert (await other.get("/ui/?token=single")).status_code == 401
        assert (await other.get("/ui/?token=secret")).status_code == 303
