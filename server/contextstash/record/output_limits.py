"""Output limits: truncates a tool output that is over a limit, after archiving the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from contextstash.messages import get_format
from contextstash.outputs.limits import OutputLimits, limit, shared_limit
from contextstash.outputs.own_tools import is_own_retrieval
from contextstash.record.messages import in_thread_if_large
from contextstash.record.output_archive import keep_output
from contextstash.session.access import Access
from contextstash.session.edit import Planned, edit
from contextstash.session.open_session import READ_AT_ONCE, WITHIN_REACH
from contextstash.session.thinking import plan_stripping
from contextstash.view.edits import truncate_edit
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import Message, Session, TruncateEdit

STEP_PART = 2
"""The outputs of one step take at most the free window divided by this, if each keeps half of its own limit. With more,
a step of parallel calls fills a small window, which is then reduced at every step. Measured with bench/fidelity."""

Rules = Mapping[int, OutputLimits]
"""The limits of the outputs in each message, by its position."""


class LimitedOutput(NamedTuple):
    """One output within limits. If it was cut, the whole is archived under `handle`."""

    text: str
    handle: str | None = None

    @property
    def cut(self) -> bool:
        """Whether something of it was left out."""
        return self.handle is not None


async def limit_output(
    access: Access,
    text: str,
    *,
    tool: str = "clip",
    argument: str = "",
    session_id: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> LimitedOutput:
    """Truncate one output that is in no recorded message to the limits of a session, or of the server if no session is
    named. `limits` override them for this call.

    If the output is truncated, the whole is stored before this returns, in a session that only archives outputs: the
    one that belongs to the named session, or a common one. The same output is stored once and has the same handle. The
    results of contextstash's own retrieval tools are never truncated, and neither are outputs of a session that was
    deleted: nothing of it is stored again. Raises BadInputError if a limit is invalid, and
    StoreError if the whole cannot be stored.
    """
    session = await access.find(session_id)
    if session is None and session_id is not None and await access.was_deleted(session_id):
        return LimitedOutput(text)
    settings = access.settings(session)
    rules = _limits_of(access, settings, session, limits)
    count = access.counter(settings, session.model if session else None).count
    if is_own_retrieval(tool, argument) or await in_thread_if_large(len(text), rules.holds, text, count):
        return LimitedOutput(text)
    handle = await keep_output(access, text, tool=tool, argument=argument, session_id=session_id)
    limited = await in_thread_if_large(len(text), limit, text, rules, count, handle)
    return LimitedOutput(limited.text, handle)


def _limits_of(
    access: Access, settings: ContextSettings, session: Session | None, given: Mapping[str, Any] | None
) -> OutputLimits:
    """The limits of an output: those of the settings, scaled to the window, and over them those given for one call.
    Raises BadInputError if one of these is invalid."""
    # The window scales the limit in tokens alone, and to find a model's window takes longer than a hook should.
    if given is not None and "tokens" in given:
        return OutputLimits.of(settings, settings.window).merged(given)
    budget = access.budget(settings, session.model if session else None, session)
    return OutputLimits.of(settings, budget.window - (budget.usable - budget.free)).merged(given)


async def limit_outputs(
    access: Access, session: Session, messages: Sequence[Message], limits: Mapping[str, Any] | None = None
) -> Session:
    """Truncate the outputs among new messages that are over the session's limits, and return the changed session.
    `limits` override the session's for this call."""
    if not any(block.type == "tool_result" for message in messages for block in message.blocks):
        return session
    rules = _rules(access, session, messages, limits)
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


def _rules(access: Access, session: Session, messages: Sequence[Message], limits: Mapping[str, Any] | None) -> Rules:
    """The session's limits, or those of this call; outputs of one step, such as of parallel calls, share its room."""
    settings = access.settings(session)
    own = _limits_of(access, settings, session, limits)
    rules = dict.fromkeys([message.seq for message in messages], own)
    if settings.output_share is None or own.tokens is None or "tokens" in (limits or {}):
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
