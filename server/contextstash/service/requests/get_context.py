"""The message list for the next request, valid for its provider and within budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.context.tool_outputs.digest import digest_output
from contextstash.context.view.edits import archive_edit, truncate_edit
from contextstash.context.view.fit_to_budget import Fitted, fit
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.context.view.view import Entry, build_view, total_tokens
from contextstash.context.window import estimate as counting
from contextstash.formats import get_format
from contextstash.formats.base import Format
from contextstash.formats.breakpoints import first_edited
from contextstash.formats.render import render
from contextstash.service.reduction.thinking import first_changed, request_fields, strips_when_changed
from contextstash.service.results import ContextResult, LeftOut
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Message, Native, Output, Replacement, RewindEdit

REPAIR_TOKENS = 40
"""About the tokens of the result that is inserted for a tool call whose own result was never recorded."""


@dataclass(frozen=True)
class _Budget:
    """A budget in the provider's tokens, and the ratio of these to counted tokens."""

    tokens: int
    estimated: int
    ratio: float

    def counted(self, view: int) -> int:
        """The number of counted tokens at which the view's estimate is within the budget."""
        excess = self.estimated - self.tokens
        return view if excess <= 0 else view - math.ceil(excess / self.ratio)

    def after(self, view: int, fitted: int) -> int:
        """The estimate if the view has `fitted` counted tokens instead of `view`."""
        return max(0, self.estimated - math.floor((view - fitted) * self.ratio))


async def get_context(
    access: Access,
    session_id: str | None,
    *,
    format_name: str | None = None,
    system: str | None = None,
    budget: int | None = None,
) -> ContextResult:
    """The view as a valid message list for the provider. If it is over the budget, older outputs become placeholders
    and then the oldest messages are left out, for this request only; `left_out` reports them."""
    if budget is not None and budget <= 0:
        raise BadInputError("budget is a number of tokens above 0.")
    snapshot = await access.snapshot(session_id)
    session = snapshot.session
    if format_name is not None and get_format(format_name).name != snapshot.format.name:
        raise BadInputError(
            f"Session {session.session_id} holds {snapshot.format.name} messages; they are sent as they were recorded."
        )
    budget = budget or snapshot.budget.usable
    snapshot = await _without_large_summaries(access, snapshot, budget)
    messages = await access.visible_messages(session, snapshot.overlay, bodies=True)
    bodies = {message.seq: message.body or {} for message in messages}
    return await asyncio.to_thread(_compose, snapshot, bodies, system, budget)


async def _without_large_summaries(access: Access, snapshot: SessionSnapshot, budget: int) -> SessionSnapshot:
    """The snapshot without summaries that take `summary_share` of the budget or more: the messages they cover are sent
    instead, as far as they fit."""
    share = snapshot.settings.summary_share
    small = [
        cover
        for cover in snapshot.overlay.covers
        if share is None or isinstance(cover, RewindEdit) or cover.tokens < share * budget
    ]
    if len(small) == len(snapshot.overlay.covers):
        return snapshot
    overlay = replace(snapshot.overlay, covers=tuple(small))
    messages = await access.visible_messages(snapshot.session, overlay, bodies=False)
    return replace(snapshot, overlay=overlay, entries=tuple(build_view(messages, overlay)))


def _compose(snapshot: SessionSnapshot, bodies: Mapping[int, Native], system: str | None, budget: int) -> ContextResult:
    limit = _budget(snapshot, system, budget)
    view = total_tokens(snapshot.entries)
    notice = _notice(())
    fitted = fit(
        snapshot.entries,
        snapshot.outputs,
        limit.counted(view),
        lambda message, output, tokens: _shortened(snapshot, bodies, message, output, tokens),
        notice_tokens=snapshot.counter.count(notice) + 10,
        archive=snapshot.settings.fit_by == "archive",
        keep_messages=snapshot.settings.fit_keep_messages,
    )
    natives = _natives(snapshot, bodies, fitted)
    recorded_system = "" if snapshot.format.system_message("") else _system_text(snapshot, bodies)
    if system is not None and (head := snapshot.format.system_message(system)) is not None:
        kept = [native for native in natives if snapshot.format.read(native).role != "system"]
        natives = [head, *kept]
    tokens = limit.after(view, total_tokens(fitted.kept))
    return ContextResult(
        session_id=snapshot.session.session_id,
        format=snapshot.format.name,
        messages=render(snapshot.format, natives, changed=first_edited(natives, bodies.values())),
        system=(system or recorded_system or None) if snapshot.format.system_message("") is None else None,
        tokens=tokens,
        budget=budget,
        fits=fitted.excess == 0,
        left_out=_left_out(fitted.dropped),
        request=request_fields(snapshot, fitted.kept),
        reason=None if fitted.excess == 0 else _over(snapshot, fitted, tokens, budget),
    )


def _budget(snapshot: SessionSnapshot, system: str | None, budget: int) -> _Budget:
    counters = snapshot.session.counters
    estimated, _ = counting.estimate(counters, snapshot.settings, snapshot.counter.name)
    estimated += total_tokens(snapshot.entries) - counters.view_tokens
    if system is not None and counters.reported is None:
        estimated += snapshot.counter.count(system) + snapshot.settings.message_overhead
    estimated += REPAIR_TOKENS * _unanswered(snapshot.entries)
    return _Budget(budget, estimated, counting.growth_ratio(counters, snapshot.settings))


def _unanswered(entries: Sequence[Entry]) -> int:
    calls = 0
    for entry in entries:
        for block in entry.message.blocks if entry.message else ():
            calls += (block.type == "tool_call") - (block.type == "tool_result")
    return max(0, calls)


def _shortened(
    snapshot: SessionSnapshot, bodies: Mapping[int, Native], message: Message, output: Output, tokens: int | None
) -> Replacement:
    text = snapshot.format.read(bodies[message.seq]).texts[output.block]
    if tokens is None:
        digest = digest_output(output.tool, output.argument, text, output.is_error)
        return archive_edit(snapshot, output, digest)
    return truncate_edit(snapshot, output, text, tokens)


def _natives(snapshot: SessionSnapshot, bodies: Mapping[int, Native], fitted: Fitted) -> list[Native]:
    natives: list[Native] = []
    dropped_at = fitted.dropped[0].first_seq if fitted.dropped else None
    changed = first_changed(snapshot.entries, fitted.kept) if strips_when_changed(snapshot) else None
    for entry in fitted.kept:
        if dropped_at is not None and entry.first_seq > dropped_at:
            natives.append(snapshot.format.user_message(_notice(fitted.dropped)))
            dropped_at = None
        strip = changed is not None and entry.first_seq > changed
        natives += native_of(snapshot.format, bodies, replace(entry, stripped=True) if strip else entry)
    if dropped_at is not None:
        natives.append(snapshot.format.user_message(_notice(fitted.dropped)))
    return natives


def native_of(fmt: Format, bodies: Mapping[int, Native], entry: Entry) -> list[Native]:
    """An entry in its provider's JSON; empty if the message held only thinking, and that is stripped."""
    if entry.message is None:
        return [fmt.user_message(entry.edit.text)]
    body: Native | None = bodies[entry.message.seq]
    if entry.replaced and body is not None:
        body = fmt.replace(body, {block: edit.text for block, edit in entry.replaced.items()})
    if entry.stripped and body is not None:
        body = fmt.without_thinking(body)
    return [] if body is None else [body]


def _notice(dropped: Sequence[Entry]) -> str:
    count = sum(1 for entry in dropped if entry.message)
    return (
        f"[contextstash: {count} earlier messages are left out here to fit the context window."
        " Nothing is lost: search_history finds them, get_archived_output returns tool outputs.]"
    )


def _system_text(snapshot: SessionSnapshot, bodies: Mapping[int, Native]) -> str:
    texts: list[str] = []
    for entry in snapshot.entries:
        if entry.is_system and entry.message:
            texts += snapshot.format.read(bodies[entry.message.seq]).texts
    return "\n\n".join(text for text in texts if text)


def _left_out(dropped: Sequence[Entry]) -> LeftOut | None:
    if not dropped:
        return None
    return LeftOut(
        messages=sum(1 for entry in dropped if entry.message),
        tokens=total_tokens(dropped),
        first_seq=dropped[0].first_seq,
        last_seq=dropped[-1].last_seq,
    )


def _over(snapshot: SessionSnapshot, fitted: Fitted, tokens: int, budget: int) -> str:
    largest = max(fitted.kept, key=lambda entry: entry.tokens)
    unrecorded = tokens - total_tokens(fitted.kept)
    extra = (
        f", and about {unrecorded:,} tokens are not recorded messages (system prompt, tools)" if unrecorded > 0 else ""
    )
    return (
        f"The {len(fitted.kept)} messages that must stay take about {tokens:,} tokens, over the budget of {budget:,}."
        f" The largest is message {largest.last_seq} with {largest.tokens:,}{extra}."
    )
