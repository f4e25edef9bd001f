"""The laws of the design, over generated sessions always and over real ones where they lie beside the repository; and
that after any operations a session's counters match its view, and stripping takes nothing but thinking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from contextstash.messages.detection import get_format
from contextstash.messages.rules import render, safe_cuts
from contextstash.reduce.prune import prune_oldest
from contextstash.session.edit import stripping_of
from contextstash.stash import Stash
from contextstash.window.settings import PRESETS
from contextstash_storage.records import Edit, Native, Replacement
from tests.support.conversations import FORMAT_NAMES, PIXEL, as_messages, conversations, trace_files, trace_natives
from tests.support.effort import examples
from tests.support.provider_rules import violations
from tests.support.stashes import (
    SESSION,
    all_handles,
    as_bytes,
    counters_in_step,
    history,
    stash_at,
    valid_view,
    view,
    whole_output,
)

few = settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))


async def hold_laws(path: Path, natives: Sequence[Native], format_name: str, budget: int, window: int = 2_000) -> None:
    """Record, prune, compact, retrieve, restore: laws 1 to 5 and 7 at every step."""
    # Outputs are recorded whole, so that restoring all handles gives the first view.
    async with stash_at(path, window=max(window, budget), output_tokens=None) as stash:
        answer = await stash.record_messages(natives, whole=True, session_id=SESSION, format=format_name)
        assert answer.recorded == len(natives)
        assert (await stash.record_messages(natives, whole=True, session_id=SESSION)).recorded == 0
        untouched = await valid_view(stash, format_name)

        pruned = await stash.prune_tool_outputs(SESSION, keep_last=1)
        assert pruned.tokens_after == pruned.tokens_before - pruned.tokens_saved
        shown = await valid_view(stash, format_name)
        assert as_bytes(await view(stash)) == as_bytes(shown)
        await outputs_come_back(stash, natives, format_name)

        compacted = await stash.compact_session(SESSION)
        assert compacted.compacted == (compacted.tokens_after < compacted.tokens_before)
        done = len(await edits_of(stash))
        await valid_view(stash, format_name)
        # A request that does not fit, with the summary either, records what it shortens. That is restored by its names.
        shortened = [edit.handle for edit in (await edits_of(stash))[done:] if isinstance(edit, Replacement)]
        await restore_whole(stash, [*filter(None, [compacted.summary_id]), *shortened])
        assert as_bytes(await view(stash)) == as_bytes(shown)
        await restore_whole(stash, await all_handles(stash))
        assert as_bytes(await view(stash)) == as_bytes(untouched)
        assert (await stash.prune_tool_outputs(SESSION, keep_last=1, dry_run=True)).tokens_before == (
            pruned.tokens_before
        )
        await stash.compact_session(SESSION)
        await fits_or_says_why(stash, format_name, budget)  # last, since a request that had to shrink records its edits
        assert as_bytes(await recorded_bodies(stash)) == as_bytes(natives)


async def recorded_bodies(stash: Stash) -> list[Native]:
    """All messages as they are stored; `read_messages` and exports mask the keys that real sessions hold."""
    return [message.body or {} for message in await stash.store.read_messages(SESSION)]


async def edits_of(stash: Stash) -> list[Edit]:
    """All edits of the session; no use case lists them, so the store is asked."""
    return await stash.store.read_edits(SESSION)


async def restore_whole(stash: Stash, handles: Sequence[str]) -> None:
    """Restore these, also what was cut before it was archived, which is first restored as it was then."""
    while handles and (await stash.restore_outputs(handles, session_id=SESSION)).restored:
        pass


async def outputs_come_back(stash: Stash, natives: Sequence[Native], format_name: str) -> None:
    """Every tool output of the session equals what was recorded, page by page."""
    fmt = get_format(format_name)
    recorded = set()
    for native in natives:
        reading = fmt.read(native)
        recorded |= {
            text for block, text in zip(reading.blocks, reading.texts, strict=True) if block.type == "tool_result"
        }
    handles = await all_handles(stash)
    assert {await whole_output(stash, handle) for handle in handles} == recorded


async def fits_or_says_why(stash: Stash, format_name: str, budget: int) -> None:
    fitted = await stash.get_context(SESSION, budget=budget)
    assert violations(format_name, fitted.messages) == []
    if fitted.fits:
        assert fitted.tokens <= budget
    else:
        assert "must stay" in (fitted.reason or "")


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@few
@given(data=st.data())
async def test_the_laws_hold_over_generated_sessions(format_name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(format_name, broken=data.draw(st.booleans())))
    assume(natives)
    budget = data.draw(st.integers(60, 3_000))
    with TemporaryDirectory() as folder:
        await hold_laws(Path(folder) / "laws.db", natives, format_name, budget)


async def test_the_laws_hold_if_the_view_exceeds_the_window_also_after_a_compaction(tmp_path: Path) -> None:
    """The request after the compaction shortens an output, which the ones before had room for: they left out more."""
    text = "fix the failing test in src/app/models.py"
    asked = {"role": "user", "parts": [{"text": text}]}
    call = {"functionCall": {"name": "Read", "args": {"file_path": text, "limit": 50}}, "thoughtSignature": "c2ln"}
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    outputs = ["", "\n".join(f"{line}: {text}" for line in range(20))]
    first, last = ({"functionResponse": {"name": "Read", "response": {"output": output}}} for output in outputs)
    reply = {"role": "model", "parts": [{"text": text, "thoughtSignature": "c2ln"}]}
    calling = {"role": "model", "parts": [call]}
    answers = [{"role": "user", "parts": parts} for parts in ([first, image], [last])]
    natives: list[Native] = [asked, calling, answers[0], reply, asked, calling, answers[1]]
    await hold_laws(tmp_path / "laws.db", natives, "gemini", 300, window=300)


async def test_the_laws_hold_if_only_the_whole_view_shows_that_a_loop_must_begin_with_thinking(tmp_path: Path) -> None:
    """Once the first loop is left out, the evidence is gone; the next request must leave out no more for that."""
    text = "fix the failing test in src/app/models.py"
    thinking = {"type": "thinking", "thinking": text, "signature": "c2lnbmF0dXJl"}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}

    def calls(*ids: int) -> list[Native]:
        about = {"file_path": text, "limit": 50}
        return [{"type": "tool_use", "id": f"call_{number}", "name": "Read", "input": about} for number in ids]

    def results(*ids: int) -> list[Native]:
        return [{"type": "tool_result", "tool_use_id": f"call_{number}", "content": text} for number in ids]

    searching = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_result", "url": "https://example.org", "encrypted_content": "ZW5j"}
    search = [searching, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]}]
    natives: list[Native] = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": [thinking, *search, {"type": "text", "text": text}]},
        {"role": "user", "content": text},
        {"role": "assistant", "content": [{**thinking, "thinking": ""}, *calls(1, 2)]},
        {"role": "user", "content": results(1, 2)},
        {"role": "assistant", "content": calls(3, 4)},
        {"role": "user", "content": [*results(3, 4), image]},
    ]
    await hold_laws(tmp_path / "laws.db", natives, "anthropic", 60)


@pytest.mark.parametrize(("format_name", "path"), trace_files(), ids=lambda value: Path(str(value)).stem[:40])
async def test_the_laws_hold_over_real_sessions(format_name: str, path: Path, tmp_path: Path) -> None:
    await hold_laws(tmp_path / "laws.db", trace_natives(format_name, path), format_name, 20_000)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@few
@given(data=st.data())
async def test_chained_prunes_and_compactions_keep_every_view_valid(format_name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(format_name, min_turns=3))
    steps = data.draw(st.lists(st.sampled_from(["prune", "compact", "restore"]), max_size=6))
    middle = len(natives) // 2
    with TemporaryDirectory() as folder:
        async with stash_at(Path(folder) / "chain.db", window=4_000) as stash:
            await stash.record_messages(natives[:middle] or natives, whole=True, session_id=SESSION, format=format_name)
            for place, step in enumerate(steps):
                await take(stash, step)
                await valid_view(stash, format_name)
                if place == 1:
                    await stash.record_messages(natives, whole=True, session_id=SESSION)
                    await valid_view(stash, format_name)
            await stash.record_messages(natives, whole=True, session_id=SESSION)
            assert as_bytes(await history(stash)) == as_bytes(natives)
            estimate = await stash.estimate_context(SESSION)
            assert sum(estimate.breakdown.values()) == estimate.tokens


async def take(stash: Stash, step: str) -> None:
    if step == "prune":
        await stash.prune_tool_outputs(SESSION, keep_last=1)
    elif step == "compact":
        await stash.compact_session(SESSION)
    elif handles := await all_handles(stash):
        await stash.restore_outputs(handles[:2], session_id=SESSION)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@few
@given(data=st.data())
async def test_the_same_history_and_settings_give_the_same_views(format_name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(format_name))
    views = []
    with TemporaryDirectory() as folder:
        for name in ("one", "two"):
            async with stash_at(Path(folder) / f"{name}.db", window=4_000) as stash:
                await stash.record_messages(natives, whole=True, session_id=SESSION, format=format_name)
                await stash.prune_tool_outputs(SESSION, keep_last=0)
                await stash.compact_session(SESSION)
                views.append(as_bytes(await view(stash)))
    assert views[0] == views[1]


STEPS = ("prune", "oldest", "compact", "host", "restore", "restore summaries", "recover", "record")

TOO_LONG = "prompt is too long: 9000 tokens > 8000 maximum"


async def in_step(stash: Stash, format_name: str) -> None:
    """The counters, recounted; the messages to send, held against the provider's rules and the budget."""
    await counters_in_step(stash)
    for budget in (None, 300):
        answer = await stash.get_context(SESSION, budget=budget)
        assert violations(format_name, answer.messages) == []
        assert not answer.fits or answer.tokens <= answer.budget


async def take_step(stash: Stash, step: str, natives: Sequence[Native]) -> None:
    if step == "prune":
        await stash.prune_tool_outputs(SESSION, keep_last=1)
    elif step == "oldest":
        await prune_oldest(stash, SESSION)
    elif step == "compact":
        result = await stash.compact_session(SESSION, strategy="extractive")
        assert result.compacted == (result.tokens_after < result.tokens_before)
    elif step == "host":
        await stash.compact_session(SESSION, summary="What was done so far, in the host's words.")
    elif step == "restore":
        if handles := await all_handles(stash):
            await stash.restore_outputs(handles[:2], session_id=SESSION)
    elif step == "restore summaries":
        snapshot = await stash.snapshot(SESSION)
        if names := [edit.summary_id for edit in snapshot.overlay.summaries]:
            await stash.restore_outputs(names[:1], session_id=SESSION)
    elif step == "recover":
        await stash.recover_context(SESSION, error=TOO_LONG)
    else:
        await stash.record_messages(natives, whole=True, session_id=SESSION)


@pytest.mark.parametrize("preset", ["default", "staged", "token-budget", "rolling", "n-or-k", "byte-budget"])
@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_after_every_step_counters_and_view_agree(
    format_name: str, preset: str, data: st.DataObject, preset_with: Callable[..., str]
) -> None:
    assert preset in PRESETS
    natives = data.draw(conversations(format_name, min_turns=3))
    steps = data.draw(st.lists(st.sampled_from(STEPS), max_size=7))
    model = data.draw(st.sampled_from(["claude-fable-5-1", "gpt-5.2", None]))
    options: dict[str, Any] = {
        "prune_at_results": 1,
        "compact_keep_messages": 1,
        "compact_keep_tokens": 50,
    }
    middle = max(1, 2 * len(natives) // 3)
    with TemporaryDirectory() as folder:
        async with stash_at(
            Path(folder) / "s.db", preset=preset_with(preset, prune_smallest_tokens=0), window=4_000, **options
        ) as stash:
            await stash.record_messages(
                natives[:middle], whole=True, session_id=SESSION, format=format_name, model=model
            )
            await in_step(stash, format_name)
            for step in steps:
                await take_step(stash, step, natives)
                await in_step(stash, format_name)
            await stash.record_messages(natives, whole=True, session_id=SESSION)
            await in_step(stash, format_name)
            assert as_bytes(await history(stash)) == as_bytes(natives)


ANTHROPIC = get_format("anthropic")
THINKING = ("thinking", "redacted_thinking")

laws = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])


def blocks(natives: list[Native]) -> list[dict[str, Any]]:
    contents = [native["content"] for native in natives]
    return [block for content in contents if isinstance(content, list) for block in content]


def thoughts(natives: list[Native]) -> list[str]:
    return [block.get("signature") or block["data"] for block in blocks(natives) if block["type"] in THINKING]


def stripped(natives: list[Native], start: int) -> list[Native]:
    """The natives without thinking from `start` on, as the view shows them."""
    left = [ANTHROPIC.without_thinking(native) for native in natives[start:]]
    return [*natives[:start], *(native for native in left if native is not None)]


@laws
@given(st.data())
def test_after_any_edit_the_thinking_left_is_an_unbroken_run_from_the_start(data: st.DataObject) -> None:
    natives = data.draw(conversations("anthropic"))
    messages = as_messages("anthropic", natives)
    first = data.draw(st.integers(0, len(natives) - 1))
    effect = stripping_of(messages, first, bound=True, needed=True)
    shown = stripped(natives, first) if effect.choice == "strip" else natives
    all_of_it, left = thoughts(natives), thoughts(shown)
    assert left == all_of_it[: len(left)]
    assert violations("anthropic", render(ANTHROPIC, shown)) == []
    if effect.choice == "strip":
        assert left == thoughts(natives[:first])
        assert effect.messages > 0


@laws
@given(st.data())
def test_stripping_touches_nothing_but_thinking(data: st.DataObject) -> None:
    natives = data.draw(conversations("anthropic"))
    first = data.draw(st.integers(0, len(natives)))
    shown = stripped(natives, first)
    assert [block for block in blocks(shown) if block["type"] not in THINKING] == [
        block for block in blocks(natives) if block["type"] not in THINKING
    ]


@laws
@given(st.data())
def test_after_any_cut_what_is_kept_is_valid_without_its_thinking(data: st.DataObject) -> None:
    natives = data.draw(conversations("anthropic", min_turns=2))
    messages = as_messages("anthropic", natives)
    cut = data.draw(st.sampled_from(safe_cuts(messages)))
    shown = [ANTHROPIC.user_message("Summary of what came before."), *stripped(natives, cut)[cut:]]
    assert thoughts(shown) == []
    assert violations("anthropic", render(ANTHROPIC, shown)) == []
    effect = stripping_of(messages, cut, bound=True, needed=True)
    assert bool(effect.messages) == bool(thoughts(natives[cut:]))
