"""Codex CLI's rollout files: OpenAI Responses items, one JSON line each, below ~/.codex/sessions.

Records as in openai/codex, codex-rs/protocol/src/protocol.rs (`RolloutItem`) and codex-rs/rollout/src/policy.rs; what
a rollback drops as in codex-rs/core/src/context_manager/history.rs (`drop_last_n_user_turns`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextstash.files.regular_files import MAX_WHOLE_BYTES, open_regular, read_regular
from contextstash.files.zstandard import zstandard
from contextstash.formats.usage import read_usage
from contextstash.hosts.readers.documents import DocumentReader, Json, objects, part
from contextstash.hosts.readers.transcript import Batch, Line, State, is_at, moment, newest_first, split_lines, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Usage

NOT_SENT = frozenset({"ghost_snapshot", "other"})
"""Items of the rollout that never go to the model."""

CONTEXT = (
    "# agents.md instructions", "<environment_context>", "<user_instructions>", "<skill>", "<user_shell_command>",
    "<turn_aborted>", "<subagent_notification>", "<hook_prompt",
)  # fmt: skip
"""Beginnings of messages that Codex itself adds with the role `user`: they do not begin a turn."""

MAX_TURNS = 200
"""How many turns back a rollback is followed. It bounds the reader's state; a longer rollback hides fewer messages."""

MAX_HEAD_BYTES = 4_000_000
"""Bytes of a rollout's first line, which holds the instructions that the session began with. A longer one is not
read."""

MAX_ROLLOUTS_SEARCHED = 300
"""How many of the latest rollouts are searched for one of a project; an older one is not followed."""


class CodexReader:
    """Reads `response_item` records; `token_count` events report the usage of the reply before them. A rollback
    rewinds the turns it names; the summary of a compaction covers all messages before it."""

    name = "codex"

    def knows(self, lines: list[Line]) -> bool:
        return any(line.record.get("type") == "session_meta" for line in lines)

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        reading = _Reading(state)
        for line in lines:
            payload = line.record.get("payload")
            if isinstance(payload, dict):
                reading.take(line, payload)
        session = TranscriptSession(
            session_id=str(state.get("session") or Path(source).stem),
            format="openai-responses",
            agent="codex",
            model=state.get("model"),
            source=source,
            parent_session_id=state.get("parent"),
            window=state.get("window"),
            late_usage=reading.late_usage,
        )
        return [Batch(session, reading.messages)] if reading.messages or reading.late_usage else []


class _Reading:
    """One pass over some lines.

    In the state, `turns` are the last messages before each turn, `spoken` is the last message that Codex did not add
    itself, `reply` the last item of a reply that has no usage yet, `window` the tokens that Codex says it uses. These
    names are stored with each reading: an existing database holds them.
    """

    def __init__(self, state: State) -> None:
        self.messages: list[TranscriptMessage] = []
        self.late_usage: tuple[str, Usage] | None = None
        self._state = state

    def take(self, line: Line, payload: Json) -> None:
        kind, event = line.record.get("type"), text_of(payload.get("type"))
        if kind == "session_meta" and text_of(payload.get("id")):
            _begin(payload, self._state)
        elif kind == "turn_context" and text_of(payload.get("model")):
            self._state["model"] = payload["model"]
        elif kind == "response_item" and event not in NOT_SENT:
            self._item(line, payload)
        elif kind == "compacted":
            self._compacted(line, payload)
        elif event == "task_started":
            self._hear_window(payload)
        elif event == "token_count":
            info = part(payload, "info")
            self._hear_window(info)
            usage = info.get("last_token_usage")
            if isinstance(usage, dict):
                self._report(usage)
        elif event == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))

    def _hear_window(self, given: Json) -> None:
        """The window as Codex states it: 95 % of its model's own, less than other programs have (codex-rs/core)."""
        window = given.get("model_context_window")
        if isinstance(window, int) and not isinstance(window, bool) and window > 0:
            self._state["window"] = window

    def _item(self, line: Line, item: Json) -> None:
        if _is_reply(item):
            self._state["reply"] = line.digest
        elif not str(item.get("type")).endswith("_output"):
            self._state.pop("reply", None)
        if _begins_turn(item):
            turns: list[str] = self._state.setdefault("turns", [])
            turns.append(self._state.get("spoken" if turns else "last", ""))
            del turns[:-MAX_TURNS]
        model = self._state.get("model")
        self._append(TranscriptMessage(item, line.digest, model=model, by_host=_is_by_codex(item)), line)
        if not _is_context(item):
            self._state["spoken"] = line.digest

    def _compacted(self, line: Line, payload: Json) -> None:
        body = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": _summary(payload)}]}
        self._append(TranscriptMessage(body=body, key=line.digest, covers_before=True), line)
        self._state.update(turns=[], spoken=line.digest)
        self._state.pop("reply", None)

    def _append(self, message: TranscriptMessage, line: Line) -> None:
        self.messages.append(
            replace(
                message,
                created_at=moment(line.record.get("timestamp")),
                rewind_to_key=self._state.pop("rewind", None),
            )
        )
        self._state["last"] = line.digest

    def _report(self, given: Json) -> None:
        """The usage of a reply, on its last item. Codex writes it after the outputs of the calls in that reply, and
        again if only its rate limits changed. If the reply was read earlier, the batch carries it as `late_usage`."""
        reply = self._state.pop("reply", None)
        if reply is None:
            return
        usage: Usage | None = read_usage(given)
        for place in range(len(self.messages) - 1, -1, -1):
            if self.messages[place].key == reply:
                self.messages[place] = replace(self.messages[place], usage=usage)
                return
        self.late_usage = (reply, usage) if usage else None

    def _roll_back(self, turns: object) -> None:
        known: list[str] = self._state.get("turns", [])
        if isinstance(turns, int) and turns > 0 and known:
            first = max(0, len(known) - turns)
            self._state.update(dict.fromkeys(("rewind", "spoken", "last"), known[first]))
            del known[first:]
            self._state.pop("reply", None)


def _begin(payload: Json, state: State) -> None:
    """Only the first meta record counts: a fork repeats the meta record of its origin after its own."""
    if "session" not in state:
        state["session"] = payload["id"]
        parent = text_of(payload.get("parent_thread_id")) or text_of(payload.get("forked_from_id"))
        if parent:
            state["parent"] = parent


def _is_reply(item: Json) -> bool:
    kind = str(item.get("type"))
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _begins_turn(item: Json) -> bool:
    """Whether this is a message of the user, or of another agent."""
    return item.get("type") == "agent_message" or (item.get("role") == "user" and not _is_context(item))


def _is_context(item: Json) -> bool:
    """Whether Codex added this message itself, before a turn of the user."""
    if item.get("role") == "developer":
        return True
    texts = [str(found.get("text") or "").lstrip().lower() for found in objects(item.get("content"))]
    return item.get("role") == "user" and any(text.startswith(CONTEXT) for text in texts)


def _is_by_codex(item: Json) -> bool:
    """Whether nothing in a message of the user's role was typed by the user. Newer versions name each part's kind,
    `user.text` or such as `environments.environment_context`."""
    if item.get("role") != "user":
        return False
    kinds = part(item, "internal_chat_message_metadata_passthrough").get("content_item_kinds")
    if isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds):
        return not any(kind.startswith("user.") or kind == "unknown" for kind in kinds)
    texts = [str(found.get("text") or "").lstrip().lower() for found in objects(item.get("content"))]
    return bool(texts) and all(text.startswith(CONTEXT) for text in texts)


def _summary(payload: Json) -> str:
    """Codex's replacement of the history: its summary, or the texts of the messages that it kept."""
    if text := text_of(payload.get("message")):
        return text
    texts = []
    for item in objects(payload.get("replacement_history")):
        texts += [found["text"] for found in objects(item.get("content")) if text_of(found.get("text"))]
    return "\n\n".join(texts) or "(Codex compacted the conversation here; its summary is not readable.)"


def sessions_folder(home: Path) -> Path:
    """The folder in which Codex keeps its rollouts."""
    configured = os.environ.get("CODEX_HOME")
    return (Path(configured) if configured else home / ".codex") / "sessions"


def current_rollouts(folder: Path, project: Path | None) -> list[Path]:
    """The rollout of this project (of any if none is named) that was written last, then those of its sub-agents.

    A rollout's first line names its folder, and for a sub-agent its parent.
    """
    files = newest_first(folder.rglob("rollout-*.jsonl"), folder)[:MAX_ROLLOUTS_SEARCHED]
    agents: list[tuple[Path, Json]] = []
    for file in files:
        head = _head(file)
        if "subagent" in part(head, "source") or text_of(head.get("parent_thread_id")):
            agents.append((file, head))
        elif project is None or is_at(head.get("cwd"), project):
            own = text_of(head.get("id"))
            return [file, *(agent for agent, parent in agents if own and own in json.dumps(_parents(parent)))]
    return []


def is_rollout_of(file: Path, project: Path) -> bool:
    """Whether a rollout belongs to a session in this folder."""
    return is_at(_head(file).get("cwd"), project)


def _head(file: Path) -> dict[str, Any]:
    try:
        with open_regular(file) as lines:
            record = json.loads(lines.readline(MAX_HEAD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    payload = record.get("payload") if isinstance(record, dict) else None
    return payload if isinstance(payload, dict) else {}


def _parents(head: Json) -> list[object]:
    return [head.get("source"), head.get("parent_thread_id"), head.get("forked_from_id")]


SUFFIX = ".jsonl.zst"


class CompressedCodexReader(DocumentReader):
    """Reads a compressed rollout whole. Its messages have the same keys as in the uncompressed file, so messages that
    were read from that file are not recorded again."""

    name = "codex"

    def claims(self, path: Path, document: object) -> bool:
        return path.name.endswith(SUFFIX)

    def load(self, path: Path) -> list[Line]:
        """Raises BadInputError if it is damaged."""
        zstd = zstandard()
        data, packed = b"", read_regular(path)
        try:
            while packed:  # a file may be several frames
                frame = zstd.ZstdDecompressor()
                data += frame.decompress(packed, MAX_WHOLE_BYTES + 1 - len(data))
                if len(data) > MAX_WHOLE_BYTES:
                    raise BadInputError(f"This compressed rollout unpacks to more than {MAX_WHOLE_BYTES:,} bytes.")
                if not frame.eof:
                    raise BadInputError("This compressed rollout is damaged or still being written: it has no end.")
                packed = frame.unused_data
        except zstd.ZstdError as error:
            raise BadInputError(f"This compressed rollout is damaged or still being written: {error}.") from error
        return split_lines(data, at_end=True)[0]

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        return CodexReader().read(lines, {}, source.removesuffix(".zst"))


def is_superseded(path: Path) -> bool:
    """Whether the uncompressed rollout exists next to this compressed one."""
    return path.name.endswith(SUFFIX) and path.with_suffix("").is_file()
