"""Opaque tokens: the issuer is asked about each, seldom, and only by its own client; nobody else's token works."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from contextstash.configuration.api_key import CLIENT_SECRET
from contextstash.mcp.http import introspection, oauth_issuer
from contextstash.mcp.http.introspection import IntrospectionVerifier, IssuersClient
from contextstash.mcp.http.oauth_issuer import MAX_BYTES, IssuerError, OAuthOptions
from tests.support.authorization_server import CLIENT, SECRET, Issuer, authorization_server
from tests.support.command_line import CommandLine, failure_of
from tests.support.servers import answer, error, http_client, http_command, http_server, record, started_http_server

pytestmark = pytest.mark.processes

PUBLIC = "https://stash.example/mcp"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with authorization_server() as running:
        yield running


def verifier(issuer: Issuer, secret: str = SECRET, owner_claim: str = "sub") -> IntrospectionVerifier:
    return IntrospectionVerifier(OAuthOptions(issuer.url, PUBLIC, owner_claim), IssuersClient(CLIENT, secret))


async def test_an_opaque_token_gives_access_to_its_owners_sessions_within_its_scopes(
    issuer: Issuer, tmp_path: Path
) -> None:
    client = {"oauth_client_id": CLIENT, "oauth_client_secret": SECRET}
    with http_server(tmp_path / "s.db", public_url=PUBLIC, oauth_issuer=issuer.url, **client) as address:
        async with http_client(address, issuer.opaque_token("alice", PUBLIC, "openid read write")) as alice:
            await record(alice, "by-an-opaque-token")
        assert len(issuer.asked) == 1
        async with http_client(address, issuer.token("alice", PUBLIC, "read")) as signed:
            [line] = (await answer(signed, "list_sessions"))["sessions"]
            assert line["session_id"] == "by-an-opaque-token"
        async with http_client(address, issuer.opaque_token("alice", PUBLIC, "read")) as reading:
            text = await error(reading, "prune_tool_outputs", session_id="by-an-opaque-token")
            assert "needs the scope write; this token has: read" in text
        async with http_client(address, issuer.opaque_token("bob", PUBLIC, "read write")) as bob:
            assert (await answer(bob, "list_sessions"))["sessions"] == []
        asked = len(issuer.asked)
        refused = httpx2.post(address, json={}, headers={"authorization": "Bearer nobody-made-this"})
        assert (refused.status_code, len(issuer.asked)) == (401, asked + 1)


async def test_a_token_that_the_issuer_does_not_hold_for_good_or_for_this_server_is_refused(issuer: Issuer) -> None:
    wrong = {
        "not active": issuer.opaque_token("alice", PUBLIC, "read", active=False),
        "for another server": issuer.opaque_token("alice", "https://other.example/mcp", "read"),
        "for servers with names like this one": issuer.opaque_token(
            "alice", None, "read", aud=[f"{PUBLIC}2", "https://"]
        ),
        "for no server": issuer.opaque_token("alice", None, "read"),
        "of another issuer": issuer.opaque_token("alice", PUBLIC, "read", iss="https://login.evil.example"),
        "expired": issuer.opaque_token("alice", PUBLIC, "read", exp=time.time() - 120),
        "not valid yet": issuer.opaque_token("alice", PUBLIC, "read", nbf=time.time() + 600),
        "without an owner": issuer.opaque_token(None, PUBLIC, "read"),
        "of this machine's user": issuer.opaque_token("local", PUBLIC, "read"),
        "with a reserved owner": issuer.opaque_token("\x1fdeleted", PUBLIC, "read"),
        "bound to a key": issuer.opaque_token("alice", PUBLIC, "read", token_type="DPoP"),
        "bound to a certificate": issuer.opaque_token("alice", PUBLIC, "read", cnf={"x5t#S256": "bwcK0esc3ACC3DB2Y5"}),
        "to get others with": issuer.opaque_token("alice", PUBLIC, "read", token_type="refresh_token"),
    }
    tokens = verifier(issuer)
    for what, token in wrong.items():
        assert await tokens.verify_token(token) is None, what
    assert set(issuer.asked) == set(wrong.values())
    found = await tokens.verify_token(issuer.opaque_token("alice", None, "read", aud=[PUBLIC], exp=time.time() + 60))
    assert found is not None
    assert (found.subject, found.client_id, found.scopes) == ("alice", "editor", ["read"])
    await tokens.close()


@pytest.mark.parametrize("token", ["", "ü", "two words", "a\r\nx: y", "x" * 5_000])
async def test_the_issuer_is_not_asked_about_what_cannot_be_a_token(issuer: Issuer, token: str) -> None:
    assert await verifier(issuer).verify_token(token) is None
    assert issuer.asked == []


@pytest.mark.parametrize("methods", [None, ["client_secret_basic", "client_secret_post"], ["client_secret_post"]])
async def test_this_server_proves_itself_by_a_method_that_the_issuer_accepts(
    issuer: Issuer, methods: list[str] | None
) -> None:
    issuer.methods = methods
    tokens = verifier(issuer, owner_claim="username")
    found = await tokens.verify_token(issuer.opaque_token(None, PUBLIC, None, scp=["admin"], username="alice"))
    assert found is not None
    assert (found.subject, found.scopes) == ("alice", ["admin"])
    await tokens.close()


async def test_many_requests_of_a_token_are_one_question_and_a_revoked_one_is_refused_in_time(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, token, found = verifier(issuer), issuer.opaque_token("alice", PUBLIC, "read"), []

    async def verify() -> None:
        found.append(await tokens.verify_token(token))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(verify)
    assert {each.token if each else None for each in found} == {token}
    assert issuer.asked == [token]
    issuer.opaque[token] = {"active": False}
    assert await tokens.verify_token(token) is not None
    monkeypatch.setattr(introspection, "TRUSTED_SECONDS", 0)
    assert await tokens.verify_token(token) is None
    assert await tokens.verify_token(token) is None
    assert issuer.asked == [token] * 2
    await tokens.close()


@pytest.mark.parametrize(
    "said", [{}, {"active": "yes"}, [], "active", {"active": True, "aud": PUBLIC, "sub": "alice", "exp": "tomorrow"}]
)
async def test_an_answer_that_makes_no_sense_is_the_issuers_fault(issuer: Issuer, said: Any) -> None:
    tokens = verifier(issuer)
    issuer.opaque["odd"] = said
    with pytest.raises(IssuerError):
        await tokens.verify_token("odd")
    await tokens.close()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"exp": math.inf}, 200),
        ({"exp": math.nan}, 200),
        ({"exp": 10**400}, 200),
        ({"exp": [1]}, 200),
        ({"active": "true"}, 200),
        ({"padding": "x" * MAX_BYTES}, 200),
        ("a page of a filter in front of the issuer", 403),
        ({"error": "invalid_request"}, 400),
        ({}, 500),
    ],
)
async def test_what_is_odd_about_one_token_holds_up_no_other(issuer: Issuer, said: Any, status: int) -> None:
    tokens = verifier(issuer)
    odd = issuer.opaque_token("alice", PUBLIC, "read", **(said if isinstance(said, dict) else {}))
    issuer.statuses[odd] = status
    with pytest.raises(IssuerError):
        await tokens.verify_token(odd)
    assert await tokens.verify_token(issuer.opaque_token("bob", PUBLIC, "read")) is not None
    await tokens.close()


async def test_an_issuer_that_sends_a_byte_now_and_then_is_not_waited_for(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth_issuer, "FETCH_SECONDS", 0.2)
    tokens = verifier(issuer)
    issuer.slow.add("slow")
    with anyio.fail_after(9), pytest.raises(IssuerError):
        await tokens.verify_token("slow")
    await tokens.close()


async def test_claims_that_are_null_count_as_missing_and_names_are_kept_short(issuer: Issuer) -> None:
    tokens, token = verifier(issuer), "null"
    issuer.opaque[token] = {
        "active": True, "aud": PUBLIC, "sub": "alice", "exp": None, "nbf": None, "scope": None, "scp": ["read"],
        "client_id": "x" * 10_000,
    }  # fmt: skip
    found = await tokens.verify_token(token)
    assert found is not None
    assert (found.scopes, found.expires_at, len(found.client_id)) == (["read"], None, 200)
    await tokens.close()


async def test_the_log_says_why_an_active_token_is_refused(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", introspection.__name__)
    tokens, token = verifier(issuer), issuer.opaque_token("alice", "https://other.example/mcp", "read")
    assert await tokens.verify_token(token) is None
    assert await tokens.verify_token("made-up") is None
    [line] = [each.getMessage() for each in caplog.records if each.name == introspection.__name__]
    assert f"was refused: it was not issued for {PUBLIC} (aud)" in line
    assert token not in caplog.text
    await tokens.close()


async def test_metadata_are_found_on_a_site_that_has_a_page_at_every_address(issuer: Issuer) -> None:
    issuer.has_only_openid_metadata = True
    tokens = verifier(issuer)
    assert await tokens.verify_token(issuer.opaque_token("alice", PUBLIC, "read")) is not None
    await tokens.close()


async def test_the_log_names_the_issuer_that_the_metadata_are_of(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.names_itself = f"{issuer.url}/"
    tokens = verifier(issuer)
    with pytest.raises(IssuerError):
        await tokens.verify_token("opaque")
    assert f"its metadata name the issuer '{issuer.url}/', which --oauth-issuer must be" in caplog.text
    await tokens.close()


async def test_tokens_do_not_pass_a_proxy_of_the_environment_unencrypted(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    tokens = verifier(issuer)
    assert await tokens.verify_token(issuer.opaque_token("alice", PUBLIC, "read")) is not None
    await tokens.close()


async def test_what_goes_wrong_is_logged_once_without_the_token_or_the_secret(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens, token = verifier(issuer, secret="wrong-secret"), issuer.opaque_token("alice", PUBLIC, "read")
    for _ in range(3):
        with pytest.raises(IssuerError):
            await tokens.verify_token(token)
    assert issuer.asked == [token]
    [line] = [each.getMessage() for each in caplog.records if each.name == introspection.__name__]
    assert f"{issuer.url} cannot be asked (it refuses this server's client id or secret)" in line
    assert not any(secret in caplog.text for secret in (token, "wrong-secret"))
    await tokens.close()


async def test_an_issuer_that_is_down_is_an_error_for_later(issuer: Issuer, tmp_path: Path) -> None:
    with authorization_server() as gone:
        url = gone.url
    client: dict[str, Any] = {"oauth_client_id": CLIENT, "oauth_client_secret": SECRET}
    command = http_command(tmp_path / "s.db", public_url=PUBLIC, oauth_issuer=url, **client)
    with started_http_server(command) as (process, address):
        for _ in range(3):
            reply = httpx2.post(address, json={}, headers={"authorization": "Bearer opaque-0"})
            assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
            assert url not in reply.text
        process.terminate()
        assert process.stderr is not None
        [line] = [line for line in process.stderr if "tokens:" not in line and "the token for" not in line]
        assert f"{url} cannot be asked (ConnectError" in line


async def test_made_up_tokens_do_not_flood_the_issuer(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "STRANGERS_A_SECOND", 0.01)
    tokens, refused = verifier(issuer), 0
    for number in range(20):
        try:
            assert await tokens.verify_token(f"made-up-{number}") is None
        except IssuerError:
            refused += 1
    assert (len(issuer.asked), refused) == (1, 19)
    await tokens.close()


async def test_a_token_that_was_valid_does_not_suffer_from_those_that_somebody_made_up(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, known = verifier(issuer), issuer.opaque_token("alice", PUBLIC, "read")
    assert await tokens.verify_token(known) is not None
    issuer.opaque["breaks"] = {}
    with pytest.raises(IssuerError):
        await tokens.verify_token("breaks")
    monkeypatch.setattr(introspection, "TRUSTED_SECONDS", 0)
    assert await tokens.verify_token(known) is not None
    assert issuer.asked == [known, "breaks", known]
    await tokens.close()


async def test_requests_that_wait_for_a_slow_issuer_leave_room_for_those_that_need_not(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "MAX_WAITING", 3)
    tokens, known = verifier(issuer), issuer.opaque_token("alice", PUBLIC, "read")
    assert await tokens.verify_token(known) is not None

    async def hang(_: str) -> Any:
        await anyio.sleep_forever()

    monkeypatch.setattr(tokens, "_asked", hang)
    async with anyio.create_task_group() as group:
        for made_up in ("same", "same", "other"):
            group.start_soon(tokens.verify_token, made_up)
        await anyio.wait_all_tasks_blocked()
        for made_up in ("same", "one-more"):
            with pytest.raises(IssuerError, match="Too many"):
                await tokens.verify_token(made_up)
        assert await tokens.verify_token(known) is not None
        group.cancel_scope.cancel()
    await tokens.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--oauth-client-id", "c"], "pass --oauth-issuer"),
        (["--oauth-issuer", "https://a", "--public-url", "https://b", "--oauth-client-id", "c"], CLIENT_SECRET),
        (["--oauth-client-secret-file", "nothing"], "--oauth-client-id"),
    ],
)
def test_a_client_without_its_secret_or_issuer_is_refused(tmp_path: Path, options: list[str], said: str) -> None:
    assert said in failure_of(CommandLine(tmp_path).run("serve", "--http", "127.0.0.1:0", *options))
