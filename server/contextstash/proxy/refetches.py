"""Refetches: text that a conversation fetched again after contextstash had taken it out of view, by any tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from contextstash.messages import FORMATS
from contextstash.messages.request.text import RequestText, TextMessage
from contextstash.outputs.own_tools import is_own_call
from contextstash.proxy.request_lines import Line, behind_reply, common_start
from contextstash.view.outputs_in_use import UNKNOWN_TIME, MadeCall
from contextstash.view.rereads import REREAD_SHARE, Key, OutputLines, Reread

Times = Mapping[Key, float]
"""When outputs were recorded, or since when they are out of view, in seconds since 1970."""

CALL_BYTES = 250
"""Of a call and its result, besides the call's argument and the output: their ids, names and punctuation in JSON, as in
recorded sessions of Claude Code."""


class _Answered(NamedTuple):
    """A call with its output, which takes `size` bytes."""

    key: Key
    call: MadeCall
    text: str
    size: int
    failed: bool


@dataclass
class Rereads:
    """The outputs that were fetched again. `found` are those that the model read by its own tools, `charged` the tokens
    of these and of what our tools returned; `new` are those that the last request brought first, and `are_all` says
    whether it brought nothing else, so that it would not have been made. `left` went with a compaction that the client
    would not have made."""

    found: dict[Key, Reread] = field(default_factory=dict)
    charged: dict[Key, int] = field(default_factory=dict)
    new: dict[Key, int] = field(default_factory=dict)
    are_all: bool = False
    left: dict[Key, float] = field(default_factory=dict)
    _lines: OutputLines | None = None
    _noted: Line = ()

    def note(
        self, request: RequestText, hidden: Times, recorded: Times, tokens_per_byte: float, *, compacts: bool
    ) -> None:
        """Take over what is new in a request. `hidden` are the outputs that the request before showed as placeholders.
        Lines are kept from then on, or if contextstash has chosen when the client `compacts`."""
        if self._lines is None and (hidden or compacts):
            self._lines, self._noted = OutputLines(), ()
        whole: set[Key] = set()
        self.new = {}
        for each in _answered(request.messages[common_start(self._noted, request.messages) :], recorded):
            share = self._share(each, hidden)
            if share >= REREAD_SHARE:
                whole.add(each.key)
                share = 1.0
            if share and each.key not in self.charged:
                size = CALL_BYTES + len(each.call.argument) + share * each.size
                self.new[each.key] = round(size * tokens_per_byte)
        self.charged |= self.new
        self._noted = request.messages
        self.are_all = _hold_only(behind_reply(request.messages), whole)

    def _share(self, each: _Answered, hidden: Times) -> float:
        """Which share of an output was fetched again."""
        again = None
        if self._lines is not None:
            hidden = {**hidden, **self.left} if self.left else hidden
            again = self._lines.add(each.key, each.call, each.text, hidden, failed=each.failed)
        if again is not None:
            self.found[each.key] = again
        own = is_own_call(each.call.tool, each.call.argument)
        return 1.0 if own else again.share if again is not None else 0.0

    def compact(self, request: RequestText, *, by_us: bool) -> None:
        """Take over that the client has put a summary in place of earlier messages. What is read again from then on is
        read because of that, unless it was `by_us`."""
        if by_us and self._lines is not None:
            shown = {key for place in request.places("results") for key in keys_of(request.messages[place])}
            self.left = dict.fromkeys(self._lines.outputs - shown, 0.0)
        else:
            self.left, self._lines = {}, None

    def new_reads(self) -> list[int]:
        """The tokens of each output that the model has read again in the last request."""
        return [tokens for key, tokens in self.new.items() if key in self.found]

    def source(self, key: Key) -> Key | None:
        """The output that an output has shown again, also by way of others; None if it shows none."""
        found = None
        while key in self.found:
            key = found = self.found[key].of
        return found

    def tokens_in(self, request: RequestText) -> int:
        """The tokens that a request holds because of them, or would hold if it were not edited."""
        if not self.charged:
            return 0
        messages = (request.messages[place] for place in request.places("results"))
        return sum(self.charged.get(key, 0) for message in messages for key in keys_of(message))


def keys_of(message: TextMessage) -> list[Key]:
    """The outputs that a message holds."""
    return [(each.call_id, each.sha256) for each in message.outputs]


def _answered(messages: Line, recorded: Times) -> Iterator[_Answered]:
    calls: dict[str, MadeCall] = {}
    for message in messages:
        if message.is_models:
            calls |= _calls(message)
        for result in message.results:
            if result.path not in message.texts:
                continue
            key = result.call_id, message.hashes[result.path]
            call = replace(calls.get(result.call_id, UNKNOWN_CALL), made_at=recorded.get(key, UNKNOWN_TIME))
            failed = call.writes and _has_failed(message, result.call_id)
            yield _Answered(key, call, message.texts[result.path], message.sizes[result.path], failed)


UNKNOWN_CALL = MadeCall("", "", "")


def _calls(message: TextMessage) -> dict[str, MadeCall]:
    blocks = FORMATS[message.format].read(message.native).blocks
    return {
        block.call_id: MadeCall(block.call_id, block.tool or "", block.argument or "")
        for block in blocks
        if block.type == "tool_call" and block.call_id
    }


def _has_failed(message: TextMessage, call_id: str) -> bool:
    return any(
        block.is_error for block in FORMATS[message.format].read(message.native).blocks if block.call_id == call_id
    )


def _hold_only(new: Line, outputs: set[Key]) -> bool:
    """Whether all that is new in a request, reminders of the client aside, are these outputs."""
    messages = [message for message in new if message.native.get("role") != "system"]
    return bool(messages) and all(
        message.results and len(message.outputs) == len(message.results) and outputs.issuperset(keys_of(message))
        for message in messages
    )
