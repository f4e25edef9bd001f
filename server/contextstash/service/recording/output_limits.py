"""Output limits: truncates a tool output that is over a limit, after archiving the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from contextstash.context.tool_outputs.limits import OutputLimits, shared_limit
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

STEP_PART = 2
"""The outputs of one step take at most the free window divided by this, if each keeps half of its own limit. With more,
a step of parallel calls fills a small window, which is then reduced at every step. Measured with bench/fidelity."""


def check_limits(limits: Mapping[str, Any] | None) -> None:
    """Raises BadInputError if these are not valid limits of an output; the message names the nearest valid name."""
    OutputLimits().merged(limits)


async def limit_outputs(access: Access, appended: Appended, limits: Mapping[str, Any] | None = None) -> Session:
    """Truncate the outputs among new messages that are over the session's limits, and return the changed session.
    `limits` override the session's for this call. Raises BadInputError if a limit is invalid."""
    session = appended.session
    rules = _rules(access, appended, limits)
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


Rules = Mapping[int, OutputLimits]
"""The limits of the outputs in each message, by its position."""


def _rules(access: Access, appended: Appended, limits: Mapping[str, Any] | None) -> Rules:
    """The session's limits, or those of this call; outputs of one step, such as of parallel calls, share its room."""
    session = appended.session
    settings = access.settings(session)
    own = limits_of(access, settings, session, limits)
    rules = dict.fromkeys([message.seq for message in appended.messages], own)
    if settings.output_share is None or own.tokens is None or "tokens" in (limits or {}):
        return rules
    room = access.budget(settings, session.model, session).free // STEP_PART
    for step in _steps(appended.messages):
        sizes = [block.tokens for message in step for block in message.blocks if block.type == "tool_result"]
        if sum(min(size, own.tokens) for size in sizes) > room:
            shared = replace(own, tokens=max(own.tokens // 2, shared_limit(sizes, room)))
            rules |= dict.fromkeys([message.seq for message in step], shared)
    return rules


def _steps(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages with tool outputs that follow each other."""
    for has_outputs, step in groupby(
        messages, lambda message: any(block.type == "tool_result" for block in message.blocks)
    ):
        if has_outputs:
            yield list(step)


async def _over_limits(access: Access, session: Session, messages: Sequence[Message], rules: Rules) -> dict[Place, str]:
    """The texts of the outputs among these messages that are over a limit, by position and block."""
    seqs = [message.seq for message in messages if _places(message, rules[message.seq])]
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
            if place in _places(message, rules[message.seq])
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


def _over_limit(texts: Mapping[Place, str], rules: Rules, counter: Counter) -> dict[Place, str]:
    return {place: text for place, text in texts.items() if not rules[place[0]].holds(text, counter.count)}


def _truncate_edits(snapshot: SessionSnapshot, texts: Mapping[Place, str], rules: Rules) -> list[TruncateEdit]:
    shown = {entry.first_seq: entry for entry in snapshot.entries if entry.message}
    edits = []
    for (seq, block), text in texts.items():
        output = snapshot.outputs.get((seq, block))
        before = shown.get(seq)
        if output is None or before is None or block in before.replaced:
            continue
        if is_own_retrieval(output.tool, output.argument):
            continue
        edit = limited_edit(snapshot, output, text, rules[seq])
        after = shown[seq] = replaced(before, block, edit)
        edits.append(weighed(edit, before, after))
    return edits
