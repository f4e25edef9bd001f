"""Codex CLI: its files, its MCP entry, its hooks, its window, its start behind the proxy, and its rollouts as messages.

Rollouts are OpenAI Responses items, one JSON line each. Records as in openai/codex, codex-rs/protocol/src/protocol.rs
(`RolloutItem`) and codex-rs/rollout/src/policy.rs; what a rollback drops as in codex-rs/core/src/context_manager/
history.rs (`drop_last_n_user_turns`). Hooks as in the schemas and event handlers of its `hooks` crate, and as version
0.169 ran.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contextstash.base.files import open_regular, read_regular
from contextstash.clients.client import (
    Client,
    Entry,
    Files,
    Hooks,
    Launch,
    Proxied,
    TextPath,
    text_blocks,
)
from contextstash.clients.current import MAX_FILES, NOT_TOLD, is_at, newest_first, recent
from contextstash.clients.fields import Json, count_of, moment, objects, part, reported_usage, text_of
from contextstash.clients.transcripts import Line, Reader, Reported, State
from contextstash.record.transcript_records import TranscriptMessage
from contextstash_storage.errors import BadInputError

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


def _said(lines: Iterable[Line], state: State, source: str) -> Iterator[TranscriptMessage | Reported]:
    """The items of the conversation. In the state, `turns` are the last messages before each turn, `spoken` is the last
    message that Codex did not add itself, `reply` the last item of a reply that has no usage yet, `rewind` the message
    to which a rollback went."""
    for line in lines:
        payload = line.record.get("payload")
        if not isinstance(payload, dict):
            continue
        kind, event = line.record.get("type"), text_of(payload.get("type"))
        if kind == "response_item" and event not in NOT_SENT:
            yield _item(line, payload, state)
        elif kind == "compacted":
            yield _compacted(line, payload, state)
        elif event == "token_count":
            # Written after the outputs of the calls in the reply, and again if only the rate limits changed.
            given = part(payload, "info", "last_token_usage")
            _note_window(part(payload, "info"), state)
            if given and (reply := state.pop("reply", None)) and (usage := reported_usage(given)):
                yield Reported(reply, usage)
        else:
            _note(kind, event, payload, state)


READER = Reader(
    "codex", "openai-responses", lambda _, records: any(each.get("type") == "session_meta" for each in records), _said
)


def _note(kind: object, event: str | None, payload: Json, state: State) -> None:
    if kind == "session_meta" and text_of(payload.get("id")) and "session" not in state:
        # Only the first one counts: a fork repeats the meta record of its origin after its own.
        parent = text_of(payload.get("parent_thread_id")) or text_of(payload.get("forked_from_id"))
        state.update({"session": payload["id"], **({"parent": parent} if parent else {})})
    elif kind == "turn_context":
        state["model"] = text_of(payload.get("model")) or state.get("model")
    elif event == "task_started":
        _note_window(payload, state)
    elif event == "thread_rolled_back":
        _roll_back(payload.get("num_turns"), state)


def _note_window(given: Json, state: State) -> None:
    """The window as Codex states it: 95 % of its model's own, less than other programs have (codex-rs/core)."""
    if window := count_of(given, "model_context_window"):
        state["window"] = window


def _item(line: Line, item: Json, state: State) -> TranscriptMessage:
    kind, role = str(item.get("type")), item.get("role")
    if role == "assistant" or kind == "reasoning" or kind.endswith("_call"):
        state["reply"] = line.digest
    elif not kind.endswith("_output"):
        state.pop("reply", None)
    texts = [str(found.get("text") or "").lstrip().lower() for found in objects(item.get("content"))]
    is_context = role == "developer" or (role == "user" and any(text.startswith(CONTEXT) for text in texts))
    if kind == "agent_message" or (role == "user" and not is_context):
        turns: list[str] = state.setdefault("turns", [])
        turns.append(state.get("spoken" if turns else "last", ""))
        del turns[:-MAX_TURNS]
    if not is_context:
        state["spoken"] = line.digest
    by_codex = role == "developer" or (role == "user" and _is_by_codex(item, texts))
    return _placed(TranscriptMessage(item, model=state.get("model"), by_host=by_codex), line, state)


def _compacted(line: Line, payload: Json, state: State) -> TranscriptMessage:
    """The summary of a compaction, which covers all messages before it."""
    state.update(turns=[], spoken=line.digest)
    state.pop("reply", None)
    body = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": _summary(payload)}]}
    return _placed(TranscriptMessage(body, covers_before=True), line, state)


def _placed(message: TranscriptMessage, line: Line, state: State) -> TranscriptMessage:
    state["last"] = line.digest
    at = moment(line.record.get("timestamp"))
    return replace(message, key=line.digest, created_at=at, rewind_to_key=state.pop("rewind", None))


def _roll_back(turns: object, state: State) -> None:
    """Rewind the turns that a rollback names."""
    known: list[str] = state.get("turns", [])
    if isinstance(turns, int) and turns > 0 and known:
        first = max(0, len(known) - turns)
        state.update(dict.fromkeys(("rewind", "spoken", "last"), known[first]))
        del known[first:]
        state.pop("reply", None)


def _is_by_codex(item: Json, texts: Sequence[str]) -> bool:
    """Whether nothing in a message of the user's role was typed by the user. Newer versions name each part's kind,
    `user.text` or such as `environments.environment_context`."""
    kinds = part(item, "internal_chat_message_metadata_passthrough").get("content_item_kinds")
    if isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds):
        return not any(kind.startswith("user.") or kind == "unknown" for kind in kinds)
    return bool(texts) and all(text.startswith(CONTEXT) for text in texts)


def _summary(payload: Json) -> str:
    """Codex's replacement of the history: its summary, or the texts of the messages that it kept."""
    if text := text_of(payload.get("message")):
        return text
    texts = []
    for item in objects(payload.get("replacement_history")):
        texts += [found["text"] for found in objects(item.get("content")) if text_of(found.get("text"))]
    return "\n\n".join(texts) or "(Codex compacted the conversation here; its summary is not readable.)"


def _in_folder(name: str) -> Callable[[], Path]:
    """A file or folder in the folder in which Codex keeps the user's."""
    return lambda: Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / name


def current_sessions(folder: Path, project: Path, call: Mapping[str, Any]) -> list[list[Path]]:
    """The session that a call names: a sub-agent's names its thread, and the session that began it (as 0.171 ran). Else
    those of the project."""
    named = part(call, "x-codex-turn-metadata")
    ids = [each for name in ("thread_id", "session_id") if (each := text_of(named.get(name)))]
    sessions = [(file, head) for file, head in _rollouts(folder) if not _is_agent(head)]
    found = [file for each in ids for file, head in sessions if head["id"] == each][:1]
    if ids and not found:
        raise BadInputError(NOT_TOLD)
    lately = found or recent([file for file, head in sessions if is_at(head["cwd"], project)][:2])
    return [[file, *agent_rollouts(file)] for file in lately]


def agent_rollouts(rollout: Path) -> list[Path]:
    """The rollouts of a session's sub-agents."""
    listed = _rollouts(_in_folder("sessions")())
    own = next((head["id"] for file, head in listed if file.name == rollout.name), None)
    return [file for file, head in listed if own and _is_agent(head) and own in json.dumps(head)]


def _is_agent(head: Json) -> bool:
    return "subagent" in part(head, "source") or text_of(head["parent_thread_id"]) is not None


def _rollouts(folder: Path) -> list[tuple[Path, Json]]:
    """The latest rollouts, the newest first, each with what its first line says: its id and its folder, and for a
    sub-agent its parent."""
    found: list[tuple[Path, Json]] = []
    for file in newest_first(folder.rglob("rollout-*.jsonl"), folder):
        with suppress(OSError, ValueError, RecursionError):
            found.append((file, _head(file)))
    return found


@lru_cache(maxsize=2 * MAX_FILES)
def _head(file: Path) -> Json:
    """What the first line of a rollout says of its session; it never changes. Raises OSError or ValueError."""
    with open_regular(file) as lines:
        payload = part(json.loads(lines.readline(MAX_HEAD_BYTES)), "payload")
    return {name: payload.get(name) for name in ("id", "cwd", "source", "parent_thread_id", "forked_from_id")}


def text_paths(_: str, response: Any) -> list[TextPath]:
    """The paths of the texts in a response: a shell's output is a string, that of an MCP tool a result with blocks."""
    if isinstance(response, str):
        return [()]
    blocks = response
    if isinstance(response, dict):
        blocks = None if response.get("isError") or response.get("is_error") else response.get("content")
    found = text_blocks(response)
    # The reason is text only: images and the like would be lost.
    return found if isinstance(blocks, list) and len(found) == len(blocks) else []


def replacement(_: Any, texts: Sequence[str]) -> dict[str, Any]:
    """The hook's response. No field of it replaces an output: a decision `block` with a reason shows the reason in its
    place, and the turn goes on. What is archived is what Codex's own limit, about 10,000 tokens, has left of it."""
    return {"decision": "block", "reason": "\n".join(texts)}


API_BASE = "https://api.openai.com/v1"
CHATGPT_BASE = "https://chatgpt.com/backend-api/codex"
"""The built-in provider's addresses: with an API key, and for users who signed in with ChatGPT."""


def provider() -> tuple[str, str]:
    """The address of the provider that Codex would use in this environment, and the setting that replaces it. What a
    profile or an option of its own sets is not seen."""
    settings, login = _document("config.toml", tomllib.loads), _document("auth.json", json.loads)
    name = str(settings.get("model_provider") or "openai")
    own = part(settings, "model_providers", name).get("base_url")
    if name != "openai" and isinstance(own, str):
        return own, f"model_providers.{name}.base_url"
    given = settings.get("openai_base_url") or os.environ.get("OPENAI_BASE_URL")
    # The file of a login with ChatGPT can hold a key in addition to its tokens.
    mode = login.get("auth_mode") or ("chatgpt" if login.get("tokens") else "apikey")
    has_key = os.environ.get("CODEX_API_KEY") or (login.get("OPENAI_API_KEY") and mode == "apikey")
    return text_of(given) or (API_BASE if has_key else CHATGPT_BASE), "openai_base_url"


def _document(name: str, parse: Any) -> Mapping[str, Any]:
    """The file's content; nothing if it cannot be read. Codex itself says what is wrong with it."""
    try:
        found = parse(read_regular(_in_folder(name)()).decode())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _upstream() -> str:
    parts = urlsplit(provider()[0])
    return f"{parts.scheme}://{parts.netloc}"


def _launch(url: str, command: Sequence[str], window: int | None) -> Launch:
    """The built-in provider at another address: with a provider of another name Codex would not let OpenAI compact, and
    its list of sessions to resume would be empty. A provider that the user chose keeps its name too."""
    base_url, setting = provider()
    option = f"{setting}={json.dumps(url + urlsplit(base_url).path.rstrip('/'))}"
    sized = () if window is None else ("-c", f"model_auto_compact_token_limit={window}")
    return (command[0], "-c", option, *sized, *command[1:]), {}


WAITS_FOR_SERVERS = "mcp_optional_startup_grace_ms=0"
"""Codex (0.169, as it ran) then sends its first request when each MCP server has started, or has failed to within its
own time limit. By default it waits for a second, in which a server in Python may not have started."""

CLIENTS = (
    Client(
        "codex",
        programs=("codex",),
        entry=Entry("toml", "mcp_servers", _in_folder("config.toml")),
        files=Files(_in_folder("sessions"), current_sessions, agent_rollouts),
        reader=lambda: READER,
        hooks=Hooks(
            ("PostToolUse", "PreCompact", "SessionStart", "SessionEnd", "Stop", "SubagentStop"),
            timeout=30,
            file=_in_folder("hooks.json"),
            parts=3,
            remark="Codex runs new hooks only once you trust them: /hooks shows them. Until then nothing is shortened"
            " or handed over, and a session is recorded only if its model calls one of our tools.",
            after_tool="PostToolUse",
            mcp_prefix="mcp__",
            text_paths=text_paths,
            replacement=replacement,
            # In code mode (0.171, GPT-6) a replaced output fails the script that asked for it.
            script_ids="exec-",
            # More than 10,000 characters of one hook are cut to their head and tail (its `additionalContextLimit`).
            context_limit=9_800,
        ),
        proxied=Proxied(
            _upstream,
            _launch,
            user_agents=(b"codex",),
            # Its sub-agents share `session-id` and have a `thread-id` each (seen in 0.169).
            session_headers=(b"thread-id", b"session-id"),
            parent_header=b"x-codex-parent-thread-id",  # seen in 0.169
            asks_for_summary=(
                "context checkpoint compaction",
                "you have been tasked with summarizing",
                "create a handoff summary",
            ),  # 0.5 and later
            continues=("another language model started to solve this problem",),
        ),
        continued=lambda program, message: (program, "-c", WAITS_FOR_SERVERS, message),
    ),
)
