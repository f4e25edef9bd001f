"""What a conversation fetched again after contextstash had taken it out of view: that is charged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contextstash.messages import get_format
from contextstash.messages.request.text import TextMessage, ToolResult
from contextstash.outputs.own_tools import is_own_call
from contextstash.proxy.request_lines import Line, behind_reply, common_start
from contextstash.request.proxied import Key, KnownOutput, Pin
from contextstash.view.outputs_in_use import UNKNOWN_TIME

CALL_BYTES = 250
"""Of a call and its result, besides the call's argument and the output: their ids, names and punctuation in JSON, as in
recorded sessions of Claude Code."""

MIN_LINES = 3
MIN_CHARACTERS = 12
"""Of a text that is looked for within another: fewer lines, or shorter ones, may stand in both by chance."""

_NUMBER = re.compile(r"\A\s{0,20}\d{1,7}(?:→|\t|: ?)")
"""In front of a line: readers of files number them in different ways."""


@dataclass
class Refetches:
    """The outputs of a conversation that were fetched again: by our tools, or by any call whose output is the text of
    one out of view, or lines of it. Output with anything new in it, as of a changed file or a test run, would have been
    fetched anyway. `found` says which output each has shown again, also by way of others; `only` whether the last
    request brought nothing else, so that it would not have been made."""

    found: dict[Key, Key] = field(default_factory=dict)
    only: bool = False
    _charged: dict[Key, int] = field(default_factory=dict)
    _noted: Line = ()

    def note(
        self, messages: Line, pins: Mapping[Key, Pin], recorded: Mapping[Key, KnownOutput], tokens_per_byte: float
    ) -> list[int]:
        """Take over what is new in a request, after one that showed these pins. Returns the tokens of each output that
        the model has read again."""
        again, new, hidden = set[Key](), list[int](), dict[Key, tuple[int, ToolResult]]()
        for place, message in enumerate(messages if pins else ()):
            for result in message.results:
                if result.key in pins:
                    hidden.setdefault(result.key, (place, result))
        first, calls = common_start(self._noted, messages), dict[str, tuple[str, str]]()
        for place, message in enumerate(messages[first:], first):
            calls |= _calls_of(message)
            for result in message.results:
                known, call = recorded.get(result.key), calls.get(result.call_id, ("", ""))
                at = known.recorded_at if known else UNKNOWN_TIME
                earlier = [each for where, each in hidden.values() if where < place and pins[each.key].pinned_at < at]
                source = _source(result, earlier) if earlier else None
                if source is None and not is_own_call(*call):
                    continue
                again.add(result.key)
                if source is not None:
                    self.found[result.key] = self.found.get(source, source)
                if result.key not in self._charged:
                    size = CALL_BYTES + len(call[1]) + result.size
                    self._charged[result.key] = round(size * tokens_per_byte)
                    new += [self._charged[result.key]] if source is not None else []
        self._noted, self.only = messages, _hold_only(behind_reply(messages), again)
        return new

    def tokens_in(self, messages: Line) -> int:
        """The tokens that a request holds because of them, or would hold if it were not edited."""
        if not self._charged:
            return 0
        return sum(self._charged.get(result.key, 0) for message in messages for result in message.results)


def _source(new: ToolResult, hidden: Sequence[ToolResult]) -> Key | None:
    """The newest of these outputs whose text, or lines of it, an output shows; None if there is none."""
    lines = _lines(new.text or "")
    longest = max(lines, key=len) if len(lines) >= MIN_LINES else None
    for each in reversed(hidden):
        text = each.text or ""
        # The longest line is looked for first, which is far faster.
        is_part = longest is not None and longest in text and lines <= _lines(text)
        if each.key != new.key and (each.sha256 == new.sha256 or is_part):
            return each.call_id, each.sha256
    return None


def _lines(text: str) -> set[str]:
    stripped = (_NUMBER.sub("", line, count=1).strip() for line in text.splitlines())
    return {line for line in stripped if len(line) >= MIN_CHARACTERS}


def _hold_only(new: Line, outputs: set[Key]) -> bool:
    """Whether all that is new in a request, reminders of the client aside, are these outputs."""
    messages = [message for message in new if message.native.get("role") != "system"]
    return bool(messages) and all(
        message.results and outputs.issuperset(each.key for each in message.results) for message in messages
    )


def _calls_of(message: TextMessage) -> dict[str, tuple[str, str]]:
    """The calls that a message of the model makes, by id: tool and main argument."""
    blocks = get_format(message.format).read(message.native).blocks if message.is_models else ()
    return {
        block.call_id: (block.tool or "", block.argument or "")
        for block in blocks
        if block.type == "tool_call" and block.call_id
    }
