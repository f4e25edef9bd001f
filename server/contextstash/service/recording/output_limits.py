"""Output limits: truncates a tool output that is over a limit, after archiving the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.context.tool_outputs.limits import OutputLimits
from contextstash.context.tool_outputs.self_retrievals import is_own_retrieval
from contextstash.context.view.edits import limited_edit, replaced, weighed
from contextstash.context.view.session_snapshot import Place, SessionSnapshot
from contextstash.context.window.token_counters import Counter
from contextstash.formats import get_format
from contextstash.service.apply_edits import entries_after, retrying
from contextstash.service.recording.single_output import in_thread_if_large, limits_of
from contextstash.service.session_access import READ_AT_ONCE, Access
from contextstash.service.thinking import plan_stripping
from contextstash.service.view_reader import WITHIN_REACH
from contextstash_storage.records import Appended, Edit, Message, Session, TruncateEdit


def check_limits(limits: Mapping[str, Any] | None) -> None:
    """Raises BadInputError if these are not valid limits of an output; the message names the nearest valid name."""
    OutputLimits().merged(limits)


async def limit_outputs(access: Access, appended: Appended, limits: Mapping[str, Any] | None = None) -> Session:
    """Truncate the outputs among new messages that are over the session's limits, and return the changed session.
    `limits` override the session's for this call. Raises BadInputError if a limit is invalid."""
    session = appended.session
    rules = limits_of(access, access.settings(session), session, limits)
    texts = await _over_limits(access, session, appended.messages, rules)
    if not texts:
        return session

    async def attempt() -> Session:
        snapshot = await access.snapshot(session.session_id, WITHIN_REACH)
        if snapshot.beyond is not None and min(texts)[0] <= snapshot.beyond.last_seq:
            snapshot = await access.snapshot(session.session_id)
        cut = await in_thread_if_large(texts.values(), _truncate_edits, snapshot, texts, rules)
        if not cut:
            return snapshot.session
        stripping = plan_stripping(snapshot, min(edit.seq for edit in cut))
        handles = [edit.handle for edit in cut]
        edits: list[Edit] = [*cut, *stripping.edits(snapshot, await entries_after(access, snapshot, cut), handles)]
        return await access.store.append_edits(session.session_id, edits, expected=len(snapshot.edits))

    return await retrying(attempt)


async def _over_limits(
    access: Access, session: Session, messages: Sequence[Message], rules: OutputLimits
) -> dict[Place, str]:
    """The texts of the outputs among these messages that are over a limit, by position and block."""
    seqs = [message.seq for message in messages if _places(message, rules)]
    if not seqs:
        return {}
    counter = access.counter(access.settings(session), session.model)
    fmt = get_format(session.format)
    over: dict[Place, str] = {}
    for start in range(0, len(seqs), READ_AT_ONCE):
        stored = await access.store.read_messages_at(session.session_id, seqs[start : start + READ_AT_ONCE])
        texts = {
            (message.seq, place): text
            for message in stored
            for place, text in enumerate(fmt.read(message.body or {}).texts)
            if place in _places(message, rules)
        }
        over |= await in_thread_if_large(texts.values(), _over_limit, texts, rules, counter)
    return over


def _places(message: Message, rules: OutputLimits) -> list[int]:
    """The blocks of a message that may be over a limit, judged by their sizes, without reading their texts."""
    return [
        place
        for place, block in enumerate(message.blocks)
        if block.type == "tool_result" and rules.may_cut(block.size, block.tokens) and not is_own_retrieval(block.tool)
    ]


def _over_limit(texts: Mapping[Place, str], rules: OutputLimits, counter: Counter) -> dict[Place, str]:
    return {place: text for place, text in texts.items() if not rules.holds(text, counter.count)}


def _truncate_edits(snapshot: SessionSnapshot, texts: Mapping[Place, str], rules: OutputLimits) -> list[TruncateEdit]:
    shown = {entry.first_seq: entry for entry in snapshot.entries if entry.message}
    edits = []
    for (seq, block), text in texts.items():
        output = snapshot.outputs.get((seq, block))
        before = shown.get(seq)
        if output is None or before is None or block in before.replaced:
            continue
        if is_own_retrieval(output.tool, output.argument):
            continue
        edit = limited_edit(snapshot, output, text, rules)
        after = shown[seq] = replaced(before, block, edit)
        edits.append(weighed(edit, before, after))
    return edits
