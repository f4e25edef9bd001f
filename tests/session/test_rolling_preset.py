"""The preset `rolling` by its numbers: 10 tool results; window - 16,384, else 8,000, else 50; 20,000 recent, else 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash.view.view import parts_of
from contextstash_storage.records import Call, Native
from tests.support.provider import Said, model_provider, refused
from tests.support.stashes import SESSION, reply, results, rounds, stash_at, user, valid_view, view

MODEL = "claude-haiku-4-5"


async def kinds(stash: Stash) -> list[str]:
    """What kind each thing in the view is."""
    snapshot = await stash.snapshot(SESSION)
    return [entry.kind for entry in snapshot.entries]


@pytest.mark.parametrize(("outputs", "archived"), [(9, 0), (10, 0), (11, 1), (12, 2)])
async def test_more_than_10_visible_tool_results_are_archived_oldest_first_with_a_digest_each(
    tmp_path: Path, outputs: int, archived: int
) -> None:
    natives = [user(40), *rounds([3_000] * outputs)]
    async with stash_at(tmp_path / "d.db", preset="rolling", automatic=True) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION, model=MODEL)
        shown = await valid_view(stash, "openai-chat")
        seen = await kinds(stash)
    digests = [native for native in shown if "digest of bash" in str(native["content"])]
    assert [native["role"] for native in digests] == ["user"] * archived
    assert all(len(native["content"]) <= 1_000 for native in digests)
    assert seen.count("tool_result_archived") == seen.count("tool_summary") == archived
    assert [len(text) < 100 for text in results(shown)] == [True] * archived + [False] * (outputs - archived)


async def test_one_by_one_as_a_session_grows_an_output_more_archives_one_more(tmp_path: Path) -> None:
    natives = [user(40), *rounds([3_000] * 14)]
    async with stash_at(tmp_path / "g.db", preset="rolling", automatic=True) as stash:
        for end in range(1, len(natives) + 1):
            await stash.record_messages(natives[:end], whole=True, session_id=SESSION, model=MODEL)
            await valid_view(stash, "openai-chat")
            assert (await kinds(stash)).count("tool_result") <= 10
        assert (await kinds(stash)).count("tool_summary") == 4


async def test_a_request_that_leaves_messages_out_leaves_no_result_without_its_call(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "l.db", preset="rolling", automatic=True) as stash:
        for each in [user(40), *rounds([800] * 20)]:
            await stash.record_messages([each], session_id=SESSION, model=MODEL)
        for budget in range(200, 2_000, 40):
            shown = await stash.read_context(SESSION, budget=budget)
            assert "no longer shown" not in str(shown.messages)


async def test_an_archived_result_is_hidden_from_the_agent_and_not_from_the_user(tmp_path: Path) -> None:
    natives = [user(40), *rounds([3_000] * 11)]
    async with stash_at(tmp_path / "k.db", preset="rolling", automatic=True) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION, model=MODEL)
        lines = (await stash.read_messages(SESSION)).messages
    seen = [(line.kind, line.agent_visible, line.user_visible) for line in lines if line.role == "tool"]
    assert seen == [("tool_result_archived", False, True)] + [("tool_result", True, True)] * 10
    assert lines[2].message == natives[2]


async def test_with_a_model_each_digest_is_written_by_it_in_the_background(tmp_path: Path) -> None:
    natives = [user(40), *rounds([30_000] * 12)]
    with model_provider(Said(text="The build of part one passed. " * 100)) as provider:
        settings: dict[str, Any] = {"summarizer_base_url": provider.url, "window": 400_000}
        async with stash_at(tmp_path / "l.db", preset="rolling", automatic=True, api_key="k", **settings) as stash:
            await stash.record_messages(natives, whole=True, session_id=SESSION)
            await stash.idle()
            digests = [native for native in await view(stash) if "digest of bash" in str(native["content"])]
            calls = await stash.store.read_log(SESSION, Call)
            told = await stash.record_messages([*natives, reply(4)], whole=True, session_id=SESSION)
    assert [len(str(native["content"]).split("]\n", 1)[1]) for native in digests] == [1_200, 1_200]
    assert all("The build of part one passed." in str(native["content"]) for native in digests)
    assert [call.purpose for call in calls] == ["digest", "digest"]
    asked = provider.requests[0]["messages"][0]["content"]
    assert 11_000 < asked.count("0000") * 4 <= 12_000
    assert "Archived 2 tool outputs" in told.done[0]


async def test_the_digest_is_made_without_the_model_if_it_is_down(tmp_path: Path) -> None:
    natives = [user(40), *rounds([3_000] * 11)]
    with model_provider(refused("anthropic", "told to fail", 401, "authentication_error")) as provider:
        settings: dict[str, Any] = {"summarizer_base_url": provider.url, "window": 400_000}
        async with stash_at(tmp_path / "w.db", preset="rolling", automatic=True, api_key="k", **settings) as stash:
            await stash.record_messages(natives, whole=True, session_id=SESSION)
            await stash.idle()
            [digest] = [native for native in await view(stash) if "digest of bash" in str(native["content"])]
            [call] = await stash.store.read_log(SESSION, Call)
    assert len(digest["content"]) <= 1_000
    assert call.error


async def test_with_the_digest_off_nothing_is_archived_by_count(tmp_path: Path) -> None:
    natives = [user(40), *rounds([3_000] * 14)]
    async with stash_at(tmp_path / "x.db", preset="rolling", automatic=True, tool_digest="off") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION, model=MODEL)
        assert await view(stash) == natives


async def test_restoring_an_output_takes_its_digest_away_again(tmp_path: Path) -> None:
    natives = [user(40), *rounds([3_000] * 11)]
    async with stash_at(tmp_path / "r.db", preset="rolling", automatic=True) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION, model=MODEL)
        handle = (await stash.store.read_outputs(SESSION))[0].handle
        await stash.restore_outputs([handle], session_id=SESSION)
        assert await view(stash) == natives


def filled(tokens: int) -> list[Native]:
    """Twelve messages of so many tokens in all."""
    natives = [user(400) if place % 2 else reply(400) for place in range(11)]
    return [user(4 * (tokens - 1_100)), *natives]


@pytest.mark.parametrize(
    ("settings", "model", "limit"),
    [
        ({"window": 100_000}, None, 100_000 - 16_384),
        ({}, MODEL, 200_000 - 16_384),
        ({}, "nobody-knows-me", 8_000),
        ({}, None, 8_000),
        ({"fallback_tokens": 3_000}, None, 3_000),
    ],
    ids=["window as set", "window by model", "no window known", "no model named", "another fallback"],
)
async def test_it_compacts_if_the_effective_limit_is_reached(
    tmp_path: Path, settings: dict[str, Any], model: str | None, limit: int
) -> None:
    for tokens, summarized in ((limit - 1, False), (limit, True), (limit + 1, True)):
        async with stash_at(tmp_path / f"{tokens}.db", preset="rolling", automatic=True, **settings) as stash:
            answer = await stash.record_messages(filled(tokens), session_id=SESSION, model=model)
            assert any("Summarized" in line for line in answer.done) == summarized
            shown = await valid_view(stash, "openai-chat")
            assert shown[0]["content"].startswith("[Previous conversation summary]") == summarized


@pytest.mark.parametrize(("messages", "summarized"), [(49, False), (50, True), (51, True)])
async def test_without_any_token_limit_50_messages_decide(tmp_path: Path, messages: int, summarized: bool) -> None:
    natives = [(user, reply)[place % 2](4_000) for place in range(messages)]
    async with stash_at(tmp_path / "m.db", preset="rolling", automatic=True, fallback_tokens=None) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION)
    assert bool(answer.done) == summarized


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({"window": 200_000}, 20), ({"window": 46_384}, 15), ({"window": 200_000, "compact_keep_tokens": 0}, 5)],
    ids=["20,000 tokens", "at most half of 30,000", "else 5 messages"],
)
async def test_a_compaction_keeps_20_000_recent_tokens(tmp_path: Path, settings: dict[str, Any], kept: int) -> None:
    natives = [(user, reply)[place % 2](4_000) for place in range(40)]
    async with stash_at(tmp_path / "k.db", preset="rolling", **settings) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        await stash.compact_session(SESSION, strategy="extractive")
        shown = await valid_view(stash, "openai-chat")
    assert shown[1:] == natives[-kept:]
    assert shown[0]["content"].startswith("[Previous conversation summary]")


async def test_a_compaction_archives_recent_results_beyond_10_under_one_digest(tmp_path: Path) -> None:
    natives = [user(4_000), reply(4_000), *[(user, reply)[place % 2](4_000) for place in range(20)]]
    natives += rounds([400] * 13)
    async with stash_at(tmp_path / "c.db", preset="rolling", window=200_000) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        await stash.compact_session(SESSION, strategy="extractive")
        shown = await valid_view(stash, "openai-chat")
        seen = await kinds(stash)
    [digest] = [native for native in shown if str(native["content"]).startswith("[Compaction tool digest]")]
    assert digest["role"] == "user"
    assert digest["content"].count("out_") == 3
    assert (seen.count("tool_result_archived"), seen.count("tool_summary")) == (3, 1)


@pytest.mark.parametrize(("characters", "tokens"), [(3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
async def test_it_counts_characters_by_four_rounded_up_after_the_last_report(
    tmp_path: Path, characters: int, tokens: int
) -> None:
    async with stash_at(tmp_path / "u.db", preset="rolling") as stash:
        await stash.record_messages([user(characters)], session_id=SESSION, model=MODEL)
        assert (await stash.estimate_context(SESSION)).tokens == tokens
        usage = {"input_tokens": 5_000, "output_tokens": 200}
        await stash.record_messages([reply(40)], session_id=SESSION, usage=usage)
        await stash.record_messages([user(characters)], session_id=SESSION)
        assert (await stash.estimate_context(SESSION)).tokens == 5_200 + tokens


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("x\n" * 2_000, True),
        ("x\n" * 2_001, False),
        ("x" * 51_200, True),
        ("x" * 51_201, False),
        ("é" * 25_600, True),
        ("é" * 25_601, False),
    ],
    ids=["2,000 lines", "2,001 lines", "51,200 bytes", "51,201 bytes", "51,200 bytes of é", "51,202 bytes of é"],
)
async def test_one_output_is_cut_at_2_000_lines_or_51_200_bytes(tmp_path: Path, text: str, whole: bool) -> None:
    natives = [user(4), *rounds([4])]
    natives[-1] = {**natives[-1], "content": text}
    async with stash_at(tmp_path / "o.db", preset="rolling", window=200_000) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = results(await view(stash))[0]
    assert (shown == text) == whole
    assert len(shown.encode()) <= 51_200


@pytest.mark.parametrize(("characters", "spilled"), [(204_800, False), (204_801, True)])
async def test_past_204_800_characters_only_a_preview_with_handle_and_checksum_is_shown(
    tmp_path: Path, characters: int, spilled: bool
) -> None:
    natives = [user(4), *rounds([characters])]
    async with stash_at(tmp_path / "s.db", preset="rolling", window=200_000) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        shown = results(await view(stash))[0]
        [output] = await stash.store.read_outputs(SESSION)
    assert (output.sha256 in shown) == spilled
    assert (output.handle in shown) or not spilled


async def test_a_digest_is_never_placed_among_messages_that_the_summary_hides(tmp_path: Path) -> None:
    natives = [user(400), reply(400), user(400), *rounds([160] * 3)]
    calls = natives[3::2]
    together = {**calls[0], "tool_calls": [call for native in calls for call in native["tool_calls"]]}
    natives = [*natives[:3], together, *natives[4::2][:2]]
    settings: dict[str, Any] = {"prune_at_results": 1, "compact_keep_tokens": 120, "window": 40_000}
    async with stash_at(tmp_path / "h.db", preset="rolling", **settings) as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION)
        assert (await stash.compact_session(SESSION, summary="What was done so far, told in few words.")).compacted
        snapshot = await stash.snapshot(SESSION)
        counters = snapshot.session.counters
        await valid_view(stash, "openai-chat")
    assert counters.parts == {part: tokens for part, tokens in parts_of(snapshot.entries).items() if tokens}
    assert counters.view_messages == len(snapshot.entries)
