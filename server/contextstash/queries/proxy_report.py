"""The report of a proxied session: tokens sent, and the saving net of what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contextstash.outputs.counts import counted
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
    lines = report_lines(report_of_all(state_since(state, before.get(name)) for name, state in states.items()))
    resumed = [state for name, state in states.items() if name in before]
    if resumed:
        whole = report_of_all(resumed)
        lines.insert(
            1,
            f"With the earlier runs of the resumed session{'s' * (len(resumed) > 1)}: {whole.requests:,} requests,"
            f" {whole.tokens_sent:,} tokens sent of {whole.tokens_unedited:,}.",
        )
    return lines


def report_lines(report: ProxyReport) -> list[str]:
    """The report in sentences."""
    sent, unedited = report.tokens_sent, report.tokens_unedited
    share = f" ({100 * sent / unedited:.0f} %)" if unedited else ""
    lines = [
        f"Proxy: {report.requests:,} request{'s' * (report.requests != 1)}, {report.edited:,} edited;"
        f" {sent:,} tokens sent of {unedited:,}{share}."
    ]
    if report.refetched:
        lines.append(f"Fetched again after a prune: {report.refetched:,} outputs, {report.refetched_tokens:,} tokens.")
    if report.healed:
        lines.append(f"Requests healed that were too long: {report.healed:,}.")
    if report.faults:
        lines.append(f"Sent unedited because of an error: {report.faults:,} requests (see the proxy's log).")
    if report.unread:
        lines.append(unread_line(report.unread))
    if report.left_alone:
        lines.append(f"The proxy edits this session no more: {report.left_alone}.")
    if report.dollars_paid is not None and report.dollars_saved is not None:
        lines.append(bill_line(report.dollars_paid, report.dollars_saved))
    return lines


def unread_line(unread: int) -> str:
    """What is said of requests that could not be read."""
    return (
        f"Could not be read, so neither recorded nor in the bill: {counted(unread, 'request')}. They went to the model"
        " as they were. Please report it with the proxy's log."
    )


FINE_BELOW = 0.1
"""US dollars. Smaller bills are printed with four digits: with two they would read as nothing, or as 10 % too much."""


def bill_line(billed: float, saved: float) -> str:
    """The bill, and contextstash's saving or cost: the last line of a receipt, and of `run`."""
    without = billed + saved
    share = f" ({100 * abs(saved) / without:.1f} %)" if without > 0 else ""
    word = "saved" if saved >= 0 else "lost"
    places = 2 if max(billed, without) >= FINE_BELOW else 4
    return (
        f"Billed {billed:.{places}f} US dollars; without contextstash about {max(0.0, without):.{places}f}:"
        f" {abs(saved):.{places}f} {word}{share}."
    )
