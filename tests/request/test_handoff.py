"""The hand-off to a client's new window: once, of the whole session, without our own calls, and with the user's
words through any number of them; the window that a plugin gives: valid, within its room, in the client's places."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.clients.proxied import first_message
from contextstash.reduce import compact
from contextstash.request.handoff import ClientCall, ClientMessage, ClientResult, divided, plan_tail, window_of
from contextstash.stash import Stash
from tests.support.client_files import ClientTranscript, applied
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
    monkeypatch.setattr(compact, "MAX_READ", 40)
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


def test_code_that_is_divided_is_fenced_in_each_part_and_what_fits_is_one_part() -> None:
    text = "\n".join(["before", "```", *(f"line {number}" for number in range(60)), "```", "after"])
    first, second, *_ = divided(text, 300)
    assert first.startswith("[contextstash: part 1 of ")
    assert first.endswith("\n```")
    assert second.split("\n")[1] == "```"
    assert all(part.count("```") == 2 for part in divided(text, 300)[:-1])
    assert divided("short", 300) == ["short"]


def count(text: str) -> int:
    """A token for each word."""
    return len(text.split())


def said(role: str, words: int) -> ClientMessage:
    return ClientMessage("", role, "word " * words)


def step(number: int, calls: int, words: int) -> list[ClientMessage]:
    """A reply with some calls, and their results, as Claude Code lists them: a message each."""
    names = [f"{number}-{call}" for call in range(calls)]
    asked = [ClientMessage("", "assistant", "", (ClientCall(name, "Bash", "make"),)) for name in names]
    return asked + [ClientMessage("", "user", "", (), (ClientResult(name, "out " * words),)) for name in names]


sizes = st.integers(0, 400)
conversations = st.lists(
    st.one_of(
        st.tuples(st.just("said"), st.sampled_from(["user", "assistant"]), sizes),
        st.tuples(st.just("step"), st.integers(1, 3), sizes),
    ),
    max_size=20,
).map(
    lambda drawn: [
        message
        for number, (kind, which, words) in enumerate(drawn)
        for message in ([said(str(which), words)] if kind == "said" else step(number, int(which), words))
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(conversations, st.integers(0, 2_000))
def test_each_result_has_its_call_and_what_has_no_reply_stays_whole(messages: list[ClientMessage], room: int) -> None:
    first, shortened = plan_tail(messages, room, count, pinned=())
    window = window_of(messages, ["hand-off"], range(first, len(messages)), dict.fromkeys(shortened, "short"))
    shown = applied(messages, window)
    called: set[str] = set()
    for message in shown:
        assert all(result.id in called for result in message.results)
        called |= {call.id for call in message.calls}
    answered = {result.id for message in shown for result in message.results}
    assert called <= answered or not messages
    newest = len(messages)
    while newest and messages[newest - 1].role == "user":
        newest -= 1
    for place in range(newest, len(messages)):
        assert {"at": place} in window or not (messages[place].text or messages[place].calls or messages[place].results)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(conversations, st.integers(0, 2_000))
def test_the_tail_takes_no_more_than_its_room_beside_what_has_no_reply(
    messages: list[ClientMessage], room: int
) -> None:
    first, shortened = plan_tail(messages, room, count, pinned=())
    short = dict.fromkeys(shortened, "word " * 60)
    shown = applied(messages, window_of(messages, [], range(first, len(messages)), short))
    replied = next((place for place in range(len(shown), 0, -1) if shown[place - 1].role == "assistant"), 0)
    calls = {result.id for message in shown[replied:] for result in message.results}
    older = [message for message in shown[:replied] if not any(call.id in calls for call in message.calls)]
    assert sum(message.tokens(count) for message in older if not message.results) <= room


def test_older_results_become_placeholders_and_pinned_ones_do_not() -> None:
    messages = [said("user", 10), *step(1, 1, 300), *step(2, 1, 300), *step(3, 1, 300), said("assistant", 5)]
    assert plan_tail(messages, 800, count, pinned=())[1] == {"1-0", "2-0"}
    assert plan_tail(messages, 800, count, pinned={"2-0"})[1] == {"1-0"}
