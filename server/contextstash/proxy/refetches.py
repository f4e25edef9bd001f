"""What a conversation fetched again after contextstash had taken it out of view: that is charged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from contextstash.messages import FORMATS
from contextstash.messages.request.text import RequestText, TextMessage
from contextstash.outputs.own_tools import is_own_call
from contextstash.proxy.request_lines import Line, behind_reply, common_start
from contextstash.request.proxied import Key, KnownOutput, Pin
from contextstash.view.outputs_in_use import UNKNOWN_TIME, MadeCall, is_same_file

CALL_BYTES = 250
"""Of a call and its result, besides the call's argument and the output: their ids, names and punctuation in JSON, as in
recorded sessions of Claude Code."""

_UNKNOWN = MadeCall("", "", "")


class _Hidden(NamedTuple):
    """An output that the request before showed as a placeholder, since when, and the place of its message."""

    key: Key
    call: MadeCall
    since: float
    place: int


class Refetches:
    """The outputs of a conversation that were fetched again: by our tools, by the same call, or by one that reads the
    same file. `found` says which output each has shown again, `only` whether the last request brought nothing else, so
    that it would not have been made."""

    def __init__(self) -> None:
        self.found: dict[Key, Key] = {}
        self.only = False
        self._charged: dict[Key, int] = {}
        self._new: dict[Key, int] = {}
        self._noted: Line = ()

    def note(
        self,
        request: RequestText,
        outputs: Iterable[tuple[int, Key, object]],
        pins: Mapping[Key, Pin],
        recorded: Mapping[Key, KnownOutput],
        tokens_per_byte: float,
    ) -> None:
        """Take over what is new in a request, after one that showed these pins."""
        messages = request.messages
        first, again, self._new = common_start(self._noted, messages), set[Key](), {}
        hidden, calls = _hidden(request, outputs, pins, recorded), dict[str, MadeCall]()
        for place, message in enumerate(messages[first:], first):
            calls |= _calls_of(message)
            for output in message.outputs:
                key, call = (output.call_id, output.sha256), calls.get(output.call_id, _UNKNOWN)
                known = recorded.get(key)
                recorded_at = known.recorded_at if known else UNKNOWN_TIME
                earlier = [each for each in hidden if each.place < place and each.since < recorded_at]
                source = next((each.key for each in reversed(earlier) if _shows_again(call, key, each)), None)
                if source is not None:
                    self.found[key] = source
                if source is not None or is_own_call(call.tool, call.argument):
                    again.add(key)
                    size = CALL_BYTES + len(call.argument) + output.size
                    self._new[key] = round(size * tokens_per_byte)
        self._new = {key: tokens for key, tokens in self._new.items() if key not in self._charged}
        self._charged |= self._new
        self._noted, self.only = messages, _hold_only(behind_reply(messages), again)

    def new_reads(self) -> list[int]:
        """The tokens of each output that the model has read again in the last request."""
        return [tokens for key, tokens in self._new.items() if key in self.found]

    def source(self, key: Key) -> Key | None:
        """The output that an output has shown again, also by way of others; None if it shows none."""
        found = None
        while key in self.found:
            key = found = self.found[key]
        return found

    def tokens_in(self, request: RequestText) -> int:
        """The tokens that a request holds because of them, or would hold if it were not edited."""
        if not self._charged:
            return 0
        results = (request.messages[place] for place in request.places("results"))
        return sum(self._charged.get(key, 0) for message in results for key in _keys_of(message))


def _shows_again(call: MadeCall, key: Key, hidden: _Hidden) -> bool:
    """Whether a call shows what is out of view: the same text, the same call, or the same file."""
    if call.writes or key == hidden.key:
        return False
    if key[1] == hidden.key[1] or (call.tool, call.argument) == (hidden.call.tool, hidden.call.argument):
        return True
    return any(is_same_file(path, other) for path in call.paths for other in hidden.call.paths)


def _hidden(
    request: RequestText,
    outputs: Iterable[tuple[int, Key, object]],
    pins: Mapping[Key, Pin],
    recorded: Mapping[Key, KnownOutput],
) -> list[_Hidden]:
    """The outputs that are out of view, but for those of files that were changed since: these are read for what is
    new."""
    if not pins:
        return []
    found = list[_Hidden]()
    changes = [
        (place, path)
        for place in request.places("is_models")
        for call in _calls_of(request.messages[place]).values()
        for path in call.changes
    ]
    for place, key, _ in outputs:
        if (pin := pins.get(key)) is None or (known := recorded.get(key)) is None:
            continue
        call = MadeCall(key[0], known.output.tool or "", known.output.argument or "")
        later = [path for at, path in changes if at > place] if call.paths or changes else []
        if not any(is_same_file(path, other) for path in later for other in call.paths):
            found.append(_Hidden(key, call, pin.pinned_at, place))
    return found


def _keys_of(message: TextMessage) -> list[Key]:
    return [(each.call_id, each.sha256) for each in message.outputs]


def _hold_only(new: Line, outputs: set[Key]) -> bool:
    """Whether all that is new in a request, reminders of the client aside, are these outputs."""
    messages = [message for message in new if message.native.get("role") != "system"]
    return bool(messages) and all(
        message.results and len(message.outputs) == len(message.results) and outputs.issuperset(_keys_of(message))
        for message in messages
    )


def _calls_of(message: TextMessage) -> dict[str, MadeCall]:
    """The calls of a message that the model wrote, by id."""
    if not message.is_models:
        return {}
    if "calls" not in message.notes:
        blocks = FORMATS[message.format].read(message.native).blocks
        message.notes["calls"] = {
            block.call_id: MadeCall(block.call_id, block.tool or "", block.argument or "")
            for block in blocks
            if block.type == "tool_call" and block.call_id
        }
    found: dict[str, MadeCall] = message.notes["calls"]
    return found
