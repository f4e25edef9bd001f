"""Overflow recovery: after the provider refused a request as too long, correct our estimate and shrink the view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.outputs.limits import OutputLimits
from contextstash.record.messages import System, Tools, check_declared, declare
from contextstash.reduce.compact import compact_session
from contextstash.reduce.prune import prune_tool_outputs
from contextstash.request.get_context import get_context
from contextstash.results import ContextResult, Estimate, RecoverResult
from contextstash.safety.sanitize import before_and_after
from contextstash.session.access import Access, estimate_session
from contextstash.session.edit import Planned, edit, plan_stripping
from contextstash.view.edits import truncate_edit
from contextstash.view.ladder import cut_candidates
from contextstash.view.session_counters import refused
from contextstash.view.view import Entry, total_tokens
from contextstash.window.refusals import ContextOverflow, recognize
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Event, Session, TruncateEdit

LOWER_THE_REPLY = (
    "The tokens reserved for the reply alone fill the window: no smaller context helps. Send the same messages again"
    " with a lower max_tokens."
)

RECOVERED_ALREADY = (
    "Recovered once already and nothing was recorded since: the context cannot be made smaller. The breakdown says what"
    " fills the window: use a model with a larger one, fewer tools, or a new session that starts from get_summary."
)


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
    check_declared(system, tools)
    if system is not None or tools is not None:
        await declare(access, await access.read_session(session_id), system=system, tools=tools)
    if (overflow := recognize(error)) is None:
        raise BadInputError(
            "contextstash does not recognize this as an error about the context's length. Pass the provider's error"
            " unchanged; a smaller context does not help against other errors."
        )
    session = await access.read_session(session_id)
    last = await access.store.read_log(session.session_id, Event, keys=("recovery",), newest=True, limit=1)
    is_same = overflow.prompt_tokens is None or (last and last[0].tokens_before == overflow.prompt_tokens)
    is_recovered = bool(last) and last[0].seq == session.counters.messages and is_same
    if not overflow.reply_fills_window and not is_recovered:
        return await _recovered(access, session, overflow)
    estimate = await estimate_session(access, session)
    return RecoverResult.of(
        overflow,
        session_id=session.session_id,
        recovered=False,
        tokens_before=estimate.tokens,
        tokens_after=estimate.tokens,
        done=[],
        reason=LOWER_THE_REPLY if overflow.reply_fills_window else RECOVERED_ALREADY,
        breakdown=estimate.breakdown,
    )


async def _recovered(access: Access, session: Session, overflow: ContextOverflow) -> RecoverResult:
    session = await _corrected(access, session, overflow)
    before = await estimate_session(access, session)
    done = await _shrunk(access, session.session_id)
    session = await access.read_session(session.session_id)
    context = await get_context(access, session.session_id)
    after = await estimate_session(access, session)
    reason = _reason(context, before, after)
    event = Event(
        kind="recovery",
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        messages_before=session.counters.view_messages,
        messages_after=session.counters.view_messages,
        reason=reason,
        seq=session.counters.messages,
        parts=after.breakdown,
    )
    await access.store.append_log(session.session_id, event)
    return RecoverResult.of(
        overflow,
        session_id=session.session_id,
        recovered=context.fits and context.tokens < before.tokens,
        tokens_before=before.tokens,
        tokens_after=context.tokens,
        done=done,
        reason=reason,
        breakdown=None if context.fits else after.breakdown,
        context=context,
    )


def _reason(context: ContextResult, before: Estimate, after: Estimate) -> str:
    if not context.fits:
        return context.reason or "The messages that cannot be removed are over the limit."
    if context.tokens >= before.tokens:
        return "The context could not be made smaller; it was within the limit already. Send it once more."
    left = f" {context.left_out.messages} messages are left out of this request." if context.left_out else ""
    return f"Context {before_and_after(before.tokens, after.tokens)} tokens; send these messages once.{left}"


async def _corrected(access: Access, session: Session, overflow: ContextOverflow) -> Session:
    """The session corrected by the error: the true window, and the true number of tokens in the view. If the error
    names none, the request had just too many, until the next report."""
    settings, budget = access.limits(session)
    changes: dict[str, Any] = {}
    if overflow.limit is not None and overflow.limit != budget.window:
        changes["window"] = overflow.limit
    completion = overflow.completion_tokens
    if completion is not None and completion < (overflow.limit or 0):
        changes["output_reserve"] = completion
    elif "window" in changes and settings.output_reserve is not None and settings.output_reserve >= changes["window"]:
        changes["output_reserve"] = changes["window"] // 8
    if not settings.anchored:
        changes["anchored"] = True
    if changes:
        layer = {**session.settings, **changes}
        session = await access.store.update_session(session.session_id, settings=layer)
    settings, budget = access.limits(session)
    estimate = await estimate_session(access, session)
    least = max(budget.usable + 1, estimate.tokens) if overflow.shape == "tokens" else estimate.tokens
    true = overflow.prompt_tokens or least
    return await access.store.change_counters(session.session_id, lambda counters: refused(counters, true))


async def _shrunk(access: Access, session_id: str) -> list[str]:
    """Prune down to `recovery_keep_last`, truncate the remaining outputs, and compact; a step is skipped once the view
    is within the target of a recovery, except truncation with `recovery_cut_always`."""
    done: list[str] = []
    session = await access.read_session(session_id)
    settings = access.settings(session)
    if await _over(access, session_id):
        keep = settings.recovery_keep_last
        pruned = await prune_tool_outputs(access, session_id, keep_last=keep, minimum_tokens=0, needed=True)
        done += pruned.said
    if settings.recovery_cut_always or await _over(access, session_id):
        cut = await edit(access, lambda: _outputs_cut(access, session_id))
        done += [cut] if cut else []
    if settings.compact_automatic and await _over(access, session_id):
        compacted = await compact_session(access, session_id)
        done += [f"{compacted.with_sizes}."] if compacted.compacted else []
    return done


async def _over(access: Access, session_id: str) -> bool:
    session = await access.read_session(session_id)
    _, budget = access.limits(session)
    return (await estimate_session(access, session)).tokens > budget.recovery_tokens


async def _outputs_cut(access: Access, session_id: str) -> Planned[str | None] | str | None:
    """The plan to truncate every visible output that is over the limit of a recovery, also one that is truncated
    already, but no pinned one."""
    snapshot = await access.snapshot(session_id)
    most = snapshot.settings.recovery_output_bytes
    rules = OutputLimits(bytes=most, cut="middle")
    costs = {each.output: each.view_tokens for each in cut_candidates(snapshot, most // 4)}
    cut: list[TruncateEdit] = []
    async for batch in access.output_texts(snapshot, list(costs)):
        shorter = [(truncate_edit(snapshot, output, text, rules), costs[output]) for output, text in batch]
        cut += [made for made, cost in shorter if made.tokens < cost]
    if not cut:
        return None

    def said(_: Session, entries: Sequence[Entry]) -> str | None:
        saved = total_tokens(snapshot.entries) - total_tokens(entries)
        return f"Cut {len(cut)} outputs to {most:,} bytes each, {saved:,} tokens less."

    return Planned(snapshot, cut, said, plan_stripping(snapshot, min(each.seq for each in cut), needed=True))
