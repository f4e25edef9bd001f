"""Who writes a summary; and the user's words, which stay at the head of every view through chains of compactions."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.reduce import automatic, compact
from contextstash.safety.sanitize import USER_BLOCK
from contextstash.stash import Stash
from contextstash.window.settings import PRESETS
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import KEPT_BEHIND, Cursor, KeptState, Native, zstd
from contextstash_storage.sqlite import open_sqlite
from tests.support.stashes import SESSION, as_bytes, called, history, reply, stash_at, user, valid_view, view

TASK = (
    "<instructions>\nFix the importer.\n\n## Rules\n- Never edit the tests.\n\nTo submit, run\n"
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n</instructions>"
)


def step(number: int, lines: int = 60) -> list[Native]:
    """A command and its output."""
    text = "\n".join(f"line {line} of the log of run {number}: order_{line} is late" for line in range(lines))
    return called(number, "bash", {"command": f"make {number}"}, text, f"Run {number}.")


def plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n"))


async def words(stash: Stash) -> list[str]:
    shown = [str(message["content"]) for message in await view(stash)]
    return [text for text in shown if text.startswith(USER_BLOCK)]


async def run(stash: Stash, steps: int, *, said: dict[int, str], start: int = 0) -> list[list[str]]:
    """Records steps, before some of which the user says something. Returns the words in the view after each step."""
    seen = []
    for number in range(start, start + steps):
        natives = step(number)
        if number in said:
            closing = {"role": "assistant", "content": "Done with that."}
            natives = [closing, {"role": "user", "content": said[number]}, *natives]
        await stash.record_messages(natives, session_id=SESSION)
        await valid_view(stash, "openai-chat")
        seen.append(await words(stash))
    return seen


async def test_the_first_request_is_in_every_view_as_it_was_written(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", automatic=True, window=8_000, output_reserve=0) as stash:
        await stash.record_messages(
            [{"role": "system", "content": "You use bash."}, {"role": "user", "content": TASK}], session_id=SESSION
        )
        for number in range(40):
            await stash.record_messages(step(number), session_id=SESSION)
            shown = await valid_view(stash, "openai-chat")
            assert plain(TASK) in plain("\n".join(str(message["content"]) for message in shown))
            assert shown[0] == {"role": "system", "content": "You use bash."}
        assert len(await words(stash)) == 1


async def test_what_was_shown_of_the_users_words_is_only_appended_to(tmp_path: Path) -> None:
    said = {number: f"Rule {number}: never rename table_{number}." for number in range(5, 60, 6)}
    async with stash_at(tmp_path / "s.db", automatic=True, window=16_000, output_reserve=0) as stash:
        await stash.record_messages([{"role": "user", "content": TASK}], session_id=SESSION)
        seen = await run(stash, 60, said=said)
    assert len(seen[-1]) > 1
    for before, after in pairwise(seen):
        assert after[: len(before)] == before
    text = "\n".join(seen[-1])
    assert all(said[number] in text for number in said if number < 25)
    assert text.count("Fix the importer.") == 1


async def test_very_many_words_are_written_again_as_one_text_that_keeps_the_rules(tmp_path: Path) -> None:
    said = {number: f"Also look at run {number}, " + "please " * 60 for number in range(1, 90)}
    said[3] = "Rule 3: you must never rename table_3."
    async with stash_at(tmp_path / "s.db", automatic=True, window=8_000, output_reserve=0) as stash:
        await stash.record_messages([{"role": "user", "content": TASK}], session_id=SESSION)
        seen = await run(stash, 90, said=said)
    assert min(len(after) for before, after in pairwise(seen) if len(before) > 1) == 1
    text = "\n".join(seen[-1])
    assert said[3] in text
    assert plain(TASK) in plain(text)
    assert len(text.split()) < 8_000 // 2


async def test_the_words_of_an_abandoned_branch_leave_with_it(stash: Stash) -> None:
    first = [{"role": "user", "content": TASK}]
    branch = [*step(1), *step(2), {"role": "user", "content": "Use tabs in all files."}]
    branch += [message for number in range(3, 14) for message in step(number)]
    await stash.record_messages([*first, *branch], session_id=SESSION, whole=True)
    assert (await stash.compact_session(SESSION)).compacted
    assert "Use tabs in all files." in "\n".join(await words(stash))
    await stash.record_messages([*first, *step(99)], session_id=SESSION, whole=True)
    assert await words(stash) == []
    assert "Use tabs" not in str(await view(stash))


async def test_a_pinned_rule_is_in_the_next_view_and_in_every_one_until_it_is_unpinned(tmp_path: Path) -> None:
    rule = ["rule: Keep the old API."]
    async with stash_at(tmp_path / "s.db", automatic=True, window=8_000, output_reserve=0) as stash:
        await stash.record_messages([{"role": "user", "content": TASK}], session_id=SESSION)
        await run(stash, 2, said={})
        before = await valid_view(stash, "openai-chat")
        result = await stash.configure_session(SESSION, pin=rule)
        after = await valid_view(stash, "openai-chat")
        assert after[:-1] == before
        assert "- (pinned rule) Keep the old API." in str(after[-1]["content"])
        assert result.note is None
        await run(stash, 40, said={}, start=2)
        assert "\n".join(await words(stash)).count("- (pinned rule) Keep the old API.") == 1
        await stash.configure_session(SESSION, unpin=rule)
        await run(stash, 40, said={}, start=42)
        assert "- (no longer pinned) Keep the old API." in "\n".join(await words(stash))


async def test_the_summary_that_a_tool_returns_has_the_users_words_which_a_restore_takes_out(stash: Stash) -> None:
    await stash.record_messages([{"role": "user", "content": TASK}], session_id=SESSION)
    await run(stash, 12, said={3: "Never rename table_3."})
    made = await stash.compact_session(SESSION)
    summary = (await stash.get_summary(SESSION)).summary
    assert plain(TASK) in plain(summary)
    assert "Never rename table_3." in summary
    assert summary.index("Fix the importer.") < summary.index("## ")
    assert await words(stash)
    await stash.restore_outputs([made.summary_id or ""], session_id=SESSION)
    assert as_bytes(await view(stash)) == as_bytes(await history(stash))


REFUSED = {
    "an empty text": ("auto", "", "summary is empty or too short"),
    "only spaces": ("auto", " \n ", "summary is empty or too short"),
    "a reply": ("auto", "done", "summary is empty or too short"),
    "a host without a text": ("host", None, "needs `summary`"),
    "a text for another writer": ("extractive", "A summary that the host wrote.", "either"),
    "an unknown writer": ("gpt", None, "auto, host, anthropic, extractive"),
    "a model without consent": ("anthropic", None, "ANTHROPIC_API_KEY"),
}


@pytest.mark.parametrize(("strategy", "text", "says"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_used_is_refused_with_what_to_do(
    tmp_path: Path, strategy: str, text: str | None, says: str
) -> None:
    async with stash_at(tmp_path / "s.db", window=16_000) as stash:
        await stash.record_messages([(user, reply)[place % 2](4_000) for place in range(20)], session_id=SESSION)
        with pytest.raises(BadInputError, match=says):
            await stash.compact_session(SESSION, summary=text, strategy=strategy)


@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_the_task_is_at_the_head_of_a_compacted_view(preset: str, tmp_path: Path) -> None:
    async with Stash(await open_sqlite(tmp_path / "s.db"), settings={"preset": preset, "window": 16_000}) as stash:
        await stash.record_messages([{"role": "user", "content": TASK}], session_id="s", format="openai-chat")
        for number in range(40):
            await stash.record_messages(step(number), session_id="s")
        result = await stash.compact_session("s")
        assert result.compacted, result.reason
        first = (await stash.read_context("s")).messages[0]
        assert "To submit, run\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in plain(str(first["content"]))


async def test_half_of_a_surrogate_pair_in_the_users_words_stops_no_compaction(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "h.db", window=8_000) as stash:
        await stash.record_messages(
            [{"role": "user", "content": "Fix \ud800 it."}], session_id=SESSION, format="openai-chat"
        )
        for number in range(2):
            for place in range(12):
                await stash.record_messages(step(12 * number + place), session_id=SESSION)
            assert (await stash.compact_session(SESSION)).compacted
        assert "Fix \ufffd it." in (await stash.hand_off_text(SESSION, 2_000) or "")


@pytest.fixture
def fold_every(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has a state folded after so many messages, not 500, and up to 20 before the newest one, 30 at a time."""

    def fold_every(messages: int) -> None:
        for module, name, value in (
            (compact, "MAX_READ", 30),
            (compact, "MAX_KEPT", 20),
            (compact, "FOLD_EVERY", messages),
            (automatic, "FOLD_EVERY", messages),
        ):
            monkeypatch.setattr(module, name, value)

    return fold_every


async def kept_behind(stash: Stash) -> int:
    """Up to which message a state is kept for later; -1 if none is."""
    kept = await stash.store.get_note(SESSION, KeptState, KEPT_BEHIND)
    return -1 if kept is None else int(json.loads(zstd.decompress(b64decode(kept.text)))["seq"])


async def test_a_state_that_was_folded_while_the_session_grew_is_that_of_all_at_once(
    tmp_path: Path, fold_every: Callable[[int], None]
) -> None:
    seen = []
    for every in (1_000, 10):
        fold_every(every)
        async with stash_at(tmp_path / f"{every}.db", window=16_000, output_reserve=0) as stash:
            await stash.record_messages([{"role": "user", "content": TASK}], session_id=SESSION)
            await run(stash, 60, said={20: "Never rename table_20.", 50: "Keep the logs."})
            kept = await kept_behind(stash)
            await stash.compact_session(SESSION)
            seen.append((kept == -1, await view(stash)))
    assert seen == [(True, seen[0][1]), (False, seen[0][1])]
    assert "Never rename table_20." in str(seen)


async def test_calls_without_results_keep_no_state_from_being_folded_while_the_session_grows(
    stash: Stash, fold_every: Callable[[int], None]
) -> None:
    fold_every(10)
    for number in range(100):
        await stash.record_messages(
            [{"role": "user", "content": f"Try {number}."}, step(number)[0]], session_id=SESSION
        )
    assert await kept_behind(stash) >= 200 - 20 - 30


async def test_an_import_folds_nothing_and_the_first_hand_off_folds_once_for_all_later_ones(
    stash: Stash, fold_every: Callable[[int], None]
) -> None:
    fold_every(10)
    natives = [{"role": "user", "content": TASK}, *(each for number in range(60) for each in step(number))]
    messages = [TranscriptMessage(body=native, key=f"k{place}") for place, native in enumerate(natives)]
    found = TranscriptSession(SESSION, "openai-chat")
    await stash.record_transcript(found, messages, Cursor(source="t"))
    assert await kept_behind(stash) == -1
    assert await stash.hand_off_text(SESSION, None)
    assert len(natives) - 20 - 30 - 2 <= await kept_behind(stash) < len(natives) - 20
