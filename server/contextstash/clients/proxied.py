"""Clients at the model API: started behind the proxy or with a first message, and recognized by their requests."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from contextstash.clients.client import (
    ANTHROPIC,
    Client,
    Launch,
    Proxied,
    anthropic_api,
    clients,
    own_clients,
    without_version,
)
from contextstash.safety.sanitize import MARKER, OF_SESSION
from contextstash_storage.errors import BadInputError

# Started.


def launched_client(program: str, upstream: str | None = None) -> Client:
    """The client of a program, by its name or path; any other program has no name. `upstream` is the model API, if the
    user named one. Another program may use both providers: with the variables of both SDKs set, its key and messages
    for the one would go to the other, so it gets both only if its requests go to neither."""
    name = Path(program).name.removesuffix(".exe")
    for known in clients():
        if name in known.programs and known.proxied is not None:
            return known
    api = without_version(upstream or ANTHROPIC)
    variables = {"ANTHROPIC_BASE_URL": "", "OPENAI_BASE_URL": "/v1"}
    variables.pop({ANTHROPIC: "OPENAI_BASE_URL", "https://api.openai.com": "ANTHROPIC_BASE_URL"}.get(api, ""), None)

    def launch(url: str, command: Sequence[str], window: int | None) -> Launch:
        if window is not None:
            raise BadInputError("run --window is for claude and codex. Set the size in the client's own settings.")
        return tuple(command), {name: url + path for name, path in variables.items()}

    return Client("", proxied=Proxied(anthropic_api, launch))


MAX_ARGUMENT_BYTES = 120_000
"""Of one argument of a program: Linux takes 131,072."""


def first_message(hand_off: str, session_id: str, agent: str | None) -> str:
    """The first message for the client: the hand-off, and how to read the rest of the session, of this agent."""
    hand_off = hand_off.replace("\0", "\ufffd")  # no argument of a program holds one
    return (
        f"{hand_off}\n\n"
        f"This continues session {session_id} of {agent or 'another program'}; nothing of it is in your own history."
        " The tools of contextstash may connect only after your first reply has begun. With them,"
        f' search_history with session_id "{session_id}" finds anything that was said or done in it,'
        " and get_archived_output returns an output by its handle. Say in two sentences where the work stands, and go"
        " on with what is open."
    )


def run_client(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a client in this terminal, and return its exit code: of one that a signal ended, 128 and its number, as
    shells do. No signal ends this process from then on, which records what its client did last: SIGINT and SIGQUIT come
    from the terminal, which sends them to the client too; others are passed on. Raises OSError if it cannot be
    started."""
    process = subprocess.Popen(list(command), env=dict(environment))

    def pass_on(number: int, _: object) -> None:
        process.send_signal(number)  # nothing, if it has ended

    handlers: dict[str, Any] = {
        "SIGINT": signal.SIG_IGN,
        "SIGQUIT": signal.SIG_IGN,
        "SIGTERM": pass_on,
        "SIGHUP": pass_on,
    }
    for name in handlers.keys() & vars(signal).keys():
        signal.signal(getattr(signal, name), handlers[name])
    code = process.wait()
    return 128 - code if code < 0 else code


# Recognized.

MAX_ID = 120
"""Characters. Ids of sessions have at most 200, and the proxy adds a suffix for side conversations."""

_SAFE = re.compile(rf"[\w.:-]{{1,{MAX_ID}}}")
_CONNECTING = re.compile(r"MCP servers are still connecting.{0,2000}?\bcontextstash\b", re.DOTALL)


@cache
def _known() -> Mapping[str, Proxied]:
    """The clients whose requests are known."""
    return {each.name: each.proxied for each in own_clients() if each.proxied}


def client_session(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, str | None]:
    """The client's own id of a conversation, and that of the conversation that started it, as its headers name them."""
    found = dict(headers)
    own = [name for each in _known().values() for name in each.session_headers]
    above = [each.parent_header for each in _known().values()]
    session_id, parent = (
        _safe(next((found[name] for name in names if found.get(name)), b"").decode("latin-1")) for names in (own, above)
    )
    return session_id, parent if session_id and parent != session_id else None


def _safe(name: str) -> str | None:
    """The name as the id of a session; a hash of one that cannot be one, or is the session of outputs that belong to no
    conversation."""
    from contextstash.record.output_archive import is_archive_id  # loads pydantic, which no command's help needs

    if not name or (_SAFE.fullmatch(name) and not is_archive_id(name)):
        return name or None
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def agent_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The name of the client's agent, as its transcripts are recorded; `proxy` for one that is not known."""
    sent = dict(headers).get(b"user-agent", b"").lower()
    return next((name for name, each in _known().items() if any(own in sent for own in each.user_agents)), "proxy")


def is_compaction(last_message: Mapping[str, Any]) -> bool:
    """Whether the last message of a request asks the model for the client's own summary of the conversation, or OpenAI
    for its own compaction (Codex, seen in 0.169)."""
    asks = [phrase for each in _known().values() for phrase in each.asks_for_summary]
    return last_message.get("type") == "compaction_trigger" or _has(last_message, asks)


def continues_summary(first_message: Mapping[str, Any]) -> bool:
    """Whether a conversation begins with the client's own summary of what was before, or with a hand-off in its place:
    our plugin answers the client's compaction with one."""
    ours = any(text.startswith(f"{MARKER}: {OF_SESSION}") for text in _texts_of(first_message))
    return ours or _has(first_message, [phrase for each in _known().values() for phrase in each.continues])


def _has(message: Mapping[str, Any], phrases: Sequence[str]) -> bool:
    return any(phrase in text for text in map(str.lower, _texts_of(message)) for phrase in phrases)


def announces(message: Mapping[str, Any], tool: str) -> bool:
    """Whether a message says that a search for tools finds this one. Claude Code (2.1) lists the tools of MCP
    servers, and the servers that are still connecting, in reminders of the user's messages instead of in `tools`; for
    newer models these are messages of the role `system`.
    Results of tools do not count: a placeholder of contextstash names the tool too."""
    if message.get("role") not in ("user", "system"):
        return False
    texts = _texts_of(message)
    return any(tool in text or ("contextstash" in text and _CONNECTING.search(text)) for text in texts)


def _texts_of(message: Mapping[str, Any]) -> list[str]:
    """The texts of a message's blocks; not those inside the results of tools."""
    content = message.get("content")
    blocks = [{"text": content}] if isinstance(content, str) else content
    texts = [each.get("text") for each in (blocks if isinstance(blocks, list) else ()) if isinstance(each, dict)]
    return [text for text in texts if isinstance(text, str)]
