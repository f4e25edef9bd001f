"""Pins: tool outputs that stay in the view whatever their age, because the user or the agent said so.

A pin is a handle, or the path of a file, which stands for the newest output that shows it. A pinned output is neither
archived nor cut as long as anything else can be; if a summary replaces its message, it follows the summary word for
word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import normpath

from contextstash.events.files import is_same_file
from contextstash.outputs.limits import OutputLimits, limit
from contextstash.safety.sanitize import MARKER, one_line, unforged
from contextstash.view.outputs_in_use import MadeCall
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash_storage.records import Output

PINNED_SHARE = 4
"""Pinned outputs behind summaries take at most the usable window divided by this; beyond, each is cut. With
the summaries they leave more than half of the window to the work."""

HANDLE_PREFIX = "out_"


def pinned_outputs(snapshot: SessionSnapshot) -> dict[Place, Output]:
    """The pinned outputs of the session by place; without those of a branch that the conversation has left."""
    pins = snapshot.settings.pin
    found = outputs_of_pins(pins, snapshot.current_outputs) if pins else []
    return {(output.seq, output.block): output for output in found}


def outputs_of_pins(pins: Sequence[str], recorded: Sequence[Output]) -> list[Output]:
    """The outputs that the pins stand for among these, which are in order."""
    found = (_pinned(pin, recorded) for pin in pins)
    return [output for output in found if output is not None]


def unpinned_outputs(snapshot: SessionSnapshot) -> Mapping[Place, Output]:
    """The outputs that a reduction may replace."""
    pinned = pinned_outputs(snapshot)
    if not pinned:
        return snapshot.outputs
    return {place: output for place, output in snapshot.outputs.items() if place not in pinned}


def pinned_tokens(snapshot: SessionSnapshot) -> int:
    """About how many tokens of the view the pinned outputs take: at most their share of the window."""
    tokens = sum(output.tokens for output in pinned_outputs(snapshot).values())
    return min(tokens, snapshot.budget.usable // PINNED_SHARE)


def _pinned(pin: str, outputs: Sequence[Output]) -> Output | None:
    if pin.startswith(HANDLE_PREFIX):
        return next((output for output in reversed(outputs) if output.handle == pin), None)
    return next((output for output in reversed(outputs) if _shows(output, pin)), None)


def _shows(output: Output, path: str) -> bool:
    call = MadeCall(output.handle, output.tool, output.argument)
    return call.shows_file and any(is_same_file(normpath(each), normpath(path)) for each in call.paths)


def pinned_text(snapshot: SessionSnapshot, texts: Sequence[tuple[Output, str]]) -> str:
    """The text that shows pinned outputs of messages that are not shown, each word for word between two lines that name
    it; empty if there are none. If all pinned outputs exceed their share of the window, each is cut to an equal
    part."""
    if not texts:
        return ""
    pinned = pinned_outputs(snapshot)
    room = snapshot.budget.usable // PINNED_SHARE
    whole = sum(output.tokens for output in pinned.values()) <= room
    limits = OutputLimits(tokens=room // max(1, len(pinned)), cut=snapshot.settings.output_cut)
    shown = []
    for output, text in texts:
        if not whole:
            text = limit(text, limits, snapshot.counter.count, output.handle)
        call = one_line(f"{output.tool} {output.argument}", 160)
        shown.append(
            f"{MARKER} pinned output {output.handle} of {call}, message {output.seq}:]\n{unforged(text)}\n"
            f"{MARKER} end of {output.handle}]"
        )
    return "\n\n".join(shown)
