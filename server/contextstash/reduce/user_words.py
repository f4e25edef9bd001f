"""The user's words in a view: the messages that hold them, and the next one that a compaction adds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from contextstash.events.calls import is_dialog
from contextstash.events.turns import Turn, without_own_calls
from contextstash.handoff.user_block import pinned_rules, read_block, rules_block, user_block
from contextstash.reduce.digests import digest_edit, last_anchor
from contextstash.reduce.summary_request import turn_of
from contextstash.safety.sanitize import USER_BLOCK_WHOLE
from contextstash.session.access import Access
from contextstash.session.open_session import READ_AT_ONCE
from contextstash.view.compaction_plan import leading_fixed
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import DigestEdit, Message, Part, RewindEdit

WORDS_PARTS = 4
"""All messages with the user's words take at most so many times what a compaction adds, beside the first request: then
they are written again as one, which costs the prompt cache once. A larger share would leave less room for the
conversation."""

BEFORE_ALL = -1
"""The position of an added message that is shown before the first recorded one."""


def keeps_words(settings: ContextSettings) -> bool:
    """Whether views have the user's words in messages of their own. The presets that reproduce other systems have
    them in or behind their one summary."""
    return settings.low_water is not None


def word_texts(snapshot: SessionSnapshot) -> list[str]:
    """The messages with the user's words at the head of the view, in order."""
    head = snapshot.entries[: leading_fixed(snapshot.entries)]
    return [entry.digest.text for entry in head if entry.is_user_block and entry.digest]


def rules_edit(snapshot: SessionSnapshot) -> DigestEdit | None:
    """The edit that shows pinned rules which the view does not show yet, at its end, so that what was sent before stays
    as it was; None if there are none. The next compaction moves them to the user's words at the head."""
    if not keeps_words(snapshot.settings):
        return None
    shown = read_block(entry.digest.text for entry in snapshot.entries if entry.is_user_block and entry.digest)
    text = rules_block(pinned_rules(snapshot.settings.pin), shown.rules)
    anchor = last_anchor(snapshot.entries)
    if not text or anchor is None:
        return None
    return digest_edit(snapshot, anchor, text, (PINNED,))


PINNED = "pinned"
"""Stands for the handle in an edit that shows pinned rules: it belongs to no output and no summary."""


async def words_until(
    access: Access, snapshot: SessionSnapshot, last_seq: int, before: Sequence[str], replaced: int
) -> str:
    """The user's words up to a message, as far as the texts `before` do not have them; empty if there are none. They
    stay clearly below the `replaced` tokens that the compaction frees."""
    block = await asyncio.to_thread(read_block, before)
    first = block.last_seq + 1
    turns = await user_turns(access, snapshot, first, last_seq)
    budget = snapshot.budget
    room = budget.request_tokens + WORDS_PARTS * budget.words_tokens
    renew = sum(map(snapshot.counter.count, before)) + budget.words_tokens > room
    return await asyncio.to_thread(
        user_block,
        turns,
        before=block,
        span=(first, max(first, last_seq)),
        rules=pinned_rules(snapshot.settings.pin),
        first_tokens=min(budget.request_tokens, replaced * 2 // 5),
        tokens=budget.words_tokens * (WORDS_PARTS - 1) if renew else min(budget.words_tokens, replaced // 8),
        count=snapshot.counter.count,
        renew=renew,
    )


@dataclass(frozen=True)
class Words:
    """The user's words beside a new summary: all texts as one, and what a compaction up to message `last_seq` adds to
    them."""

    told: str = ""
    added: str = ""
    last_seq: int = -1

    def edits(self, snapshot: SessionSnapshot, summary_id: str) -> list[DigestEdit]:
        """The edit that shows what is added, if anything is."""
        return [words_edit(snapshot, self.added, summary_id, self.last_seq)] if self.added else []


async def words_with(access: Access, snapshot: SessionSnapshot, last_seq: int, replaced: int) -> Words:
    """The user's words in the view once a compaction up to a message has replaced so many tokens."""
    if not keeps_words(snapshot.settings):
        return Words()
    before = word_texts(snapshot)
    added = await words_until(access, snapshot, last_seq, before, replaced)
    return Words("\n\n".join([*before, added]), added, last_seq)


def words_edit(snapshot: SessionSnapshot, text: str, summary_id: str, last_seq: int) -> DigestEdit:
    """The edit that shows the user's words after the system messages. It is undone with its summary, which covers the
    messages up to `last_seq`."""
    fixed = leading_fixed(snapshot.entries)
    head = [entry for entry in snapshot.entries[:fixed] if entry.message]
    tokens = snapshot.counter.count(text) + snapshot.settings.message_overhead
    renewed = text.startswith(USER_BLOCK_WHOLE)
    standing = [entry for place, entry in enumerate(snapshot.entries) if place < fixed or entry.last_seq > last_seq]
    gone = [entry.tokens for entry in standing if entry.is_user_block] if renewed else []
    return DigestEdit(
        after_seq=head[-1].last_seq if head else BEFORE_ALL,
        handles=(summary_id,),
        text=text,
        tokens=tokens,
        delta={Part.SUMMARIES: tokens - sum(gone)},
        view_messages=1 - len(gone),
    )


MAX_WHOLE = 1_500
"""Of so many messages all are read, of more only those that may hold the user's words. As summary_request.MAX_READ."""


async def user_turns(access: Access, snapshot: SessionSnapshot, first: int, last: int) -> tuple[Turn, ...]:
    """The messages in a range that tell what the user said, and what it was said to; without abandoned branches."""
    if last < first:
        return ()
    undone = {number for edit in snapshot.edits if edit.kind == "restore" for number in edit.undoes}
    rewinds = [edit for edit in snapshot.edits if isinstance(edit, RewindEdit) and edit.edit_id not in undone]
    wanted = _Wanted(everything=last - first < MAX_WHOLE)
    for start in range(first, last + 1, READ_AT_ONCE):
        end = min(last, start + READ_AT_ONCE - 1)
        for message in await access.store.read_messages(snapshot.session_id, first=start, last=end, bodies=False):
            if message.agent_visible and not any(edit.first_seq <= message.seq <= edit.last_seq for edit in rewinds):
                wanted.add(message)
    messages = await access.messages_at(snapshot, wanted.seqs)
    return await asyncio.to_thread(
        lambda: without_own_calls(turn_of(snapshot, message, snapshot.handles) for message in messages)
    )


@dataclass
class _Wanted:
    """The positions of the messages to read: all, or of many the user's, the assistant's before each, and dialogs."""

    everything: bool
    seqs: set[int] = field(default_factory=set)
    _calls: dict[str, int] = field(default_factory=dict)
    _said: int | None = None

    def add(self, message: Message) -> None:
        """The next message that the view shows or has shown."""
        for block in message.blocks:
            if block.type == "tool_call" and block.call_id:
                self._calls[block.call_id] = message.seq
            elif block.type == "tool_result":
                called = self._calls.get(block.call_id or "", message.seq)
                if block.is_error or is_dialog(block.tool or ""):
                    self.seqs |= {message.seq, called}
        if message.role == "assistant":
            self._said = message.seq
        elif message.role == "user" and any(block.type == "text" for block in message.blocks):
            self.seqs |= {message.seq} | ({self._said} if self._said is not None else set())
        if self.everything:
            self.seqs.add(message.seq)
