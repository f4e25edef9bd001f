"""Digest messages: one for each output that is archived by count, written by a model or made from its head and tail."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from contextstash.outputs.digest import digest_output
from contextstash.outputs.limits import OutputLimits, limit
from contextstash.outputs.placeholders import compaction_digest, digest_message, digest_wording
from contextstash.reduce.writer_calls import log_calls, writer_settings
from contextstash.session.access import Access
from contextstash.view.ladder import cuts_of
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.view.view import Entry
from contextstash.writers.base import WriterCall, WriterFailedError
from contextstash_storage.records import DigestEdit, Output

logger = logging.getLogger(__name__)

# The contract of the preset `rolling`, in characters.
MAX_INPUT = 12_000
"""How much of an output a model reads to write its digest."""
MAX_WRITTEN = 1_200
"""The length of a digest that a model writes, and of the one message for all that a compaction archives."""
MAX_EXCERPT = 800
"""The length of a digest without a model."""

Digests = dict[str, str]
"""Digest messages by the handle of their output."""

Texts = Sequence[tuple[Output, str]]
"""Archived outputs, each with its text."""


async def digest_edits(
    access: Access, snapshot: SessionSnapshot, entries: Sequence[Entry], archived: Texts, written: Digests
) -> list[DigestEdit]:
    """Edits that add a digest message for each archived output at the last valid place in the view `entries`. None are
    added if the settings want placeholders only, or if no place is valid.

    Digests in `written` are reused and new ones are added to it, so that after an edit conflict no model is paid twice.
    """
    anchor = last_anchor(entries)
    if snapshot.settings.tool_digest == "placeholder" or anchor is None:
        return []
    edits = []
    for output, text in archived:
        if output.handle not in written:
            written[output.handle] = await _text(access, snapshot, output, text)
        edits.append(digest_edit(snapshot, anchor, written[output.handle], (output.handle,)))
    return edits


def compaction_digest_edit(snapshot: SessionSnapshot, entries: Sequence[Entry], archived: Texts) -> list[DigestEdit]:
    """One digest message for all the outputs that a compaction archived among the recent messages."""
    anchor = last_anchor(entries)
    if not archived or anchor is None:
        return []
    lines = [(output, digest_output(output.tool, output.argument, text, output.is_error)) for output, text in archived]
    text = compaction_digest(lines, MAX_WRITTEN)
    return [digest_edit(snapshot, anchor, text, tuple(output.handle for output, _ in archived))]


def last_anchor(entries: Sequence[Entry]) -> int | None:
    """The last position after which a digest message keeps the view valid. Not directly after a summary: there the
    digest would be among the covered messages, and be hidden with them."""
    places = [cut for cut in cuts_of(entries) if cut > 0 and entries[cut - 1].summary is None]
    return entries[places[-1] - 1].last_seq if places else None


def digest_edit(snapshot: SessionSnapshot, anchor: int, text: str, handles: tuple[str, ...]) -> DigestEdit:
    """The edit that adds this message after the position `anchor`."""
    tokens = snapshot.counter.count(text) + snapshot.settings.message_overhead
    return DigestEdit(after_seq=anchor, handles=handles, text=text, tokens=tokens)


async def _text(access: Access, snapshot: SessionSnapshot, output: Output, text: str) -> str:
    writer = writer_settings(access, snapshot.session.agent, snapshot.settings)
    if snapshot.settings.tool_digest == "llm" and writer is not None and (writer.api_key or writer.base_url):
        from contextstash.writers.anthropic import digest_output_text

        clipped = limit(text, OutputLimits(chars=MAX_INPUT, cut="head_tail"), len)
        reply, calls = None, tuple[WriterCall, ...]()
        try:
            reply, call = await digest_output_text(writer, output.tool, output.argument, clipped, MAX_WRITTEN)
            calls = (call,)
        except WriterFailedError as error:
            logger.warning("the model failed, made a digest without it: %s", error)
            calls = error.calls
        await log_calls(access, snapshot, calls, output.seq, output.seq, purpose="digest")
        if reply is not None and calls[-1].error is None:
            return digest_wording(output, reply)
    return digest_message(output, text, MAX_EXCERPT)
