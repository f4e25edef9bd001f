"""Summary audit: appends pointers into the archive to a summary for the facts that it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.context.extraction.audit import append_pointers, audit_summary
from contextstash.context.extraction.turns import Turn
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.service.results import AuditResult
from contextstash.summarizers.base import SummaryRequest

MAX_LISTED = 10
"""Missing facts that a result lists, so that it stays small; the most important ones come first."""

MAX_POINTER_SHARE = 10
"""The pointers take at most one part in so many of the tokens that the summary replaces. A guess."""


@dataclass(frozen=True)
class Audited:
    """The summary with its pointers, and what the audit found."""

    text: str
    result: AuditResult | None = None


async def audited(
    snapshot: SessionSnapshot, turns: Sequence[Turn], summary: str, tokens: int, request: SummaryRequest, words: str
) -> Audited:
    """Compare the summary with the messages that it replaces, which took `tokens`, and with the pointers of the
    previous summary if it replaces one. What the user's `words` beside the summary hold, it does not lack. Returns it
    unchanged if the settings turn the audit off."""
    max_tokens = min(snapshot.settings.summary_audit_tokens, tokens // MAX_POINTER_SHARE)
    if not max_tokens or not turns:
        return Audited(summary)
    previous = request.previous if request.replaces else None
    held = f"{words}\n\n{summary}"
    audit = await asyncio.to_thread(audit_summary, turns, held, previous=previous)
    text, pointers = await asyncio.to_thread(
        append_pointers, summary, audit.missing, max_tokens=max_tokens, count=snapshot.counter.count
    )
    return Audited(
        text,
        AuditResult(
            facts=len(audit.held) + len(audit.missing),
            held=len(audit.held),
            pointers=pointers,
            missing=[fact.text for fact in audit.missing[:MAX_LISTED]],
        ),
    )
