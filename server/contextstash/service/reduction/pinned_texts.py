"""The texts of pinned outputs that a summary replaces."""

from __future__ import annotations

from contextstash.context.view.pinned_outputs import pinned_outputs, pinned_text
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.service.masks import shown_text
from contextstash.service.session_access import Access
from contextstash_storage.records import Output


async def pinned_within(access: Access, snapshot: SessionSnapshot, first_seq: int, last_seq: int) -> str:
    """The pinned outputs of the messages `first_seq` to `last_seq` as a summary shows them; empty if there are none."""
    wanted = [output for output in pinned_outputs(snapshot).values() if first_seq <= output.seq <= last_seq]
    texts: list[tuple[Output, str]] = []
    async for batch in access.output_texts(snapshot, sorted(wanted, key=lambda output: (output.seq, output.block))):
        texts += [(output, shown_text(snapshot.settings, text)) for output, text in batch]
    return pinned_text(snapshot, texts)
