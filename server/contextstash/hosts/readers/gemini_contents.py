"""Contents in the format of Gemini's API, as in Gemini CLI's checkpoints.

Checkpoints as in google-gemini/gemini-cli, packages/core/src/core/logger.ts (`checkpoint-<tag>.json`: a list of
contents, or an object with `history`) and packages/core/src/utils/checkpointUtils.ts (one for each edit:
`clientHistory`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contextstash.hosts.readers import chat_messages as chat
from contextstash.hosts.readers.documents import Json, line_of, load_document, objects, part, stamp_of, unseen
from contextstash.hosts.readers.plain import plain_session_id
from contextstash.hosts.readers.transcript import Batch, Line, Stamp, State, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Native


class GeminiContentsReader:
    """Reads contents as they are, thought signatures included."""

    name = "gemini-contents"

    def claims(self, path: Path, document: object) -> bool:
        contents = _contents(document)
        return bool(contents) and all(
            item.get("role") in ("user", "model") and isinstance(item.get("parts"), list) for item in contents
        )

    def stamp(self, path: Path) -> Stamp:
        return stamp_of([path])

    def load(self, path: Path) -> list[Line]:
        return [line_of(record) for record in _contents(load_document(path))]

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        messages = [
            TranscriptMessage(body=line.record, key=f"{place}-{line.digest}") for place, line in enumerate(lines)
        ]
        session = TranscriptSession(session_id=plain_session_id(source), format="gemini", agent="gemini", source=source)
        fresh = unseen(messages, state)
        return [Batch(session, fresh)] if fresh else []


def _contents(document: object) -> list[Json]:
    if isinstance(document, dict):
        document = document.get("history") if "history" in document else document.get("clientHistory")
    return objects(document)


def content_of(value: Any) -> chat.Content:
    """A text, a part, or a list of them, as the content of a message; empty if nothing can be shown."""
    items = value if isinstance(value, list) else [value]
    return chat.simple([found for item in items if (found := _part(item)) is not None])


def _part(item: object) -> Native | None:
    if isinstance(item, str):
        return chat.text_part(item) if item else None
    if not isinstance(item, dict) or "functionResponse" in item or "functionCall" in item:
        return None
    if text_of(item.get("text")):
        return chat.text_part(item["text"])
    media, file = part(item, "inlineData"), part(item, "fileData")
    kind = str(media.get("mimeType") or file.get("mimeType") or "")
    if media and kind.startswith("image/"):
        return chat.image_part(f"data:{kind};base64,{media.get('data', '')}")
    if media or file:
        return chat.text_part(f"[{kind or 'file'} {file.get('fileUri', '')}]".replace(" ]", "]"))
    return None


def response_text(value: object) -> str:
    """The result of a call as text, from the parts that were sent to Gemini."""
    items = value if isinstance(value, list) else [value]
    texts = []
    for item in items:
        answer = part(item, "functionResponse")
        response = answer.get("response")
        if answer:
            texts.append(_response(response))
        elif found := _part(item):
            texts.append(found.get("text") or "[image]")
    return "\n".join(texts)


def _response(response: object) -> str:
    if isinstance(response, dict) and len(response) == 1:
        [only] = response.values()
        if isinstance(only, str):
            return only
    return response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
