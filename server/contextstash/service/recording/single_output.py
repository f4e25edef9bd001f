"""Limits on one output that is in no recorded message: truncates it, after archiving the whole.

Clients' hooks run this after every tool call, in a process of their own: it imports as little as it can.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from contextstash.context.tool_outputs.limits import OutputLimits, limit
from contextstash.context.tool_outputs.self_retrievals import is_own_retrieval
from contextstash.context.window.settings import ContextSettings
from contextstash.service.limited_output import LimitedOutput
from contextstash.service.recording.messages import IN_THREAD_CHARACTERS
from contextstash.service.recording.output_archive import keep_output
from contextstash.service.session_access import Access
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Session

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


async def limit_text(
    access: Access,
    text: str,
    *,
    tool: str = "clip",
    argument: str = "",
    session_id: str | None = None,
    limits: Mapping[str, Any] | None = None,
    keep_whole: bool = True,
) -> LimitedOutput:
    """Truncate one output that is in no recorded message to the limits of a session, or of the server if no session is
    named. `limits` override them for this call.

    If the output is truncated, the whole is stored before this returns, in a session that only archives outputs: the
    one that belongs to the named session, or a common one. The same output is stored once and has the same handle. The
    results of contextstash's own retrieval tools are never truncated. Raises BadInputError if a limit is invalid, and
    StoreError if the whole cannot be stored.
    """
    session = await _session_or_none(access, session_id)
    settings = access.settings(session)
    rules = limits_of(access, settings, session, limits)
    count = access.counter(settings, session.model if session else None).count
    if is_own_retrieval(tool, argument) or await in_thread_if_large([text], rules.holds, text, count):
        return LimitedOutput(text=text, cut=False)
    handle = ""
    if keep_whole:
        handle = await keep_output(access, text, tool=tool, argument=argument, session_id=session_id)
    limited = await in_thread_if_large([text], limit, text, rules, count, handle)
    return LimitedOutput(
        text=limited.text,
        cut=True,
        handle=handle or None,
        sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        lines=limited.lines,
        characters=limited.characters,
        bytes=limited.bytes,
        spilled=limited.spilled,
    )


def limits_of(
    access: Access, settings: ContextSettings, session: Session | None, given: Mapping[str, Any] | None
) -> OutputLimits:
    """The limits of an output: those of the settings, scaled to the window, and over them those given for one call.
    Raises BadInputError if one of these is invalid."""
    # The window scales the limit in tokens alone, and to find a model's window takes longer than a hook should.
    if given is not None and "tokens" in given:
        return OutputLimits.of(settings, settings.window_tokens).merged(given)
    budget = access.budget(settings, session.model if session else None, session)
    return OutputLimits.of(settings, budget.window - (budget.usable - budget.free)).merged(given)


async def _session_or_none(access: Access, session_id: str | None) -> Session | None:
    if session_id is None:
        return None
    try:
        return await access.session(session_id)
    except SessionNotFoundError:
        return None


async def in_thread_if_large(
    texts: Iterable[str],
    work: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Result:
    """Return the result of `work`. It runs in a worker thread if the texts are large, so that the event loop stays
    free."""
    if sum(map(len, texts)) > IN_THREAD_CHARACTERS:
        return await asyncio.to_thread(work, *arguments, **named)
    return work(*arguments, **named)
