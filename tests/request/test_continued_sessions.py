"""A session that begins with the hand-off of another one has its user's words, and hands them on."""

from __future__ import annotations

from pathlib import Path

from contextstash.clients.launch import first_message
from tests.support.sized_sessions import reply, round_of
from tests.support.stashes import stash_at

TASK = "Move the orchard's reports.\nNever touch its public interface."
LATER = "Also keep the old names as aliases."


async def test_the_users_words_go_through_any_number_of_hand_offs(tmp_path: Path) -> None:
    natives = [{"role": "user", "content": TASK}, *round_of(1, "log line\n" * 50), reply(40)]
    natives += [{"role": "user", "content": LATER}, reply(40)]
    async with stash_at(tmp_path / "s.db", window=200_000) as stash:
        for number in range(4):
            name = f"session-{number}"
            await stash.record_messages(natives, session_id=name, model="claude-sonnet-4-5")
            text = await stash.hand_off_text(name, 4_000)
            assert text is not None
            assert text.count(TASK.split("\n")[1]) == text.count(LATER) == 1
            natives = [{"role": "user", "content": first_message(text, name, "codex")}, reply(40)]
