"""Whole outputs: the archived originals of the outputs that a hook cut before the client recorded them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contextstash.context.view.session_snapshot import Place, SessionSnapshot
from contextstash.service.masks import shown_text
from contextstash.service.recording.output_archive import outputs_session_id
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadInputError, NotFoundError
from contextstash_storage.handles import HANDLE
from contextstash_storage.records import Output


@dataclass(frozen=True)
class WholeOutputs:
    """A session's outputs by their places: where the client holds a cut copy, the original. `texts` are the whole texts
    of these originals."""

    outputs: Mapping[Place, Output]
    texts: Mapping[Place, str]


async def whole_outputs(access: Access, snapshot: SessionSnapshot) -> WholeOutputs:
    """The outputs of a session, with the originals in the places of cut copies. A copy names the handle of its
    original; it counts only if that was archived for this session, from the same call."""
    try:
        archive = await access.store.get_session(outputs_session_id(snapshot.session_id))
    except (NotFoundError, BadInputError):
        return WholeOutputs(snapshot.outputs, {})
    archived = {output.handle: output for output in await access.store.read_outputs(archive.session_id)}
    tools = {output.tool for output in archived.values()}
    arguments = {output.argument for output in archived.values() if output.argument}
    copies = [output for output in snapshot.outputs.values() if output.tool in tools or output.argument in arguments]
    outputs, texts = dict(snapshot.outputs), {}
    async for batch in access.output_texts(snapshot, copies):
        for copy, text in batch:
            named = (archived[handle] for handle in HANDLE.findall(text) if handle in archived)
            original = next((found for found in named if _same_call(copy, found) and _is_larger(found, copy)), None)
            if original is not None:
                outputs[copy.seq, copy.block] = original
                whole = await access.output_text(archive, original)
                texts[copy.seq, copy.block] = shown_text(snapshot.settings, whole)
    return WholeOutputs(outputs, texts)


def _same_call(copy: Output, original: Output) -> bool:
    """Whether both are of the same tool, or of the same command: Codex names its shell `Bash` to hooks, and
    `exec_command` in its rollout."""
    return copy.tool == original.tool or (bool(copy.argument) and copy.argument == original.argument)


def _is_larger(original: Output, copy: Output) -> bool:
    # In characters: a hook estimates the tokens of what it archives.
    return original.characters > copy.characters
