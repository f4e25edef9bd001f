"""Output limits: truncates a tool output that is over a limit, after archiving the whole."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, ParamSpec, TypeVar

from contextstash.messages import get_format
from contextstash.outputs.limits import OutputLimits, limit, shared_limit
from contextstash.outputs.own_tools import is_own_retrieval
from contextstash.record.messages import IN_THREAD_CHARACTERS
from contextstash.record.output_archive import keep_output
from contextstash.session.apply_edits import Planned, edit
from contextstash.session.limited_output import LimitedOutput
from contextstash.session.session_access import READ_AT_ONCE, Access
from contextstash.session.stripped_thinking import plan_stripping
from contextstash.session.view_reader import WITHIN_REACH
from contextstash.view.edits import ReplacedBlocks, truncate_edit
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter
from contextstash_storage.records import Appended, Message, Session, TruncateEdit

STEP_PART = 2
"""The outputs of one step take at most the free window divided by this, if each keeps half of its own limit. With more,
a step of parallel calls fills a small window, which is then reduced at every step. Measured with bench/fidelity."""

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
    results of contextstash's own retrieval tools are never truncated, and neither are outputs of a session that was
    deleted: nothing of it is stored again. Raises BadInputError if a limit is invalid, and
    StoreError if the whole cannot be stored.
    """
    session = await access.find(session_id)
    if session is None and session_id is not None and await access.was_deleted(session_id):
        return LimitedOutput(text=text, cut=False)
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
        return OutputLimits.of(settings, settings.window).merged(given)
    budget = access.budget(settings, session.model if session else None, session)
    return OutputLimits.of(settings, budget.window - (budget.usable - budget.free)).merged(given)


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


def check_limits(limits: Mapping[str, Any] | None) -> None:
    """Raises BadInputError if these are not valid limits of an output; the message names the nearest valid name."""
    OutputLimits().merged(limits)


async def limit_outputs(access: Access, appended: Appended, limits: Mapping[str, Any] | None = None) -> Session:
    """Truncate the outputs among new messages that are over the session's limits, and return the changed session.
    `limits` override the session's for this call. Raises BadInputError if a limit is invalid."""
    session = appended.session
    rules = _rules(access, appended, limits)
    texts = await _over_limits(access, session, appended.messages, rules)
    if not texts:
        return session

    async def plan() -> Planned[Session] | Session:
        snapshot = await access.snapshot(session.session_id, WITHIN_REACH)
        if snapshot.beyond is not None and min(texts)[0] <= snapshot.beyond.last_seq:
            snapshot = await access.snapshot(session.session_id)
        cut = await in_thread_if_large(texts.values(), _truncate_edits, snapshot, texts, rules)
        if not cut:
            return snapshot.session
        stripping = plan_stripping(snapshot, min(each.seq for each in cut))
        return Planned(snapshot, cut, lambda changed, _: changed, stripping)

    return await edit(access, plan)


Rules = Mapping[int, OutputLimits]
"""The limits of the outputs in each message, by its position."""


def _rules(access: Access, appended: Appended, limits: Mapping[str, Any] | None) -> Rules:
    """The session's limits, or those of this call; outputs of one step, such as of parallel calls, share its room."""
    session = appended.session
    settings = access.settings(session)
    own = limits_of(access, settings, session, limits)
    rules = dict.fromkeys([message.seq for message in appended.messages], own)
    if settings.output_share is None or own.tokens is None or "tokens" in (limits or {}):
        return rules
    room = access.budget(settings, session.model, session).free // STEP_PART
    for step in _steps(appended.messages):
        sizes = [block.tokens for message in step for block in message.blocks if block.type == "tool_result"]
        if sum(min(size, own.tokens) for size in sizes) > room:
            shared = replace(own, tokens=max(own.tokens // 2, shared_limit(sizes, room)))
            rules |= dict.fromkeys([message.seq for message in step], shared)
    return rules


def _steps(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages with tool outputs that follow each other."""
    for has_outputs, step in groupby(
        messages, lambda message: any(block.type == "tool_result" for block in message.blocks)
    ):
        if has_outputs:
            yield list(step)


async def _over_limits(access: Access, session: Session, messages: Sequence[Message], rules: Rules) -> dict[Place, str]:
    """The texts of the outputs among these messages that are over a limit, by position and block."""
    seqs = [message.seq for message in messages if _places(message, rules[message.seq])]
    if not seqs:
        return {}
    counter = access.counter(access.settings(session), session.model)
    fmt = get_format(session.format)
    over: dict[Place, str] = {}
    for start in range(0, len(seqs), READ_AT_ONCE):
        stored = await access.store.read_messages_at(session.session_id, seqs[start : start + READ_AT_ONCE])
        texts = {
            (message.seq, place): text
            for message in stored
            for place, text in enumerate(fmt.read(message.body or {}).texts)
            if place in _places(message, rules[message.seq])
        }
        over |= await in_thread_if_large(texts.values(), _over_limit, texts, rules, counter)
    return over


def _places(message: Message, rules: OutputLimits) -> list[int]:
    """The blocks of a message that may be over a limit, judged by their sizes, without reading their texts."""
    return [
        place
        for place, block in enumerate(message.blocks)
        if block.type == "tool_result" and rules.may_cut(block.size, block.tokens) and not is_own_retrieval(block.tool)
    ]


def _over_limit(texts: Mapping[Place, str], rules: Rules, counter: Counter) -> dict[Place, str]:
    return {place: text for place, text in texts.items() if not rules[place[0]].holds(text, counter.count)}


def _truncate_edits(snapshot: SessionSnapshot, texts: Mapping[Place, str], rules: Rules) -> list[TruncateEdit]:
    blocks = ReplacedBlocks(snapshot.entries)
    edits = []
    for (seq, block), text in texts.items():
        output, before = snapshot.outputs.get((seq, block)), blocks.entry(seq)
        if output is None or before is None or block in before.replaced:
            continue
        if not is_own_retrieval(output.tool, output.argument):
            edits.append(blocks.add(truncate_edit(snapshot, output, text, rules[seq])))
    return edits
