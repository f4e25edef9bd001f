"""The history side by side with the view: each message as it was recorded, and what the model sees in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextstash.messages import get_format
from contextstash.messages.base import Format
from contextstash.results import ShownBlock, ShownMessage, ShownPage, ShownSummary
from contextstash.session.access import Access
from contextstash.session.masks import shown_text, shown_texts
from contextstash.view.session_snapshot import Place
from contextstash.view.view import Entry, Overlay, build_view, edits_in_force
from contextstash.window.settings import ContextSettings
from contextstash_storage.errors import BadInputError, ContextstashError
from contextstash_storage.records import Block, Cover, Message, SummaryEdit

MAX_MESSAGES = 500


async def read_shown_messages(access: Access, session_id: str, *, first: int = 0, limit: int = 100) -> ShownPage:
    """A page of the history with what the model sees in the place of each message: messages `first` to
    `first + limit - 1`. Raises SessionNotFoundError, or BadInputError if a number is bad."""
    if first < 0 or not 1 <= limit <= MAX_MESSAGES:
        raise BadInputError(f"first is 0 or more, limit 1 to {MAX_MESSAGES}.")
    session = await access.read_session(session_id)
    total = session.counters.messages
    last = min(total, first + limit) - 1
    messages = await access.store.read_messages(session_id, first=first, last=last)
    overlay = edits_in_force(await access.store.read_edits(session_id))
    outputs = await access.store.read_outputs(session_id, first=first, last=last)
    fmt, settings = get_format(session.format), access.settings(session)
    entries = {entry.first_seq: entry for entry in build_view(messages, overlay) if entry.message}
    handles = {(output.seq, output.block): output.handle for output in outputs}
    return ShownPage(
        session_id=session_id,
        messages=[
            _message(message, entries.get(message.seq), overlay, _read(message, fmt, settings), handles)
            for message in messages
        ],
        summaries=[
            ShownSummary.of(edit, text=shown_text(settings, edit.text))
            for edit in overlay.summaries
            if _touches(edit, first, last)
        ],
        total=total,
        first=first,
        next_seq=last + 1 if last + 1 < total else None,
        client_sends_history=await access.sends_own_history(session) or None,
    )


def _message(
    message: Message,
    entry: Entry | None,
    overlay: Overlay,
    read: Sequence[tuple[Block, str]],
    handles: Mapping[Place, str],
) -> ShownMessage:
    return ShownMessage.of(
        message,
        blocks=[_block(place, entry, handles.get((message.seq, place)), *each) for place, each in enumerate(read)],
        summary_id=None if entry else _covering(overlay.covers, message.seq),
        visible=entry is not None,
    )


def _read(message: Message, fmt: Format, settings: ContextSettings) -> list[tuple[Block, str]]:
    """Each block with its tokens, and its text; empty if the format can no longer parse the message."""
    try:
        reading = fmt.read(message.body or {})
    except ContextstashError:
        return []
    # The tokens were counted when the message was recorded. A format that reads it otherwise today has other blocks.
    counted = message.blocks if len(message.blocks) == len(reading.blocks) else reading.blocks
    texts = shown_texts(settings, message.role, counted, reading.texts)
    return list(zip(counted, texts, strict=True))


def _block(place: int, entry: Entry | None, handle: str | None, block: Block, text: str) -> ShownBlock:
    edit = entry.replaced.get(place) if entry else None
    stripped = entry is not None and entry.stripped and block.type == "thinking"
    return ShownBlock.of(
        block,
        heading=" ".join(filter(None, (block.tool, block.argument))),
        text=text,
        handle=handle,
        shown=edit.text if edit else None,
        state=edit.kind if edit else "strip" if stripped else None,
    )


def _covering(covers: Sequence[Cover], seq: int) -> str | None:
    """The id of the summary that hides a message; None if something else does."""
    hiding = next((edit for edit in covers if edit.first_seq <= seq <= edit.last_seq), None)
    return hiding.summary_id if isinstance(hiding, SummaryEdit) else None


def _touches(edit: SummaryEdit, first: int, last: int) -> bool:
    return edit.first_seq <= last and edit.last_seq >= first
