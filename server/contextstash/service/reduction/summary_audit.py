"""Auditing: what a summary lacks of what it stands for is appended to it as pointers into the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.context.extraction.audit import append_pointers, audit_summary
from contextstash.context.extraction.turns import Turn
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.service.results import AuditResult

LISTED = 10
"""How many missing facts an answer names."""


@dataclass(frozen=True)
class Audited:
    """The summary with its pointers, and what the audit found."""

    text: str
    result: AuditResult | None = None


async def audited(
    snapshot: SessionSnapshot, turns: Sequence[Turn], summary: str, tokens: int, previous: str | None
) -> Audited:
    """The summary held against the messages that it stands for, which took `tokens`, and what the `previous` one that
    it replaces pointed at; as it is if the settings want no audit. The pointers take a tenth of that at most."""
    room = min(snapshot.settings.summary_audit_tokens, tokens // 10)
    if not room or not turns:
        return Audited(summary)
    audit = await asyncio.to_thread(audit_summary, turns, summary, previous=previous)
    text, pointers = append_pointers(summary, audit.missing, max_tokens=room, count=snapshot.counter.count)
    return Audited(
        text,
        AuditResult(
            facts=len(audit.held) + len(audit.missing),
            held=len(audit.held),
            pointers=pointers,
            missing=[fact.text for fact in audit.missing[:LISTED]],
        ),
    )
