"""The command that a client's plugin runs: JSON in, JSON out. It asks no model, and changes nothing in the client.

Asked, one object on standard input:

    {"do": "compact", "session": "…", "transcript": "/…", "agent": "…", "messages": […], "tokens": 20000}

`do` is what to do. `transcript`, the client's own file, is read to its end first; then `session` may be left out.
`agent` is the sub-agent whose window it is, if it is one's. A message of the list, in the order of the client's next
request, is

    {"id": "…", "role": "user", "text": "…", "calls": [{"id", "tool", "input"}], "results": [{"id", "text", "error"}]}

with the id that the transcript has too, if there is one; what is empty may be left out, and so may anything else that
the client keeps in a message (reasoning, images).

Returned, one object on standard output:

- `record`: `{"session_id", "recorded"}`. What is new in the transcript is recorded.
- `compact`: the window after a compaction to about so many `tokens`, which is recorded.
- `view`: the window as it is now, with what was pruned, compacted, pinned and restored; nothing is decided, so a longer
  list gives a window that begins with the same, until something is changed.

A window is `{"session_id", "messages", "tokens_before", "tokens_after", "left", "line"}`. Each of its messages is one
of ours, `{"role": "user", "text"}`; or a message of the list as it is, by its place, `{"at": 5}`; or that with the
texts of some results replaced by their calls, `{"at": 5, "results": {"call": "text"}}`. Messages that are not named
leave the window. `line` says in a line what happened.

If anything fails nothing is written to standard output, a line on standard error says why, and the exit code is 1: the
client goes on as if there were no plugin.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from contextstash.clients.client import client as client_of
from contextstash.clients.hooks import hook_stash, note, read_transcripts, session_of
from contextstash.request.client_window import ClientCall, ClientMessage, ClientResult
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.request.client_window import ClientWindow

MAX_BYTES = 64 * 1024 * 1024
"""The largest request that is read: ten windows of a million tokens."""


def run_window(client: str, options: Sequence[str] = ()) -> int:
    """Handle one request of a client's plugin; returns the exit code. The options are `--db DATABASE`."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        given = dict(zip(options[::2], options[1::2], strict=True))
        if database := given.get("--db"):
            os.environ["CONTEXTSTASH_DB"] = database
        asked = None
        with suppress(ValueError, RecursionError):
            asked = json.loads(sys.stdin.buffer.read(MAX_BYTES))
        if not isinstance(asked, dict):
            raise BadInputError("Expected a JSON object on standard input; see contextstash window --help.")
        asyncio.run(_answer(client, asked))
    except Exception as error:  # whatever fails, the client goes on without us
        note(client, f"{type(error).__name__}: {error}")
        expected = isinstance(error, ContextstashError | OSError)
        said = str(error) if expected else "The request could not be answered; hooks.log says why."
        sys.stderr.write(f"Error: {' '.join(said.split())}\n")
        return 1
    return 0


async def _answer(client: str, asked: Mapping[str, Any]) -> None:
    """Write the answer. Only what the plugin has taken counts as given: if it is late, the plugin has ended this
    process, and the client compacts itself."""
    work = asked.get("do")
    if work not in ("compact", "view", "record"):
        raise BadInputError("'do' is one of compact, view, record.")
    messages = [_message(each) for each in _objects(asked, "messages")]
    async with hook_stash(client_of(client)) as stash:
        reports = await read_transcripts(client_of(client), stash, asked.get("transcript"), reduce=None)
        session_id = session_of(reports, asked.get("agent")) or _text(asked, "session")
        if not session_id:
            raise BadInputError("The session is not known: pass 'session', or its 'transcript'.")
        if work == "record":
            _write({"session_id": session_id, "recorded": sum(each.recorded for each in reports.values())})
            return
        if work == "view":
            window = await stash.read_client_window(session_id, messages)
        else:
            tokens = asked.get("tokens")
            more = {"tokens": tokens} if isinstance(tokens, int) and tokens > 0 else {}
            window = await stash.compact_client_window(session_id, messages, **more)
        _write({**window.model_dump(), "line": line_of(window)})
        if work == "compact":
            await stash.note_given_window(session_id, window)


def _write(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()


def line_of(window: ClientWindow) -> str:
    """What happened, in a line for the user."""
    before, after = (f"{round(tokens / 1000):,}k" for tokens in (window.tokens_before, window.tokens_after))
    left = "1 message" if window.left == 1 else f"{window.left} messages"
    return f"{before} → {after} tokens, {left} archived, all searchable."


def _message(given: Mapping[str, Any]) -> ClientMessage:
    calls = tuple(
        ClientCall(_text(call, "id"), _text(call, "tool"), call.get("input")) for call in _objects(given, "calls")
    )
    results = tuple(
        ClientResult(_text(each, "id"), _text(each, "text"), bool(each.get("error")))
        for each in _objects(given, "results")
    )
    return ClientMessage(_text(given, "id"), _text(given, "role"), _text(given, "text"), calls, results)


def _objects(given: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    listed = given.get(name) or []
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        raise BadInputError(f"'{name}' is a list of objects.")
    return listed


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    return found if isinstance(found, str) else ""
