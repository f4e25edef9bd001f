"""The report of a proxied session: tokens sent, and the saving net of what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contextstash.results import ProxyReport
from contextstash_storage.records import Lever, ProxiedSession, ProxiedTotals

SUMMED = [name for name in ProxiedTotals.model_fields if name != "levers"]
"""The totals that are sums over requests."""


def report_of(state: ProxiedSession) -> ProxyReport:
    """The totals of one session."""
    return report_of_all([state])


def report_of_all(states: Iterable[ProxiedSession]) -> ProxyReport:
    """The totals of several sessions together."""
    listed = list(states)
    total = ProxiedTotals(**{name: sum(getattr(state, name) for state in listed) for name in SUMMED})
    return ProxyReport.of(
        total,
        tokens_sent=total.sent,
        tokens_unedited=total.direct,
        dollars_paid=round(total.dollars_paid, 4) if total.priced else None,
        dollars_saved=round(total.dollars_direct - total.dollars_paid, 4) if total.priced else None,
        unread=total.unread or None,
        left_alone=next((state.left_alone for state in listed if state.left_alone), None),
    )


def state_since(state: ProxiedSession, before: ProxiedSession | None) -> ProxiedSession:
    """The state, whose totals count only what came after an earlier state of the same session."""
    if before is None:
        return state
    changes: dict[str, object] = {name: getattr(state, name) - getattr(before, name) for name in SUMMED}
    return state.model_copy(update={**changes, "levers": _levers_since(state.levers, before.levers)})


def _levers_since(levers: Mapping[str, Lever], before: Mapping[str, Lever]) -> dict[str, Lever]:
    known = {name: before.get(name, Lever()) for name in levers}
    return {
        name: Lever(tokens=lever.tokens - known[name].tokens, dollars=lever.dollars - known[name].dollars)
        for name, lever in levers.items()
    }


def lines_since(states: Mapping[str, ProxiedSession], before: Mapping[str, ProxiedSession]) -> list[str]:
    """The report on what came after earlier states; for sessions that went on, one more line says how much they took
    since they began."""
    if not states:
        return []
    since = report_of_all(state_since(state, before.get(name)) for name, state in states.items())
    lines = list(since.lines())
    resumed = [state for name, state in states.items() if name in before]
    if resumed:
        whole = report_of_all(resumed)
        lines.insert(
            1,
            f"With the earlier runs of the resumed session{'s' * (len(resumed) > 1)}: {whole.requests:,} requests,"
            f" {whole.tokens_sent:,} tokens sent of {whole.tokens_unedited:,}.",
        )
    return lines
