"""Output limits: truncates the outputs of recorded messages that are over a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from contextstash.messages.detection import get_format
from contextstash.outputs.limits import OutputLimits, shared_limit
from contextstash.outputs.own_tools import is_own_retrieval
from contextstash.record.messages import in_thread_if_large
from contextstash.record.output_archive import limits_of
from contextstash.session.access import Access
from contextstash.session.edit import Planned, edit
from contextstash.session.open_session import READ_AT_ONCE, WITHIN_REACH
from contextstash.session.thinking_blocks import plan_stripping
from contextstash.view.edits import truncate_edit
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash_storage.records import Message, Session, TruncateEdit

STEP_PART = 2
"""The outputs of one step take at most the free window divided by this, if each keeps half of its own limit. With more,
a step of parallel calls fills a small window, which is then reduced at every step. Measured with bench/fidelity."""

Rules = Mapping[int, OutputLimits]
"""The limits of the outputs in each message, by its position."""


async def limit_outputs(
    access: Access, session: Session, messages: Sequence[Message], tokens: int | None = None
) -> Session:
    """Truncate the outputs among new messages that are over the session's limits, or take more than so many `tokens`,
    and return the changed session."""
    if not any(block.type == "tool_result" for message in messages for block in message.blocks):
        return session
    rules = _rules(access, session, messages, tokens)
    texts = await _over_limits(access, session, messages, rules)
    if not texts:
        return session

    async def plan() -> Planned[Session] | Session:
        snapshot = await access.snapshot(session.session_id, WITHIN_REACH)
        if snapshot.beyond is not None and min(texts)[0] <= snapshot.beyond.last_seq:
            snapshot = await access.snapshot(session.session_id)
        cut = await in_thread_if_large(sum(map(len, texts.values())), _truncate_edits, snapshot, texts, rules)
        if not cut:
            return snapshot.session
        stripping = plan_stripping(snapshot, min(each.seq for each in cut))
        return Planned(snapshot, cut, lambda changed, _: changed, stripping)

    return await edit(access, plan)


def _rules(access: Access, session: Session, messages: Sequence[Message], tokens: int | None) -> Rules:
    """The session's limits, or so many tokens for each; outputs of one step, such as of parallel calls, share its
    room."""
    settings = access.settings(session)
    own = limits_of(access, settings, session, {} if tokens is None else {"tokens": tokens})
    rules = dict.fromkeys([message.seq for message in messages], own)
    if settings.output_share is None or own.tokens is None or tokens is not None:
        return rules
    room = access.budget(settings, session.model, session).free // STEP_PART
    for step in _steps(messages):
        sizes = [block.tokens for message in step for block in message.blocks if block.type == "tool_result"]
        if sum(min(size, own.tokens) for size in sizes) > room:
            shared = replace(own, tokens=max(own.tokens // 2, shared_limit(sizes, room)))
            rules |= dict.fromkeys([message.seq for message in step], shared)
    return rules


def _steps(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages with tool outputs that follow each other."""
    for has_outputs, step in groupby(messages, lambda each: any(block.type == "tool_result" for block in each.blocks)):
        if has_outputs:
            yield list(step)


async def _over_limits(access: Access, session: Session, messages: Sequence[Message], rules: Rules) -> dict[Place, str]:
    """The texts of the outputs among these messages that are over a limit, by position and block. Only those are read
    that may be, judged by their sizes."""
    places = [
        (message.seq, place)
        for message in messages
        for place, block in enumerate(message.blocks)
        if block.type == "tool_result"
        and rules[message.seq].may_cut(block.size, block.tokens)
        and not is_own_retrieval(block.tool)
    ]
    seqs = sorted({seq for seq, _ in places})
    count = access.counter(access.settings(session), session.model).count
    fmt = get_format(session.format)
    over: dict[Place, str] = {}
    for start in range(0, len(seqs), READ_AT_ONCE):
        stored = await access.store.read_messages_at(session.session_id, seqs[start : start + READ_AT_ONCE])
        read = {message.seq: fmt.read(message.body or {}).texts for message in stored}
        texts = {(seq, place): read[seq][place] for seq, place in places if seq in read}

        def beyond(texts: Mapping[Place, str] = texts) -> dict[Place, str]:
            return {place: text for place, text in texts.items() if not rules[place[0]].holds(text, count)}

        over |= await in_thread_if_large(sum(map(len, texts.values())), beyond)
    return over


def _truncate_edits(snapshot: SessionSnapshot, texts: Mapping[Place, str], rules: Rules) -> list[TruncateEdit]:
    shown = {entry.first_seq: entry for entry in snapshot.entries if entry.message}
    edits = []
    for (seq, block), text in texts.items():
        output, before = snapshot.outputs.get((seq, block)), shown.get(seq)
        if output is None or before is None or block in before.replaced:
            continue
        if not is_own_retrieval(output.tool, output.argument):
            edits.append(truncate_edit(snapshot, output, text, rules[seq]))
    return edits
