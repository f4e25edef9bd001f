"""The message list for the next request, valid for its provider and within budget; and for the one after the provider
refused a request as too long: our estimate is corrected, and the view shrunk."""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from contextstash.messages.base import Format
from contextstash.messages.detection import detect_format, get_format
from contextstash.messages.rules import KnownParts, render
from contextstash.outputs.limits import OutputLimits
from contextstash.record.declared import System, Tools, declare, declared_system, reading_of, with_system
from contextstash.record.messages import OTHER_WRITER
from contextstash.reduce.compact import compact_session
from contextstash.reduce.prune import prune_tool_outputs
from contextstash.results import ContextResult, LeftOut, RecoverResult
from contextstash.session.access import Access, estimate_session
from contextstash.session.edit import (
    Planned,
    archived,
    changed_entries,
    edit,
    log_event,
    plan_stripping,
    request_fields,
    strip_after,
)
from contextstash.session.open_session import Scope
from contextstash.view.ladder import Fitted, cut_candidates, fit, leading_kept
from contextstash.view.session_snapshot import (
    Beyond,
    SessionSnapshot,
    pinned_text,
    refused,
    request_excess,
    truncate_edit,
)
from contextstash.view.view import Entry, total_tokens
from contextstash.window.refusals import ContextOverflow, recognize
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import (
    ArchiveEdit,
    DeclaredVersion,
    Edit,
    Event,
    LeftOutSpan,
    Native,
    Output,
    Replacement,
    Request,
    RestoreEdit,
    Session,
    TruncateEdit,
)

REPAIR_TOKENS = 40
"""About the tokens of the result that is inserted for a tool call whose own result was never recorded."""

EVERYTHING = LeftOutSpan(first_seq=0, last_seq=sys.maxsize, messages=0, tokens=0)

NOTICE_OVERHEAD = 10
"""Tokens of the notice about left-out messages in addition to its text: its message, and digits of a larger number."""

NOTHING_TO_SEND = "Nothing to send: the session has no message with content that its provider accepts."

LOWER_THE_REPLY = (
    "The tokens reserved for the reply alone fill the window: no smaller context helps. Send the same messages again"
    " with a lower max_tokens."
)

RECOVERED_ALREADY = (
    "Recovered once already and nothing was recorded since: the context cannot be made smaller. The breakdown says what"
    " fills the window: use a model with a larger one, fewer tools, or a new session that starts from get_summary."
)


@dataclass(frozen=True)
class _Sources:
    """What a message list is made of: the session, the tokens that the request may take, the known parts of its
    messages, the declared system prompt, and up to which position the last request left everything out, -1 if
    nothing."""

    snapshot: SessionSnapshot
    tokens: int
    parts: KnownParts
    system: DeclaredVersion | None
    left_out: int

    def text_of(self, output: Output) -> str:
        """The full text of an output."""
        return self.snapshot.format.read(self.snapshot.messages_with_bodies[output.seq].body or {}).texts[output.block]

    def shortened(self, output: Output, tokens: int | None) -> Replacement:
        """The edit that cuts an output to so many tokens, or without a number archives it."""
        text = self.text_of(output)
        if tokens is not None:
            limits = OutputLimits(tokens=tokens, cut=self.snapshot.settings.output_cut)
            return truncate_edit(self.snapshot, output, text, limits)
        return archived(self.snapshot, [(output, text)])[0].edit

    def notice(self, span: LeftOutSpan) -> str:
        """The message that stands for those that are left out, with the pinned outputs among them."""
        pinned = [
            (output, self.text_of(output))
            for output in self.snapshot.pinned.values()
            if span.first_seq <= output.seq <= span.last_seq and output.seq in self.snapshot.messages_with_bodies
        ]
        said = (
            f"[contextstash: {span.messages} earlier messages are left out here to fit the context window."
            " Nothing is lost: search_history finds them, get_archived_output returns tool outputs.]"
        )
        return "\n\n".join([said, *([pinned_text(self.snapshot, pinned)] if pinned else [])])

    def notice_tokens(self, span: LeftOutSpan | None) -> int:
        """The tokens of this message."""
        if span is None:
            return 0
        empty = span.model_copy(update={"messages": 0})
        return self.snapshot.counter.count(self.notice(empty)) + NOTICE_OVERHEAD


@dataclass(frozen=True)
class _Composed:
    """A request: the edits that shrink the view and stay, what is left out of it, its size by our count, and what the
    caller gets."""

    sources: _Sources
    edits: tuple[Edit, ...]
    left_out: LeftOutSpan | None
    counted: int
    result: ContextResult


async def check_next_request(
    access: Access, session_id: str | None, natives: Sequence[Native], format_name: str | None
) -> None:
    """Raises BadInputError if a conversation for the next request has a result behind the last reply without a call in
    front of it. It could be recorded, as any broken list can, but the provider would refuse the request. Older results
    are not looked at: clients shorten their lists. Of a list that is right, only the end is read."""
    session = await access.find(session_id)
    fmt = get_format((session.format if session else format_name) or detect_format(natives))
    missing: set[str] = set()
    is_end = True
    for native in reversed(natives):
        read = reading_of(fmt, native)
        is_end = is_end and (read is None or read.role != "assistant")
        for block in read.blocks if read else ():
            if block.type == "tool_call":
                missing.discard(block.call_id or "")
            elif block.type == "tool_result" and is_end and block.call_id:
                missing.add(block.call_id)
        if not missing and not is_end:
            return
    if missing:
        raise BadInputError(
            f"messages holds the result of the call {min(missing)}, but not the reply with this call. Pass the whole"
            " conversation each time, and append each reply of the model to it (in a Python program:"
            " messages += await session.reply(reply))."
        )


async def get_context(
    access: Access, session_id: str | None, *, budget: int | None = None, messages: int | None = None
) -> ContextResult:
    """The view as a valid message list for the provider, recorded as a request. If it is over the budget, tool outputs
    are archived or cut, which is recorded as edits; then the oldest messages are left out, of later requests too.

    A client that sends its own history does not send this list: for it nothing is recorded. Raises BadInputError if the
    session no longer has `messages` messages: another agent's conversation would be sent."""

    async def plan() -> Planned[tuple[Session, _Composed]] | tuple[Session, _Composed]:
        made = await _planned(access, session_id, budget)
        snapshot = made.sources.snapshot
        if messages is not None and snapshot.session.counters.messages != messages:
            raise BadInputError(OTHER_WRITER.format(snapshot.session_id))
        if snapshot.session.source or not made.edits:
            return snapshot.session, made
        reason = " ".join(made.result.done or ())
        return Planned(snapshot, made.edits, lambda session, _: (session, made), kind="prune", reason=reason)

    session, made = await edit(access, plan)
    if session.source is not None:
        return made.result
    counters = session.counters
    request = Request(
        messages=counters.messages,
        edits=counters.edits,
        appended=counters.appended,
        declared=counters.declared,
        left_out=made.left_out,
        shortened=tuple(edit.handle for edit in made.edits if isinstance(edit, Replacement)),
        budget=made.sources.tokens,
        counted=made.counted,
        tokens=made.result.tokens,
    )
    request = await access.store.append_request(session.session_id, request)
    return made.result.model_copy(update={"request_id": f"req_{request.number}"})


async def read_context(access: Access, session_id: str | None, *, budget: int | None = None) -> ContextResult:
    """The message list that a request would hold now; nothing is recorded."""
    return (await _planned(access, session_id, budget)).result


async def _planned(access: Access, session_id: str | None, budget: int | None) -> _Composed:
    """The request now: of a view far larger than the budget from the part within its reach, unless that turns out not
    to be enough."""
    if budget is not None and budget <= 0:
        raise BadInputError("budget is a number of tokens above 0.")
    for within_reach in (True, False):
        sources = await _read(access, session_id, budget, within_reach)
        made = await asyncio.to_thread(_composed, sources)
        if made is not None:
            return made
    raise AssertionError("a request of a whole view needs nothing beyond it")


async def _read(access: Access, session_id: str | None, budget: int | None, within_reach: bool) -> _Sources:
    opened = access.opened(await access.session_id(session_id))
    known = await opened.now()
    # What the last request left out stays left out, unless something was restored since: whoever restores wants it
    # back, and the request must be the same as if nothing had been left out.
    after, last = -1, known.request
    if last is not None and last.left_out is not None:
        restored = any(isinstance(edit, RestoreEdit) for edit in known.edits[last.edits :])
        after = -1 if restored else last.left_out.last_seq
    scope = Scope(bodies=True, within_reach=within_reach, budget=budget, after=after)
    snapshot = await access.snapshot_of(known, scope)
    limit = budget or snapshot.budget.usable
    return _Sources(snapshot, limit, opened.parts, await declared_system(access, known.session), after)


def _composed(sources: _Sources) -> _Composed | None:
    """The request with its message list: what must be shortened and left out, in addition to what the last request left
    out. None if it would show something beyond the reach of the snapshot."""
    snapshot = sources.snapshot
    left_out = _left_out(snapshot, sources.left_out)
    fitted = _fitted(sources, left_out)
    edits: list[Edit] = list(fitted.edits)
    if edits:
        stripping = plan_stripping(snapshot, min(edit.seq for edit in fitted.edits), needed=True)
        edits += stripping.edits(snapshot, fitted.edits)
    if fitted.dropped:
        last = max(fitted.dropped[-1].last_seq, sources.left_out)
        left_out = _left_out(snapshot, last)
        edits += strip_after(snapshot, changed_entries(snapshot, edits), last + 1)
    if (left_out.last_seq if left_out else -1) < snapshot.beyond.last_seq:
        return None
    sent = _shown(changed_entries(snapshot, edits) if edits else snapshot.entries, left_out)
    size = total_tokens(sent) + _repair_tokens(sent) + sources.notice_tokens(left_out)
    tokens = max(0, snapshot.estimate[0] - snapshot.session.counters.view_tokens + size)
    fits = fitted.excess == 0 or tokens <= sources.tokens
    counts = {"Archived": sum(isinstance(each, ArchiveEdit) for each in edits)}
    counts["Cut"] = sum(isinstance(each, TruncateEdit) for each in edits)
    done = [f"{verb} {n} tool output{'s' * (n > 1)} to fit this request." for verb, n in counts.items() if n]
    result = _result(sources, sent, left_out, tokens, fits=fits, done=done or None)
    return _Composed(sources, tuple(edits), left_out, size, result)


def _repair_tokens(entries: Sequence[Entry]) -> int:
    """What is inserted for calls without a result."""
    return REPAIR_TOKENS * max(0, sum([entry.open_calls for entry in entries]))


def _fitted(sources: _Sources, known: LeftOutSpan | None) -> Fitted:
    snapshot = sources.snapshot
    # Which messages will be left out is not known yet: room for all pinned outputs, which the notice repeats.
    notice = sources.notice_tokens(EVERYTHING)
    counters, entries = snapshot.session.counters, _shown(snapshot.entries, known)
    excess = request_excess(counters, snapshot.settings, snapshot.counter, sources.tokens) + _repair_tokens(entries)
    budget = counters.view_tokens - excess - (notice if known else 0)
    return fit(snapshot, entries, budget, sources.shortened, notice_tokens=0 if known else notice)


def _left_out(snapshot: SessionSnapshot, last: int) -> LeftOutSpan | None:
    """What a request leaves out that leaves out everything behind the head of the view up to a position; None if that
    is nothing."""
    head = leading_kept(snapshot.entries)
    out = [entry for entry in snapshot.entries[head:] if entry.last_seq <= last and not entry.summary]
    beyond = snapshot.beyond if last >= snapshot.beyond.first_seq else Beyond()
    if not out and not beyond.messages:
        return None
    return LeftOutSpan(
        first_seq=beyond.first_seq if beyond.messages else out[0].first_seq,
        last_seq=last,
        messages=sum(1 for entry in out if entry.message) + beyond.messages,
        tokens=total_tokens(out) + beyond.tokens,
    )


def _shown(entries: Sequence[Entry], left_out: LeftOutSpan | None) -> Sequence[Entry]:
    """The entries of a view without those that a span leaves out; no summary is left out."""
    if left_out is None:
        return entries
    first = bisect_left(entries, left_out.first_seq, key=attrgetter("first_seq"))
    end = bisect_right(entries, left_out.last_seq, lo=first, key=attrgetter("last_seq"))
    return [*entries[:first], *(entry for entry in entries[first:end] if entry.summary), *entries[end:]]


def _result(
    sources: _Sources, sent: Sequence[Entry], left_out: LeftOutSpan | None, tokens: int, **said: Any
) -> ContextResult:
    snapshot, fmt = sources.snapshot, sources.snapshot.format
    natives, system = with_system(fmt, _natives(sources, sent, left_out), sources.system)
    messages = render(fmt, natives, sources.parts)
    return ContextResult(
        session_id=snapshot.session_id,
        format=fmt.name,
        messages=messages,
        system=system,
        tokens=tokens,
        budget=sources.tokens,
        left_out=None if left_out is None else LeftOut.of(left_out),
        request=request_fields(snapshot, sent),
        reason=(None if messages else NOTHING_TO_SEND) if said["fits"] else _over(sources, sent, tokens),
        **said,
    )


def _natives(sources: _Sources, sent: Sequence[Entry], span: LeftOutSpan | None) -> list[Native]:
    fmt = sources.snapshot.format
    natives: list[Native] = []
    for entry in sent:
        if span is not None and entry.first_seq > span.first_seq:
            natives.append(fmt.user_message(sources.notice(span)))
            span = None
        if entry.message is None:
            natives.append(fmt.user_message(entry.edit.text))
        elif entry.replaced or entry.stripped:
            natives += _changed(fmt, entry, entry.message.body or {})
        else:
            natives.append(entry.message.body or {})
    return natives if span is None else [*natives, fmt.user_message(sources.notice(span))]


def _changed(fmt: Format, entry: Entry, body: Native) -> list[Native]:
    """A changed message in its provider's JSON; empty if it held only thinking, and that is stripped."""

    def made() -> list[Native]:
        changed = fmt.replace(body, {block: edit.text for block, edit in entry.replaced.items()})
        shown = fmt.without_thinking(changed) if entry.stripped else changed
        return [] if shown is None else [shown]

    return entry.sent(body, made)


def _over(sources: _Sources, sent: Sequence[Entry], tokens: int) -> str:
    declared, largest = sources.snapshot.session.counters.declared, max((entry.tokens for entry in sent), default=0)
    parts = {"the system prompt": declared.system_tokens, "the tool definitions": declared.tools_tokens}
    parts["what was not declared of these"] = tokens - total_tokens(sent) - sum(parts.values())
    parts["the largest message"] = largest
    named = ", ".join(f"{name} about {count:,}" for name, count in parts.items() if count > 0)
    return f"What must stay takes about {tokens:,} tokens, over the budget of {sources.tokens:,}: {named}."


# After a refusal.


async def recover_context(
    access: Access,
    session_id: str | None = None,
    *,
    error: str | Mapping[str, Any],
    system: System | None = None,
    tools: Tools | None = None,
) -> RecoverResult:
    """The messages to send, once, instead of a request that was refused as too long. If called again with the same
    error and nothing recorded since, returns the breakdown of what fills the window instead.

    Raises BadInputError if the error is not about the context's length.
    """
    session = await declare(access, await access.read_session(session_id), system=system, tools=tools)
    if (overflow := recognize(error)) is None:
        raise BadInputError(
            "contextstash does not recognize this as an error about the context's length. Pass the provider's error"
            " unchanged; a smaller context does not help against other errors."
        )
    last = await access.store.read_log(session.session_id, Event, keys=("recovery",), newest=True, limit=1)
    is_same = overflow.prompt_tokens is None or (last and last[0].tokens_before == overflow.prompt_tokens)
    is_recovered = bool(last) and last[0].seq == session.counters.messages and is_same
    if not overflow.reply_fills_window and not is_recovered:
        return await _recovered(access, session, overflow)
    estimate = await estimate_session(access, session)
    return RecoverResult.of(
        overflow,
        estimate,
        recovered=False,
        tokens_before=estimate.tokens,
        tokens_after=estimate.tokens,
        done=[],
        reason=LOWER_THE_REPLY if overflow.reply_fills_window else RECOVERED_ALREADY,
    )


async def _recovered(access: Access, session: Session, overflow: ContextOverflow) -> RecoverResult:
    session = await _corrected(access, session, overflow)
    before = await estimate_session(access, session)
    done = await _shrunk(access, session)
    context = await get_context(access, session.session_id)
    session = await access.read_session(session.session_id)
    after = await estimate_session(access, session)
    if not context.fits:
        reason = context.reason or ""
    elif context.tokens >= before.tokens:
        reason = "The context could not be made smaller; it was within the limit already. Send it once more."
    else:
        left = f" {context.left_out.messages} messages are left out of this request." if context.left_out else ""
        reason = f"Context {before.tokens:,} → {after.tokens:,} tokens; send these messages once.{left}"
    await log_event(access, session, "recovery", before.tokens, after.tokens, reason, parts=after.breakdown)
    return RecoverResult.of(
        overflow,
        session_id=session.session_id,
        recovered=context.fits and context.tokens < before.tokens,
        tokens_before=before.tokens,
        tokens_after=context.tokens,
        done=done,
        reason=reason,
        context=context,
    )


async def _corrected(access: Access, session: Session, overflow: ContextOverflow) -> Session:
    """The session corrected by the error: the true window, and the true number of tokens in the view. If the error
    names none, the request had just too many, until the next report."""
    changes: dict[str, Any] = {"anchored": True}
    if overflow.limit is not None and overflow.limit != access.limits(session)[1].window:
        changes["window"] = overflow.limit
    if overflow.limit is not None and overflow.completion_tokens is not None:
        changes["output_reserve"] = overflow.completion_tokens
    layer = {**session.settings, **changes}
    session = await access.store.update_session(session.session_id, settings=layer)
    budget = access.limits(session)[1]
    estimate = await estimate_session(access, session)
    least = max(budget.usable + 1, estimate.tokens) if overflow.shape == "tokens" else estimate.tokens
    true = overflow.prompt_tokens or least
    return await access.store.change_session(session.session_id, lambda counters: refused(counters, true))


async def _shrunk(access: Access, session: Session) -> list[str]:
    """Prune down to `recovery_keep_last`, truncate the remaining outputs, and compact; a step is skipped once the view
    is within the target of a recovery, except truncation with `recovery_cut_always`."""
    session_id, done = session.session_id, list[str]()
    settings, budget = access.limits(session)

    async def is_over() -> bool:
        now = await access.read_session(session_id)
        return (await estimate_session(access, now)).tokens > budget.recovery_tokens

    if await is_over():
        keep = settings.recovery_keep_last
        pruned = await prune_tool_outputs(access, session_id, keep_last=keep, minimum_tokens=0, needed=True)
        done += pruned.said
    if settings.recovery_cut_always or await is_over():
        cut = await edit(access, lambda: _outputs_cut(access, session_id))
        done += [cut] if cut else []
    if settings.compact_automatic and await is_over():
        compacted = await compact_session(access, session_id)
        done += compacted.said
    return done


async def _outputs_cut(access: Access, session_id: str) -> Planned[str | None] | str | None:
    """The plan to truncate every visible output that is over the limit of a recovery, also one that is truncated
    already, but no pinned one."""
    snapshot = await access.snapshot(session_id)
    most = snapshot.settings.recovery_output_bytes
    rules = OutputLimits(bytes=most, cut="middle")
    costs = {each.output: each.view_tokens for each in cut_candidates(snapshot, most // 4)}

    def shorter(batch: Sequence[tuple[Output, str]]) -> list[TruncateEdit]:
        made = [(truncate_edit(snapshot, output, text, rules), costs[output]) for output, text in batch]
        return [each for each, cost in made if each.tokens < cost]

    cut = await access.from_texts(snapshot, list(costs), shorter)
    if not cut:
        return None

    said = f"Cut {len(cut)} outputs to {most:,} bytes each."
    return Planned(snapshot, cut, lambda *_: said, plan_stripping(snapshot, min(each.seq for each in cut), needed=True))
