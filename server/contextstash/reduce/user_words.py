"""The user's words in a view: the messages that hold them, and the next one that a compaction adds."""

from __future__ import annotations

import asyncio

from contextstash.handoff.user_block import pinned_rules, read_block, rules_block, user_block
from contextstash.reduce.session_turns import SessionTurns
from contextstash.view.edits import digest_edit, last_anchor
from contextstash.view.ladder import leading_fixed
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import DigestEdit

WORDS_PARTS = 4
"""All messages with the user's words take at most so many times what a compaction adds, beside the first request: then
they are written again as one, which costs the prompt cache once. A larger share would leave less room for the
conversation."""

BEFORE_ALL = -1
"""The position of an added message that is shown before the first recorded one."""

PINNED = "pinned"
"""Stands for the handle in an edit that shows pinned rules: it belongs to no output and no summary."""


def keeps_words(settings: ContextSettings) -> bool:
    """Whether views have the user's words in messages of their own. The presets that reproduce other systems have
    them in or behind their one summary."""
    return settings.low_water is not None


def rules_edit(snapshot: SessionSnapshot) -> DigestEdit | None:
    """The edit that shows pinned rules which the view does not show yet, at its end, so that what was sent before stays
    as it was; None if there are none. The next compaction moves them to the user's words at the head."""
    if not keeps_words(snapshot.settings):
        return None
    shown = read_block(entry.digest.text for entry in snapshot.entries if entry.is_user_block and entry.digest)
    text = rules_block(pinned_rules(snapshot.settings.pin), shown.rules)
    anchor = last_anchor(snapshot.entries)
    return digest_edit(snapshot, anchor, text, (PINNED,)) if text and anchor is not None else None


def words_edit(snapshot: SessionSnapshot, added: str, summary_id: str) -> list[DigestEdit]:
    """The edit that shows what a compaction adds to the user's words after the system messages, if it adds anything. It
    is undone with its summary."""
    if not added:
        return []
    head = [entry.last_seq for entry in snapshot.entries[: leading_fixed(snapshot.entries)] if entry.message]
    return [digest_edit(snapshot, head[-1] if head else BEFORE_ALL, added, (summary_id,))]


async def words_with(turns: SessionTurns, last_seq: int, replaced: int) -> str:
    """What is added to the user's words in the view if a compaction up to a message replaces so many tokens; it stays
    clearly below these."""
    snapshot, budget = turns.snapshot, turns.snapshot.budget
    if not keeps_words(snapshot.settings):
        return ""
    head = snapshot.entries[: leading_fixed(snapshot.entries)]
    before = [entry.digest.text for entry in head if entry.is_user_block and entry.digest]
    block = await asyncio.to_thread(read_block, before)
    first = block.last_seq + 1
    room = budget.request_tokens + WORDS_PARTS * budget.words_tokens
    renew = sum(map(snapshot.counter.count, before)) + budget.words_tokens > room
    return await asyncio.to_thread(
        user_block,
        await turns.of_user(first, last_seq),
        before=block,
        span=(first, max(first, last_seq)),
        rules=pinned_rules(snapshot.settings.pin),
        first_tokens=min(budget.request_tokens, replaced * 2 // 5),
        tokens=budget.words_tokens * (WORDS_PARTS - 1) if renew else min(budget.words_tokens, replaced // 8),
        count=snapshot.counter.count,
        renew=renew,
    )
