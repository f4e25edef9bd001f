"""VS Code's chat sessions: `chatSessions/<id>.json` or `.jsonl` below its user data, and exported chats.

Formats as in microsoft/vscode, src/vs/workbench/contrib/chat/common/model/chatModel.ts (`ISerializableChatData`) and
objectMutationLog.ts (the `.jsonl`: the session, then changes to it), and microsoft/vscode-copilot-chat
(`toolCallRounds` and `toolCallResults` in the metadata of a result). Only Copilot writes those; of the tools of
other agents only the text shown in the chat is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextstash.hosts.readers import chat_messages as chat
from contextstash.hosts.readers.documents import (
    Conversation,
    DocumentReader,
    Json,
    count_of,
    load_document,
    load_lines,
    objects,
    part,
    title_of,
    usage_of,
)
from contextstash.hosts.readers.plain import plain_session_id
from contextstash.hosts.readers.transcript import Line, moment_of_ms, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Usage

INITIAL, SET, PUSH, DELETE = 0, 1, 2, 3
"""The kinds of changes in a `.jsonl`."""

FINISHED = (1, 2, 3)
"""The values of a reply's state for complete, cancelled and failed."""


class VSCodeReader(DocumentReader):
    """Reads requests as OpenAI Chat messages: what the user typed, then each round of the reply with its results.

    A request is read when its reply is finished, or when another request follows. Not kept: the files and instructions
    that were put into the prompt, edits as the editor shows them, and Copilot's own summaries.
    """

    name = "vscode"

    def claims(self, path: Path, document: object) -> bool:
        if isinstance(document, list):
            first = document[0] if document else None
            return part(first, "v").keys() >= {"requests"} and part({"": first}, "").get("kind") == INITIAL
        known = isinstance(document, dict) and ("sessionId" in document or "responderUsername" in document)
        return known and isinstance(part({"": document}, "").get("requests"), list)

    def records(self, path: Path) -> list[Json]:
        return objects([session_of(load_lines(path)) if path.suffix == ".jsonl" else load_document(path)])

    def conversation(self, lines: list[Line], source: str) -> Conversation:
        session = next((line.record for line in lines), {})
        found = TranscriptSession(
            session_id=text_of(session.get("sessionId")) or plain_session_id(source),
            format="openai-chat",
            agent="vscode",
            title=title_of(session.get("customTitle")),
            source=source,
        )
        return found, _messages(objects(session.get("requests")))


def session_of(lines: Iterable[Line]) -> Json:
    """The session after all changes; a change to something that does not exist is skipped."""
    session: Json = {}
    for line in lines:
        kind, path, value = line.record.get("kind"), line.record.get("k"), line.record.get("v")
        if kind == INITIAL and isinstance(value, dict):
            session = value
        elif isinstance(path, list) and path:
            _change(session, path, line.record, value)
    return session


def _change(session: Json, path: list[Any], change: Json, value: object) -> None:
    *way, last = path
    at: Any = session
    try:
        for step in way:
            at = at[step]
        if change.get("kind") == PUSH:
            items = (at[last] if isinstance(at, list) else at.get(last)) or []
            at[last] = [*items[: change.get("i")], *(value if isinstance(value, list) else [])]
        elif change.get("kind") == SET:
            at[last] = value
        elif change.get("kind") == DELETE:
            at[last] = None
    except (KeyError, IndexError, TypeError, AttributeError):
        return


def _messages(requests: list[Json]) -> Iterator[TranscriptMessage]:
    for place, request in enumerate(requests):
        if request.get("isHidden") or request.get("shouldBeRemovedOnSend"):
            continue
        if place == len(requests) - 1 and not _is_finished(request):
            return
        yield from _request(request, str(request.get("requestId") or place))


def _is_finished(request: Json) -> bool:
    over = request.get("result") is not None or bool(request.get("isCanceled"))
    return over or part(request, "modelState").get("value") in FINISHED


def _request(request: Json, key: str) -> Iterator[TranscriptMessage]:
    created = moment_of_ms(request.get("timestamp"))
    message = request.get("message")
    text = message if isinstance(message, str) else part(request, "message").get("text")
    if isinstance(text, str) and text:
        yield TranscriptMessage(body=chat.user_message(text), key=key, created_at=created)
    replies = list(_replies(request, key))
    usage = _usage(request)
    last = max((n for n, found in enumerate(replies) if found.body["role"] == "assistant"), default=-1)
    for number, found in enumerate(replies):
        yield replace(found, created_at=created, usage=usage if number == last else None)


def _replies(request: Json, key: str) -> Iterator[TranscriptMessage]:
    metadata = part(request, "result", "metadata")
    model = text_of(metadata.get("resolvedModel")) or text_of(request.get("modelId"))
    results = part(metadata, "toolCallResults")
    text = ""
    for number, item in enumerate(objects(metadata.get("toolCallRounds"))):
        text = text_of(item.get("response")) or ""
        thinking = part(item, "thinking").get("text")
        reasoning = "\n".join(map(str, thinking)) if isinstance(thinking, list) else text_of(thinking) or ""
        made = [found for found in objects(item.get("toolCalls")) if text_of(found.get("id"))]
        calls = [chat.call(found["id"], str(found.get("name")), found.get("arguments")) for found in made]
        if text or calls or reasoning:
            yield TranscriptMessage(body=chat.reply(text, calls, reasoning), key=f"{key}#{number}", model=model)
        for found in made:
            if found["id"] in results:
                body = chat.result(found["id"], _texts(results[found["id"]]))
                yield TranscriptMessage(body=body, key=f"{key}#{found['id']}")
    shown = "" if text else _shown(request.get("response"))
    if shown:
        yield TranscriptMessage(body=chat.reply(shown), key=f"{key}#shown", model=model)


def _shown(response: object) -> str:
    """The text of a reply as the chat shows it, used if the rounds contain no text."""
    values = [item.get("value") for item in objects(response) if item.get("kind") in (None, "markdownContent")]
    content = [part(item, "content").get("value") for item in objects(response)]
    return "".join(text for text in (*values, *content) if isinstance(text, str))


def _texts(result: object) -> str:
    """The text of a tool's result: strings, or trees of elements whose leaves hold text."""
    pieces = [item.get("value") for item in objects(part({"": result}, "").get("content"))]
    return "\n".join(piece if isinstance(piece, str) else "".join(_leaves(piece)) for piece in pieces)


def _leaves(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("text"), str):
            yield node["text"]
        elif not isinstance(node.get("node"), dict) and not isinstance(node.get("children"), list):
            yield json.dumps(node, ensure_ascii=False)
        for below in (node.get("node"), *objects(node.get("children"))):
            yield from _leaves(below)


def _usage(request: Json) -> Usage | None:
    """The usage of the last call of a request; VS Code does not store that of the others."""
    result, metadata = part(request, "result"), part(request, "result", "metadata")
    reported = part(result, "usage") or part(request, "usage") or request
    prompt = count_of(metadata, "promptTokens") or count_of(reported, "promptTokens")
    completion = count_of(metadata, "outputTokens") or count_of(reported, "completionTokens", "outputTokens")
    return usage_of(prompt, completion)
