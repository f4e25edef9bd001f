"""The archive of outputs that are in no recorded message; each is stored in a session that holds only such outputs."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from contextstash.record.messages import append, check_limits, sha256_of
from contextstash.session.access import OUTPUTS_SESSION, OUTPUTS_SUFFIX, Access, check_session_id
from contextstash_storage.errors import BadInputError, NotFoundError
from contextstash_storage.records import Native, Session

OUTPUTS_AGENT = "contextstash-outputs"
"""The agent of sessions that only archive outputs; they are not conversations, and are not listed."""

FORMAT = "openai-chat"

MAX_COUNTED = 200_000
"""Characters. A longer output is counted by its bytes instead of by the configured counter, because counting it exactly
would take longer than storing it."""


def outputs_session_id(session_id: str | None) -> str:
    """The id of the session that archives the outputs of this one. Raises BadInputError if the id is invalid."""
    if session_id is None:
        return OUTPUTS_SESSION
    name = f"{session_id}{OUTPUTS_SUFFIX}"
    check_session_id(name)
    return name


async def kept_outputs(access: Access, session_id: str) -> tuple[int, int]:
    """How many outputs of a session are archived here, because a hook or gateway showed the model a shorter text, and
    their tokens as a whole."""
    with suppress(BadInputError, NotFoundError):
        found = await access.store.read_outputs(outputs_session_id(session_id))
        return len(found), sum(output.tokens for output in found)
    return 0, 0


async def keep_output(
    access: Access, text: str, *, tool: str, argument: str = "", session_id: str | None = None
) -> str:
    """Archive an output durably and return its handle. The same output of the same call is stored once. Raises
    BadInputError if the session id is invalid, StoreError if the output cannot be stored."""
    name = outputs_session_id(session_id)
    content = "\0".join((tool, argument, text))
    call_id = f"call_{sha256_of(content)}"  # the same output of the same call is recognized
    result_key = f"result of {call_id}"
    natives = [_call(call_id, tool or "tool", argument), {"role": "tool", "tool_call_id": call_id, "content": text}]
    check_limits(natives)
    session = _outputs_session(name, session_id)
    if await access.find(name) is None:
        await access.store.create_session(session)
    if len(text) > MAX_COUNTED:
        session = session.model_copy(update={"settings": {**session.settings, "estimator": "bytes"}})
    await append(access, session, natives, extras=[{"key": call_id}, {"key": result_key}])
    seq = await access.store.find_key(name, result_key)
    [output] = await access.store.read_outputs(name, first=seq or 0, last=seq)
    return output.handle  # the store numbers equal names


def _outputs_session(name: str, parent: str | None) -> Session:
    now = datetime.now(UTC)
    settings: dict[str, Any] = {"automatic": False}
    return Session(
        session_id=name,
        agent=OUTPUTS_AGENT,
        format=FORMAT,
        title=f"Outputs of {parent}" if parent else "Outputs of no session",
        settings=settings,
        parent_session_id=parent,
        created_at=now,
        updated_at=now,
    )


def _call(call_id: str, tool: str, argument: str) -> Native:
    arguments = json.dumps({"command": argument}) if argument else "{}"
    function = {"name": tool, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
