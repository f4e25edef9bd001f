"""Outputs that are in no recorded message: each is truncated to its limit, and the whole stored in a session that holds
only such outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from contextstash.outputs.limits import OutputLimits, limit
from contextstash.outputs.own_tools import is_own_retrieval
from contextstash.record.messages import append, check_limits, in_thread_if_large, sha256_of
from contextstash.session.access import OUTPUTS_SESSION, OUTPUTS_SUFFIX, Access, check_session_id
from contextstash.window.settings import ContextSettings
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


class LimitedOutput(NamedTuple):
    """One output within limits. If it was cut, the whole is archived under `handle`."""

    text: str
    handle: str | None = None

    @property
    def cut(self) -> bool:
        """Whether something of it was left out."""
        return self.handle is not None


async def limit_output(
    access: Access,
    text: str,
    *,
    tool: str = "clip",
    argument: str = "",
    session_id: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> LimitedOutput:
    """Truncate one output that is in no recorded message to the limits of a session, or of the server if no session is
    named. `limits` override them for this call.

    If the output is truncated, the whole is stored before this returns, in a session that only archives outputs: the
    one that belongs to the named session, or a common one. The same output is stored once and has the same handle. The
    results of contextstash's own retrieval tools are never truncated, and neither are outputs of a session that was
    deleted: nothing of it is stored again. Raises BadInputError if a limit is invalid, and
    StoreError if the whole cannot be stored.
    """
    session = await access.find(session_id)
    if session is None and session_id is not None and await access.was_deleted(session_id):
        return LimitedOutput(text)
    settings = access.settings(session)
    rules = limits_of(access, settings, session, limits)
    count = access.counter(settings, session.model if session else None).count
    if is_own_retrieval(tool, argument) or await in_thread_if_large(len(text), rules.holds, text, count):
        return LimitedOutput(text)
    handle = await keep_output(access, text, tool=tool, argument=argument, session_id=session_id)
    limited = await in_thread_if_large(len(text), limit, text, rules, count, handle)
    return LimitedOutput(limited.text, handle)


def limits_of(
    access: Access, settings: ContextSettings, session: Session | None, given: Mapping[str, Any] | None
) -> OutputLimits:
    """The limits of an output: those of the settings, scaled to the window, and over them those given for one call.
    Raises BadInputError if one of these is invalid."""
    # The window scales the limit in tokens alone, and to find a model's window takes longer than a hook should.
    if given is not None and "tokens" in given:
        return OutputLimits.of(settings, settings.window).merged(given)
    budget = access.budget(settings, session.model if session else None, session)
    return OutputLimits.of(settings, budget.window - (budget.usable - budget.free)).merged(given)


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
