"""Secrets planted in recorded and in made sessions: kept whole for the model, readable nowhere else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash_storage.databases import open_store
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Event, Native
from tests.messages.natives import assistant, tool_result, tool_use, user
from tests.support.conversations import trace_files, trace_natives
from tests.support.planted_secrets import (
    KINDS,
    Planted,
    indexed_texts,
    is_indexed,
    made_session,
    planted,
    readable,
    with_secrets,
)
from tests.support.postgres_server import database_name, new_store_address, server
from tests.support.stashes import SESSION, all_handles, as_bytes, stash_at

MESSAGES = 250
"""Of a recorded session; some have thousands."""

PLANTED = 22
"""In each of 23 recorded sessions: 506 in all."""


SESSIONS = [
    ("anthropic", None),
    *((name, path) for name, path in trace_files() if path.parent.name in ("claude_code", "codex")),
]


@pytest.fixture(params=SESSIONS, ids=lambda param: getattr(param[1], "stem", "made"))
async def planted_session(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Stash, list[Planted], list[Native], Path]]:
    name, path = request.param
    natives = made_session() if path is None else trace_natives(name, path)[:MESSAGES]
    random = Random(path.stem if path else "made")  # the same secrets wherever the sessions lie
    secrets = random.sample(planted(random, 2 * len(KINDS)), PLANTED)
    natives = with_secrets(natives, secrets, random)
    database = tmp_path / "sessions.db"
    async with stash_at(database, window=60_000, output_tokens=None) as stash:
        await stash.record_messages(natives, session_id=SESSION, format=name)
        yield stash, secrets, natives, database


async def shown_texts(stash: Stash) -> AsyncIterator[tuple[str, str]]:
    """Everything that is shown of a session but the view and its outputs."""
    yield "titles", (await stash.list_sessions()).model_dump_json()
    yield "status", (await stash.context_status(SESSION)).model_dump_json()
    yield "hand-off", await stash.hand_off_text(SESSION, None) or ""
    yield "export", json.dumps([record async for record in stash.export_session(SESSION)])
    first: int | None = 0
    while first is not None:
        page = await stash.read_messages(SESSION, first=first, limit=100)
        yield "messages", json.dumps([line.model_dump(mode="json") for line in page.messages], ensure_ascii=False)
        beside = await stash.read_messages(SESSION, first=first, limit=100, shown=True)
        yield "pages", beside.model_dump_json()
        first = page.next_seq
    for handle in await all_handles(stash):
        yield "page of an output", (await stash.get_archived_output(handle, session_id=SESSION, masked=True)).text
    yield "events", json.dumps([event.model_dump(mode="json") for event in await stash.store.read_log(SESSION, Event)])


async def shown_once_compacted(stash: Stash, secrets: list[Planted]) -> list[tuple[str, str]]:
    """The same after a compaction, with its summary and what searches for the secrets show."""
    await stash.compact_session(SESSION, strategy="extractive")
    shown = [each async for each in shown_texts(stash)]
    shown.append(("summary", (await stash.get_summary(SESSION)).model_dump_json()))
    for secret in secrets:
        for word in (secret.secret, secret.text):
            hits = await stash.search_history(word, session_id=SESSION, limit=50)
            shown.append(("search", hits.model_dump_json()))
    return shown


async def test_no_planted_secret_can_be_read_or_found(
    planted_session: tuple[Stash, list[Planted], list[Native], Path],
) -> None:
    stash, secrets, _, database = planted_session
    shown = await shown_once_compacted(stash, secrets)
    words = indexed_texts(database)
    assert not [secret.kind for secret in secrets if is_indexed(secret, words)]
    shown.append(("index", words))
    found = {(secret.kind, where) for secret in secrets for where, text in shown if readable(secret, text)}
    assert not found


@pytest.mark.postgres
async def test_no_planted_secret_can_be_read_or_found_in_postgresql() -> None:
    random = Random(17)
    secrets = planted(random, 3 * len(KINDS))
    natives = with_secrets(made_session(), secrets, random)
    address = new_store_address()
    async with Stash(
        await open_store(address), settings={"automatic": False, "window": 60_000, "output_tokens": None}
    ) as stash:
        await stash.record_messages(natives, session_id=SESSION, format="anthropic")
        assert await stash.read_conversation(SESSION) == natives
        shown = await shown_once_compacted(stash, secrets)
        facts = await stash.store.read_messages(SESSION, bodies=False)
        shown += [("facts", message.model_dump_json()) for message in facts]
    rows = "SELECT string_agg(each::text, ' ') FROM {} AS each"
    words = server().sql(rows.format("(SELECT vector FROM words)"), database_name(address))
    assert "broken" in words
    kept = [("index", words)]
    for table in ("outputs", "log", "notes"):
        kept.append((table, server().sql(rows.format(table), database_name(address))))
    found = {(secret.kind, where) for secret in secrets for where, text in shown + kept if readable(secret, text)}
    assert not found
    assert not [secret.kind for secret in secrets if is_indexed(secret, words)]


async def test_what_the_model_is_given_is_as_it_was_recorded(
    planted_session: tuple[Stash, list[Planted], list[Native], Path],
) -> None:
    stash, _, natives, database = planted_session
    assert await stash.read_conversation(SESSION) == natives
    pruned = await stash.prune_tool_outputs(SESSION, keep_last=0, protect_tokens=0, minimum_tokens=0)
    if pruned.archived:
        await stash.restore_last(SESSION)
    viewed = (await stash.get_context(SESSION, budget=10_000_000)).messages
    async with stash_at(database.with_name("plain.db"), output_tokens=None, secrets="off") as plain:
        await plain.record_messages(natives, session_id=SESSION)
        assert as_bytes(viewed) == as_bytes((await plain.get_context(SESSION, budget=10_000_000)).messages)


LOG = [f"line {number} of the log" for number in range(3_000)]


def printed(command: Any, output: str) -> list[Native]:
    """A command that was run, and its output."""
    return [assistant({**tool_use("t"), "name": "Bash", "input": {"command": command}}), user(tool_result("t", output))]


async def test_secrets_that_the_user_wants_dropped_are_in_no_file(tmp_path: Path) -> None:
    random = Random(7)
    secrets = planted(random, 2 * len(KINDS))
    natives = with_secrets(made_session(), secrets, random)
    async with stash_at(tmp_path / "sessions.db", secrets="drop") as stash:
        first = await stash.record_messages(natives, session_id=SESSION, whole=True)
        again = await stash.record_messages(natives, session_id=SESSION, whole=True)
        masked = await stash.read_conversation(SESSION)
        third = await stash.record_messages(masked, session_id=SESSION, whole=True)
        assert (first.recorded, again.recorded, third.recorded) == (len(natives), 0, 0)
        stored = json.dumps(masked, ensure_ascii=False)
        assert not [secret.kind for secret in secrets if readable(secret, stored)]


async def test_a_session_cannot_switch_the_masks_off(stash: Stash) -> None:
    await stash.record_messages(made_session(), session_id=SESSION)
    with pytest.raises(BadInputError, match="no session can set it"):
        await stash.configure_session(SESSION, settings={"secrets": "off"})


async def test_what_a_prompt_calls_private_is_not_handed_on(stash: Stash) -> None:
    natives = made_session()
    natives[0] = {"role": "user", "content": "Fix the deployment. <private>We are bought by Acme on May 3.</private>"}
    await stash.record_messages(natives, session_id=SESSION)
    assert not (await stash.search_history("Acme", session_id=SESSION)).hits
    assert "Acme" not in (await stash.hand_off_text(SESSION, None) or "")
    assert "Acme" not in (await stash.list_sessions()).model_dump_json()
    result = await stash.compact_session(SESSION, strategy="extractive")
    assert result.compacted
    assert "Acme" not in json.dumps((await stash.get_context(SESSION)).messages)


async def test_a_secret_that_the_cut_of_a_main_argument_divides_is_in_no_index(tmp_path: Path) -> None:
    key = "AIzaofCYZclnouQjy1gw2ZkfZbzAv5TAUBjHkVx"
    command = f"{('go vet ./e2e && ' * 5)[:73]}\nkey = '{key}'  # local"  # 119 characters end within the key
    async with stash_at(tmp_path / "s.db") as stash:
        await stash.record_messages(printed(command, "ok"), session_id=SESSION)
    assert key[:20].lower() not in indexed_texts(tmp_path / "s.db").lower()


@pytest.mark.parametrize(
    "command", [["mysql", "-u", "root", "-pS3cr3tPa55w0rd9x", "db"], "mysql -u root\t-pS3cr3tPa55w0rd9x db"]
)
async def test_a_password_that_only_the_words_of_a_command_show_is_masked_in_it(tmp_path: Path, command: Any) -> None:
    async with stash_at(tmp_path / "s.db") as stash:
        await stash.record_messages(printed(command, "ok")[:1], session_id=SESSION)
        [block] = (await stash.store.read_messages(SESSION))[0].blocks
    assert block.argument == "mysql -u root -p‹masked›•••••••• db"


async def test_a_secret_is_masked_in_what_stands_for_an_output(tmp_path: Path) -> None:
    key = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hL3nR6"
    output = "\n".join([f"error: push with {key} was refused", *LOG])
    natives = [*printed("git push", output), {"role": "user", "content": "And now?"}]
    async with stash_at(tmp_path / "s.db", window=60_000, output_tokens=500) as stash:
        await stash.record_messages(natives, session_id=SESSION, format="anthropic")
        page = (await stash.read_messages(SESSION, shown=True)).model_dump_json()
        assert "of the log" in page
        assert key not in page
        # The model gets the beginning of the output as it was printed.
        assert key in json.dumps((await stash.get_context(SESSION)).messages)
        # A view that has no room for it says in one line what it was.
        fitted = await stash.get_context(SESSION, budget=160)
        assert key not in json.dumps(fitted.messages)


async def test_the_rest_of_a_key_that_a_cut_divides_is_masked_on_pages(tmp_path: Path) -> None:
    lines = [f"{'aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hL' * 2}" for _ in range(40)]
    key = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"])
    natives = printed("make", "\n".join([*LOG, key, "done"]))
    async with stash_at(tmp_path / "s.db", window=60_000, output_tokens=500) as stash:
        await stash.record_messages(natives, session_id=SESSION)
        assert lines[0] in json.dumps((await stash.get_context(SESSION)).messages)
        assert lines[0] not in (await stash.read_messages(SESSION, shown=True)).model_dump_json()
