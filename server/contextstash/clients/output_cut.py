"""Cuts the outputs of one tool call: archives each that is over its limit, and returns what is shown in its place.

The client waits for this after every long output. So it opens only the store, and imports only what a cut needs; the
archived text is counted by its bytes, because a tokenizer's vocabulary takes longer to load than all the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextstash.clients.client import Client, hooks_of, project_folder
from contextstash.configuration.database import has_settings, open_briefly
from contextstash.messages.main_argument import main_argument
from contextstash.outputs.limits import OutputLimits, sets_output_limits
from contextstash.record.output_archive import OutputArchive, tokens_of_bytes
from contextstash.session.ids import check_session_id
from contextstash.window.settings import resolve_settings, session_layer
from contextstash_storage.errors import SessionNotFoundError

if TYPE_CHECKING:
    from contextstash.configuration.setting_layers import RemarkHandler
    from contextstash_storage.store import SessionStore

CHARACTERS_PER_TOKEN = 4
"""The usual estimate for English text and code."""

MAX_ARCHIVED_CHARACTERS = 8_000_000
"""Longest output, all texts of a response together, that is archived while the client waits: some 1.5 s on an idle
machine, most of it for the search index. A longer one stays with the client as it is. Measured: 32 million characters
took 26 s with an analysis of their lines."""

MAX_ANALYSED_CHARACTERS = 2_000_000
"""Above this an output is shown as a preview, without an analysis of its lines. That takes 0.1 s."""

NOTICE_CHARACTERS = 200
"""Room for the notice of a cut: some 100 characters, and as many to spare."""


async def cut_outputs(
    client: Client, event: Mapping[str, Any], tool: str, texts: Sequence[tuple[str, bool]], on_remark: RemarkHandler
) -> list[str] | None:
    """The texts to show, None if none is over its limit; of each it is given whether the client shows only a preview.
    `on_remark` is called with each remark on a project's file."""
    layer = _settings_layer(client, on_remark)
    own = limits_in_characters(layer) if sets_output_limits(layer) else {}
    async with await open_briefly() as store:
        archive = await _archive(store, layer, event.get("session_id"))
        if archive is None:
            return None
        argument = main_argument(event.get("tool_input")) or ""
        limited = []
        for text, is_preview in texts:
            given = _limits(client, tool, text, own, is_preview=is_preview)
            limits = OutputLimits.of(archive.settings, archive.settings.window).merged(given)
            limited.append(await archive.limited(text, limits, tool=tool, argument=argument))
    return [each.text for each in limited] if any(each.cut for each in limited) else None


def _settings_layer(client: Client, on_remark: RemarkHandler) -> dict[str, Any]:
    """The user's settings for the sessions of a client; most users have none."""
    project = project_folder(os.environ)
    if not has_settings(os.environ, project):
        return {}
    from contextstash.configuration.setting_layers import configuration

    return configuration(project=project, environment=os.environ, on_remark=on_remark).settings_layer(client.name)


async def _archive(store: SessionStore, layer: Mapping[str, Any], named: object) -> OutputArchive | None:
    """The archive of the client's session, which may have settings of its own; None if the session was deleted."""
    session_id, own = named if isinstance(named, str) and named else None, {}
    if session_id is not None:
        check_session_id(session_id)
        try:
            own = session_layer((await store.get_session(session_id)).settings)
        except SessionNotFoundError:
            if any(each.is_continued_by(session_id, ()) for each in await store.deleted_sessions()):
                return None
    return OutputArchive(store, resolve_settings(layer, own), tokens_of_bytes, session_id)


def limits_in_characters(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of one output in a layer of settings, with tokens converted to characters."""
    settings = resolve_settings(layer)
    limits = OutputLimits.of(settings, settings.window)
    given: dict[str, Any] = {"tokens": None}
    if limits.tokens is not None:
        characters = limits.tokens * CHARACTERS_PER_TOKEN
        given["chars"] = characters if limits.chars is None else min(characters, limits.chars)
    return given


def _limits(client: Client, tool: str, text: str, own: Mapping[str, Any], *, is_preview: bool) -> dict[str, Any]:
    """The limits of one text: the user's, `own`, or else the client's. A text cut at its end ends with a whole line,
    because the model may edit what it sees."""
    hooks = hooks_of(client)
    limits: dict[str, Any] = {**own} or {"tokens": None, "chars": hooks.limit(tool)}
    limits.setdefault("spill_chars", MAX_ANALYSED_CHARACTERS)
    if is_preview and hooks.preview_limit is not None:
        limits |= {"chars": hooks.preview_limit, "bytes": hooks.preview_limit}
    if tool in hooks.cut_at_end:
        limits["cut"] = "head"
        characters = limits.get("chars")
        if characters is not None and len(text) > characters:
            whole_lines = text.count("\n", 0, max(0, characters - NOTICE_CHARACTERS))
            limits["lines"] = min(limits.get("lines") or whole_lines, whole_lines) or None
    return limits
