"""The hand-off to a client's new window: once, of the whole session, without our own calls, and with the user's
words through any number of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.clients.proxied import first_message
from contextstash.reduce import summaries
from contextstash.request.handoff import PART_HEAD_CHARACTERS, ClientWindow, Part, divided
from contextstash.stash import Stash
from tests.support.client_files import SESSION, ClientTranscript
from tests.support.stashes import reply, round_of, stash_at
from tests.support.turns import laws, quarter

LARGE = "\n".join(f"{number}: compiling part {number}" for number in range(4_000)) + "\nfatal error: disk full"
PROMPT = "Fix the build. Never touch the public API."


@pytest.fixture
def client(tmp_path: Path, stash: Stash) -> ClientTranscript:
    """A transcript that begins with the user's prompt."""
    client = ClientTranscript(tmp_path, stash)
    client.write("user", PROMPT)
    return client


async def handed_off(stash: Stash, client: ClientTranscript) -> str:
    """The hand-off at the start of a window; empty if there is none."""
    return await stash.hand_off(await client.read()) or ""


async def handed_off_after(stash: Stash, client: ClientTranscript, last: str) -> str:
    """The hand-off after the model said this and the client compacted its window."""
    client.say(last)
    client.compact()
    return await handed_off(stash, client)


async def test_the_whole_session_is_handed_off_also_its_end(stash: Stash, client: ClientTranscript) -> None:
    for number in range(30):
        client.call("Bash", {"command": f"make {number}"}, LARGE[:3_000])
    text = await handed_off_after(stash, client, "The disk of the builder is full.")
    assert PROMPT in text
    assert "The disk of the builder is full." in text


async def test_the_task_is_still_handed_off_after_a_second_compaction(stash: Stash, client: ClientTranscript) -> None:
    await handed_off_after(stash, client, "Working on it.")
    client.call("mcp__contextstash__get_summary", {}, "a summary")
    text = await handed_off_after(stash, client, "I know again what to do.")
    assert PROMPT in text
    assert "get_summary" not in text.partition("]")[2]


async def test_a_window_is_handed_off_once(stash: Stash, client: ClientTranscript) -> None:
    assert await handed_off_after(stash, client, "Working on it.")
    assert not await handed_off(stash, client)  # a hook that is installed twice
    assert await handed_off_after(stash, client, "Going on.")
    assert [event.kind for event in await stash.read_events(SESSION)].count("handoff") == 2


async def test_a_session_whose_window_was_compacted_by_us_is_not_handed_off_to_it(
    stash: Stash, client: ClientTranscript
) -> None:
    client.call("Bash", {"command": "make"}, LARGE[:3_000])
    session_id = await client.read()
    window = ClientWindow(session_id=session_id, messages=[], tokens_before=3_000, tokens_after=1_000, left=1)
    await stash.note_given_window(session_id, window)
    assert await stash.hand_off(session_id) is None


async def test_what_a_model_summarized_for_us_is_handed_off_with_what_came_after(
    stash: Stash, client: ClientTranscript
) -> None:
    for number in range(40):
        client.call("Bash", {"command": f"make {number}"}, LARGE[:8_000])
    result = await stash.compact_session(await client.read(), summary="The builder's disk is full; clean /var/tmp.")
    assert result.compacted
    text = await handed_off_after(stash, client, "Cleaned the disk.")
    assert "The builder's disk is full; clean /var/tmp." in text
    assert "Cleaned the disk." in text


async def test_only_what_the_person_typed_is_the_task(stash: Stash, tmp_path: Path) -> None:
    client = ClientTranscript(tmp_path, stash)
    client.write("user", "<local-command-stdout>Set model to opus</local-command-stdout>")
    client.write("user", PROMPT)
    client.call("Skill", {"skill": "fmt"}, "Launching skill: fmt")
    client.write("user", "Never use more than three bullet points.", isMeta=True)
    client.write("user", "A task has ended: never restart it.", origin={"kind": "task-notification"})
    client.write("user", "Stop hook feedback:\n[lint]: you must never stop before lint passes", isMeta=True)
    client.write("user", "<system-reminder>You must never mention this.</system-reminder>")
    text = await handed_off_after(stash, client, "The build is fixed.")
    assert PROMPT in text
    for added in ("Set model", "bullet points", "never restart", "never stop", "never mention"):
        assert added not in text


async def test_what_the_clients_own_summary_holds_is_not_repeated(stash: Stash, client: ClientTranscript) -> None:
    client.say("Which port?")
    client.write("user", "Use port 5433 for the test database, always.")
    client.call("Bash", {"command": "grep -rn orders_by_region src"}, "src/report.py:7: orders_by_region(total_fines)")
    client.compact(f"This session is being continued from a previous conversation. The user said: {PROMPT}")
    text = await handed_off(stash, client)
    assert "is not repeated" in text
    assert "Use port 5433" in text
    assert PROMPT not in text
    assert "orders_by_region" in text


async def test_a_hand_off_is_at_most_as_long_as_the_setting_says(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "other.db", handoff_tokens=0) as silent:
        client = ClientTranscript(tmp_path, silent)
        client.write("user", PROMPT)
        client.say("Working on it.")
        client.compact()
        assert not await handed_off(silent, client)
    async with stash_at(tmp_path / "another.db", handoff_tokens=700) as short:
        client = ClientTranscript(tmp_path, short)
        for number in range(60):
            client.call("Bash", {"command": f"make {number}"}, LARGE[:9_000])
        client.compact()
        assert quarter(await handed_off(short, client)) < 900


async def test_what_was_folded_for_one_hand_off_is_known_to_the_next(
    stash: Stash, client: ClientTranscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "MAX_READ", 40)
    client.call("Edit", {"file_path": "/srv/early.py", "old_string": "a", "new_string": "b"}, "updated")
    for _ in range(2):
        for number in range(14):
            client.call("Bash", {"command": f"make {number}"}, "built")
        text = await handed_off_after(stash, client, "Built.")
        assert "`/srv/early.py`: edited" in text
        assert PROMPT in text


async def test_a_call_that_ran_at_a_hand_off_has_its_result_in_the_next(stash: Stash, client: ClientTranscript) -> None:
    client.write("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make all"}}])
    assert "ran `make all`: no result yet" in await handed_off(stash, client)
    client.write("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "fatal error: disk full"}])
    client.say("The disk is full.")
    text = await handed_off(stash, client)
    assert "ran `make all`: fatal error: disk full" in text
    assert "no result" not in text


TASK = "Move the orchard's reports.\nNever touch its public interface."
LATER = "Also keep the old names as aliases."


async def test_the_users_words_go_through_any_number_of_hand_offs(tmp_path: Path) -> None:
    ended = {"role": "assistant", "content": "The names are kept. All tests pass."}
    natives = [{"role": "user", "content": TASK}, *round_of(1, "log line\n" * 50), reply(40)]
    natives += [{"role": "user", "content": LATER}, ended]
    async with stash_at(tmp_path / "s.db", window=200_000) as stash:
        for number in range(4):
            name = f"session-{number}"
            await stash.record_messages(natives, session_id=name, model="claude-sonnet-4-5")
            text = await stash.hand_off_text(name, 4_000)
            assert text is not None
            assert text.count(TASK.split("\n")[1]) == text.count(LATER) == 1
            natives = [{"role": "user", "content": first_message(text, name, "codex")}, ended]


LINES = st.lists(st.sampled_from(["a line of words", "", "```", "x" * 90, "- an item"]), min_size=1, max_size=60)


@laws
@given(LINES, st.integers(300, 600))
def test_the_parts_hold_all_lines_in_order_and_none_is_too_long(lines: list[str], characters: int) -> None:
    text = "\n".join(lines)
    parts = divided(text, characters)
    assert all(len(part) <= characters for part in parts)
    shown = [
        line for part in parts for line in part.split("\n") if line.strip(" `") and not line.startswith("[context")
    ]
    assert shown == [line for line in lines if line.strip(" `")]


def test_a_text_that_fits_is_one_part_without_a_head() -> None:
    assert divided("short", 300) == ["short"]


def test_code_that_is_divided_is_fenced_in_each_part() -> None:
    text = "\n".join(["before", "```", *(f"line {number}" for number in range(60)), "```", "after"])
    first, second, *_ = divided(text, 300)
    assert first.startswith("[contextstash: part 1 of ")
    assert first.endswith("\n```")
    assert second.split("\n")[1] == "```"
    assert all(part.count("```") == 2 for part in divided(text, 300)[:-1])


@pytest.mark.parametrize(("tokens", "used"), [(300, 1), (2_500, 1), (5_000, 2), (8_000, 3), (50_000, 3)])
def test_no_more_parts_are_used_than_the_hand_off_needs(tokens: int, used: int) -> None:
    assert Part(1, 3, 9_800).used(tokens) == used
    assert Part(1, 3, None).used(tokens) == 1
    assert len(divided("x\n" * 400, 300)[1].split("\n", 1)[0]) + 10 < PART_HEAD_CHARACTERS
