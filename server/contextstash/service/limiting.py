"""Limiting: a single tool output above the limit is shown cut in its middle; the whole stays in the archive."""

from __future__ import annotations

from contextstash.context.limits import middle_out
from contextstash.context.view import change
from contextstash.service.access import Access, Desk
from contextstash.service.editing import retrying
from contextstash.service.pruning import replaced
from contextstash_storage.records import Appended, Edit, Output, Session


def truncate_edit(desk: Desk, output: Output, text: str, tokens: int) -> Edit:
    """The edit that shows an output cut in its middle, with the handle of the whole."""
    shown = middle_out(text, max_tokens=tokens).text + f"\n[whole output: {output.handle}]"
    return Edit(
        kind="truncate",
        seq=output.seq,
        block=output.block,
        handle=output.handle,
        text=shown,
        tokens=desk.counter.count(shown),
    )


async def limit_outputs(access: Access, appended: Appended) -> Session:
    """Cut the outputs among new messages that are over the session's limit; answers the session as it then is."""
    session = appended.session
    limit = access.settings(session).output_tokens
    large = {message.seq for message in appended.messages if limit is not None and message.tokens > limit}
    if limit is None or not large:
        return session
    most = limit

    async def attempt() -> Session:
        desk = await access.desk(session.session_id)
        edits = await _truncate_edits(access, desk, large, most)
        if not edits:
            return desk.session
        return await access.store.append_edits(access.owner, session.session_id, edits, expected=len(desk.edits))

    return await retrying(attempt)


async def _truncate_edits(access: Access, desk: Desk, seqs: set[int], limit: int) -> list[Edit]:
    edits = []
    shown = {entry.first_seq: entry for entry in desk.entries if entry.message and entry.first_seq in seqs}
    for (seq, block), output in desk.outputs.items():
        if seq not in shown or output.tokens <= limit or block in shown[seq].replaced:
            continue
        text = await access.output_text(desk.session, output)
        edit = truncate_edit(desk, output, text, limit)
        after = replaced(shown[seq], block, edit)
        if after.tokens < shown[seq].tokens:
            edits.append(edit.model_copy(update={"delta": change([shown[seq]], [after])}))
            shown[seq] = after
    return edits
