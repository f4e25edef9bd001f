"""Pruning: moves old tool outputs from the view to the archive in one batch; and restoring: puts archived outputs, and
messages that a summary covers, back into the view exactly as they were. Outputs that leave by count each get a digest
message, by a model or made from head and tail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from contextstash.outputs.limits import OutputLimits, limit
from contextstash.outputs.placeholders import digest_message, digest_wording
from contextstash.results import ArchivedOutput, PruneResult, RestoredOutput, RestoreResult
from contextstash.safety.sanitize import one_line
from contextstash.session.access import Access, is_current
from contextstash.session.edit import (
    Archived,
    Planned,
    Undone,
    archived,
    edit,
    entries_after,
    plan_stripping,
    strips_after_restore,
    strips_of,
)
from contextstash.session.open_session import WHOLE, WITH_ALL_OUTPUTS, WITHIN_REACH
from contextstash.view.ladder import Candidate, Step, count_step, last_anchor, plan_prune
from contextstash.view.session_snapshot import SessionSnapshot, digest_edit
from contextstash.view.view import Entry, total_tokens
from contextstash.writers import WriterFailedError, WriterSettings, digest_by_model
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.records import ArchiveEdit, Call, Edit, Output, Replacement, RestoreEdit, Session, SummaryEdit

logger = logging.getLogger(__name__)

MAX_TOOL = 200
"""Characters of a tool's name in a result; providers allow 64 to 128."""

MAX_LISTED = 40
"""Archived outputs that a result lists, about 50 tokens each, 2,000 together; the others are only counted. And handles
that the event of a restore names."""

WAITS = (
    "Nothing done: the thinking of {} later messages belongs to a tool loop that is still open; this edit waits for its"
    " end."
)

# The contract of the preset `rolling`, in characters.
MAX_INPUT = 12_000
"""How much of an output a model reads to write its digest."""
MAX_WRITTEN = 1_200
"""The length of a digest that a model writes, and of the one message for all that a compaction archives."""
MAX_EXCERPT = 800
"""The length of a digest without a model."""

Shortening = Replacement | SummaryEdit
"""An edit that replaces content with something shorter, and has a handle."""


PROXIED = (
    "This session goes through the contextstash proxy: its next request shows the change; of a model that binds its"
    " reasoning to what was sent before it, the first request in which no such reasoning follows, at the latest after"
    " the client's next compaction. Once, the provider writes what follows the first change to its prompt cache again."
)
"""What the change of a proxied session does, for its model."""


async def effect_of(access: Access, snapshot: SessionSnapshot) -> str | None:
    """What a change of the view does to what is sent; None if that is the view."""
    proxied = await access.proxied(snapshot.session_id)
    if proxied is not None and is_current(proxied):
        left = proxied.left_alone
        return f"The proxy does not change this session's requests any more: {left}." if left else PROXIED
    if snapshot.client_tokens is None:
        return None
    return (
        f"Your window is unchanged: your client sends {snapshot.client_tokens:,} tokens. Only a compaction by the"
        " client shrinks it; what follows is about contextstash's view."
    )


def view_change(snapshot: SessionSnapshot, entries: Sequence[Entry], note: str | None) -> dict[str, Any]:
    """The fields that each result of a change has, after which the view has these entries."""
    before, after = snapshot.view_tokens, sum(snapshot.totals_of(entries).parts.values())
    return {"session_id": snapshot.session_id, "tokens_before": before, "tokens_after": after, "note": note}


async def prune_tool_outputs(
    access: Access,
    session_id: str | None = None,
    *,
    keep_last: int | None = None,
    protect_tokens: int | None = None,
    minimum_tokens: int | None = None,
    dry_run: bool = False,
    needed: bool = False,
) -> PruneResult:
    """Archive the tool outputs that are not protected. Those beyond the reach of any request, in a view far larger than
    the window, are left as they are: no request can show them, and a compaction covers them. The numbers replace those
    of the settings (see plan_prune). Raises BadInputError if one is below 0."""
    numbers = {"keep_last": keep_last, "protect_tokens": protect_tokens, "minimum_tokens": minimum_tokens}
    if wrong := [f"{name} must be 0 or more, not {number}." for name, number in numbers.items() if (number or 0) < 0]:
        raise BadInputError(wrong[0])
    step = partial(plan_prune, keep_last=keep_last, protect_tokens=protect_tokens, minimum_tokens=minimum_tokens)
    return await take(access, session_id, step, within_reach=True, dry_run=dry_run, needed=needed)


async def prune_oldest(access: Access, session_id: str) -> PruneResult:
    """Archive the oldest tool outputs beyond `prune_at_results`, and add a digest message for each."""
    return await take(access, session_id, count_step, digested=True)


async def take(
    access: Access,
    session_id: str | None,
    step: Step,
    *,
    within_reach: bool = False,
    dry_run: bool = False,
    digested: bool = False,
    needed: bool = False,
) -> PruneResult:
    """Archive the outputs that a step of the ladder chooses; if they are to be `digested`, with a digest message for
    each. If the step is `needed`, it does not wait for reasoning of an open tool loop that has to be left out for
    it."""

    async def planned() -> Planned[PruneResult] | PruneResult:
        snapshot = await access.snapshot(session_id, WITHIN_REACH if within_reach else WHOLE)
        note, plan = await effect_of(access, snapshot), await asyncio.to_thread(step, snapshot)
        made = await archive_outputs(access, snapshot, plan.chosen, even_if_larger=digested)
        first = min((each.output.seq for each in made), default=snapshot.session.counters.messages)
        stripping = await asyncio.to_thread(plan_stripping, snapshot, first, needed=needed)
        if not made or stripping.choice == "wait":
            reason = plan.reason or "Nothing done: placeholders would be no smaller."
            reason = WAITS.format(stripping.messages) if made else reason
            return _pruned(view_change(snapshot, snapshot.entries, note), reason, (), dry_run)
        edits: list[Edit] = [each.edit for each in made]
        is_told = digested and snapshot.settings.tool_digest != "placeholder"
        anchor = last_anchor(await entries_after(access, snapshot, edits)) if is_told else None
        if anchor is not None:
            for each in made:
                text = await _digest_text(access, snapshot, each)
                edits.append(digest_edit(snapshot, anchor, text, (each.output.handle,)))
        done = f"{'Would archive' if dry_run else 'Archived'} {len(made)} tool output{'s' * (len(made) > 1)}."
        reason = f"{done}{stripping.said}"
        return Planned(
            snapshot,
            edits,
            lambda _, entries: _pruned(view_change(snapshot, entries, note), reason, made, dry_run),
            stripping,
            kind="prune",
            reason=reason,
            dry_run=dry_run,
        )

    return await edit(access, planned)


def _pruned(change: Mapping[str, Any], reason: str, made: Sequence[Archived], dry_run: bool) -> PruneResult:
    tools = {each.output: one_line(each.output.tool, MAX_TOOL) for each in made[:MAX_LISTED]}
    return PruneResult(
        **change,
        tokens_saved=change["tokens_before"] - change["tokens_after"],
        archived=[ArchivedOutput.of(each.output, each, tool=tools[each.output]) for each in made[:MAX_LISTED]],
        more=max(0, len(made) - MAX_LISTED) or None,
        reason=reason,
        dry_run=dry_run or None,
    )


async def archive_outputs(
    access: Access, snapshot: SessionSnapshot, chosen: Sequence[Candidate], *, even_if_larger: bool = False
) -> list[Archived]:
    """The chosen outputs, archived: those whose placeholder takes fewer tokens than the output, or all of them with
    `even_if_larger`; then with their texts, which a digest message needs."""
    costs = {each.output: each.view_tokens for each in chosen}

    def made(batch: Sequence[tuple[Output, str]]) -> list[Archived]:
        found = archived(snapshot, batch)
        if even_if_larger:
            return found
        return [replace(each, text="") for each in found if each.edit.tokens < costs[each.output]]

    return await access.from_texts(snapshot, list(costs), made)


async def _digest_text(access: Access, snapshot: SessionSnapshot, archived: Archived) -> str:
    """The digest message of an archived output, by a model or made from head and tail."""
    output, text = archived.output, archived.text
    model = writer_model(access, snapshot) if snapshot.settings.tool_digest == "llm" else None
    if model is None:
        return digest_message(output, text, MAX_EXCERPT)

    clipped = limit(text, OutputLimits(chars=MAX_INPUT, cut="head_tail"), len)
    try:
        reply, calls = await digest_by_model(model, output.tool, output.argument, clipped, MAX_WRITTEN)
        digest = digest_wording(output, reply)
    except WriterFailedError as error:
        logger.warning("the model failed, made a digest without it: %s", error)
        calls, digest = error.calls, digest_message(output, text, MAX_EXCERPT)
    await log_calls(access, snapshot, calls, (output.seq, output.seq), purpose="digest")
    return digest


def writer_model(access: Access, snapshot: SessionSnapshot) -> WriterSettings | None:
    """The model that writes for a session; None if the user has not agreed to calls, or if none can be reached."""
    settings = snapshot.settings
    if not access.reaches_model(snapshot.session.agent, settings):
        return None
    return WriterSettings(
        model=settings.summarizer_model,
        api_key=access.api_key,
        base_url=settings.summarizer_base_url,
        output_chars=settings.summarizer_output_chars,
    )


async def log_calls(
    access: Access,
    snapshot: SessionSnapshot,
    calls: Sequence[Call],
    span: tuple[int, int],
    purpose: Literal["summary", "digest"] = "summary",
) -> None:
    """Log calls of a model about the messages `span`, with their cost if the price is known."""
    if not calls:
        return
    from contextstash.window.models import price_of

    for call in calls:
        cost = price_of(call.model, call) if call.cost is None else call.cost
        logged = call.model_copy(update={"purpose": purpose, "request_seq": span[1], "cost": cost})
        await access.store.append_log(snapshot.session_id, logged)


async def restore(access: Access, handles: Sequence[str], session_id: str | None = None) -> RestoreResult:
    """Put archived outputs, or the messages that a summary covers, back into the view exactly as they were."""
    if not handles:
        raise BadInputError("Pass at least one handle: of an archived output (out_…) or of a summary (sum_…).")
    if session_id is None and handles[0].startswith("out_"):
        session_id, _ = await access.store.find_output(handles[0])
    name = session_id or await access.store.find_summary(handles[0]) or await access.current_session_id()
    if name is None:
        raise HandleNotFoundError(f"There is no output or summary '{handles[0]}'. search_history finds handles.")
    return await edit(access, lambda: _plan(access, name, dict.fromkeys(handles)))


async def restore_last(access: Access, session_id: str) -> RestoreResult:
    """Undo the last prune or compaction by contextstash that is in force, with all that it archived. Raises
    BadInputError if there is none."""
    overlay = (await access.known(session_id)).overlay
    ours: list[Shortening] = [edit for edit in overlay.summaries if edit.seq is None]
    ours += [edit for edit in overlay.replaced.values() if isinstance(edit, ArchiveEdit)]
    newest = max(ours, key=lambda edit: edit.edit_id, default=None)
    if newest is None:
        raise BadInputError(
            f"Nothing to undo: no prune or compaction by contextstash is in force in session {session_id}."
        )
    together = [_name(edit) for edit in ours if edit.created_at == newest.created_at]
    return await restore(access, together, session_id)


async def _plan(access: Access, session_id: str, handles: Collection[str]) -> Planned[RestoreResult] | RestoreResult:
    """The edits that undo those with these handles. Thinking that they had invalidated is restored too; thinking that
    the model wrote since then is stripped."""
    snapshot = await access.snapshot(session_id, WITH_ALL_OUTPUTS)
    known = {output.handle for output in snapshot.outputs.values()}
    known |= {edit.summary_id for edit in snapshot.edits if isinstance(edit, SummaryEdit)}
    if unknown := [handle for handle in handles if handle not in known]:
        raise HandleNotFoundError(
            f"Session {snapshot.session_id} has no output or summary '{unknown[0]}'. search_history finds handles."
        )
    # With a summary the outputs come back that its compaction archived.
    summaries = [edit for edit in snapshot.overlay.summaries if edit.summary_id in handles]
    wanted = {*handles, *(handle for edit in summaries for handle in edit.archived)}
    undone = [*summaries, *(edit for edit in snapshot.overlay.replaced.values() if edit.handle in wanted)]
    untouched = [handle for handle in handles if handle not in map(_name, undone)]
    note = await effect_of(access, snapshot)

    def result(_: Session, entries: Sequence[Entry]) -> RestoreResult:
        return RestoreResult(
            **view_change(snapshot, entries, note),
            restored=[
                RestoredOutput(handle=_name(edit), tokens=_tokens_back(edit, snapshot, entries)) for edit in undone
            ],
            not_archived=untouched or None,
        )

    if not undone:
        return result(snapshot.session, snapshot.entries)
    again = {*handles, *(_name(edit) for edit in undone)}
    digests = [edit for edit in snapshot.overlay.digests if set(edit.handles) <= again]
    all_undone: list[Undone] = [*undone, *digests]
    strips = strips_of(snapshot, all_undone)
    made = RestoreEdit(undoes=tuple(each.edit_id for each in (*all_undone, *strips)))
    entries = await entries_after(access, snapshot, [made])
    names = ", ".join(_name(edit) for edit in undone[:MAX_LISTED])
    return Planned(
        snapshot,
        [made, *strips_after_restore(snapshot, entries, all_undone)],
        result,
        kind="restore",
        reason=f"Restored {names}.",
    )


def _name(edit: Shortening) -> str:
    return edit.summary_id if isinstance(edit, SummaryEdit) else edit.handle


def _tokens_back(edit: Shortening, snapshot: SessionSnapshot, entries: Sequence[Entry]) -> int:
    """The tokens of an output; of a summary, by how much the messages that it covered are larger."""
    if isinstance(edit, SummaryEdit):
        covered = [entry for entry in entries if edit.first_seq <= entry.first_seq and entry.last_seq <= edit.last_seq]
        return total_tokens(covered) - edit.tokens
    return snapshot.outputs[edit.seq, edit.block].tokens
