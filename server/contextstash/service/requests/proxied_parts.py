"""Inputs of calls, and images, that leave the requests of a proxied session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from contextstash.context.tool_outputs.placeholders import image_placeholder, input_placeholder
from contextstash.context.view.edits import ReplacedBlocks
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.service.recording.output_archive import keep_output, outputs_session_id
from contextstash.service.session_access import Access
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import ArchiveEdit, Output, Replacement


@dataclass(frozen=True, slots=True)
class MessagePart:
    """The large texts in the input of a call, or an image: block `block` of message `seq`. `text` is what is stored
    under its handle, `tool` and `argument` are those of the call; `texts` is how many texts the placeholder stands for.
    """

    seq: int
    block: int
    text: str
    tool: str = ""
    argument: str = ""
    texts: int = 1

    @property
    def is_image(self) -> bool:
        return not self.tool


IMAGE_TOOL = "image"
"""The name under which the description of an image is stored."""


async def keep_parts(access: Access, session_id: str, parts: Sequence[MessagePart]) -> list[str]:
    """Store the texts durably, so that they can be read again, and return their handles."""
    return [
        await keep_output(
            access,
            part.text,
            tool=IMAGE_TOOL if part.is_image else f"{part.tool} input",
            argument=part.argument,
            session_id=session_id,
        )
        for part in parts
    ]


def part_edits(snapshot: SessionSnapshot, parts: Sequence[MessagePart], handles: Sequence[str]) -> list[Replacement]:
    """The edits that show these parts as placeholders."""
    blocks, count = ReplacedBlocks(snapshot.entries), snapshot.counter.count
    for part, handle in zip(parts, handles, strict=True):
        before = blocks.entry(part.seq)
        if before is None or before.message is None or part.block in before.replaced:
            continue
        if part.is_image:
            text, left = image_placeholder(handle), 0
        else:
            text = input_placeholder(part.tool, part.argument, count(part.text), handle)
            left = max(0, before.message.blocks[part.block].tokens - count(part.text))
        tokens = left + part.texts * count(text)
        blocks.add(ArchiveEdit(seq=part.seq, block=part.block, handle=handle, text=text, tokens=tokens))
    return blocks.edits


async def read_kept_parts(access: Access, session_id: str) -> dict[str, Output]:
    """The stored parts of a session, by handle."""
    with suppress(SessionNotFoundError):
        return {output.handle: output for output in await access.store.read_outputs(outputs_session_id(session_id))}
    return {}
