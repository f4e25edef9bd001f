"""Repairs and assembles a list of Gemini contents so that generateContent accepts it.

A content stays one content, as it was sent: Google accepts neighbours of one role, and texts or media next to function
responses (Vertex AI accepts them before the responses only). Three things are refused and repaired: calls whose
responses are not all in the next content, so that responses sent one by one become one content; a call without a
response, which gets one that says that it was interrupted; a response without its call, which becomes text. Parts are
never merged, and a thought signature stays on its part: https://ai.google.dev/gemini-api/docs/thought-signatures
Tried on live endpoints: google/adk-go#1218 (neighbours of one role), Prism-Shadow/agenthub#189 (texts and responses).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from contextstash.messages.block_reader import ASSISTANT_FIRST, MISSING_RESULT, as_json, orphan_text
from contextstash.messages.gemini.parts import Part, data_keys, get, id_of, is_signed, other_keys, spelling
from contextstash_storage.records import Native

SENT_KEYS = ("role", "parts")
"""The keys of a content; the API refuses any other, such as what a recorder added (`usageMetadata`, …)."""


@dataclass
class _Content:
    """One content being built. `order` is the key order of the first content in it, so that a valid content keeps its
    exact bytes, and the provider's cache still matches."""

    role: str
    parts: list[Part] = field(default_factory=list)
    order: tuple[str, ...] = ()

    def add(self, parts: Sequence[Part], native: Native) -> None:
        if parts and not self.parts:
            self.order = tuple(key for key in native if key in SENT_KEYS and native[key] is not None)
        self.parts.extend(parts)

    def native(self) -> Native:
        values = {"role": self.role, "parts": self.parts}
        return {key: values[key] for key in self.order or SENT_KEYS}


@dataclass
class _Call:
    """A function call, and the part that answers it."""

    part: Part
    turn: _Turn
    answer: Part | None = None

    @property
    def call(self) -> Part:
        return dict(get(self.part, "functionCall"))

    def accept(self, answer: Part) -> Part:
        """The answer with the call's name, and with its id if the call has one: newer models refuse other ids."""
        key = spelling(answer, "functionResponse")
        given, wanted = answer[key], {"name": self.call["name"]}
        if call_id := id_of(self.call):
            wanted["id"] = call_id
        is_object = isinstance(given.get("response"), dict)
        fits = is_object and all(given.get(name) == value for name, value in wanted.items())
        response = given["response"] if is_object else {"output": ""}
        self.answer = answer if fits else {**answer, key: {**given, **wanted, "response": response}}
        self.turn.answered.append(self)
        return self.answer

    def missing(self) -> Part:
        """An answer that says that the call was interrupted, in the call's spelling."""
        key = "functionResponse" if spelling(self.part, "functionCall") == "functionCall" else "function_response"
        call_id = id_of(self.call)
        about = {"id": call_id} if call_id else {}
        return {key: {**about, "name": self.call["name"], "response": {"error": MISSING_RESULT}}}


@dataclass
class _Turn:
    """A content of the model, the responses to its calls, and the user's contents after them. `answered` holds the
    calls in the order of their responses."""

    model: _Content = field(default_factory=lambda: _Content("model"))
    calls: list[_Call] = field(default_factory=list)
    responses: _Content = field(default_factory=lambda: _Content("user"))
    answered: list[_Call] = field(default_factory=list)
    rebuilt: bool = False
    user: list[_Content] = field(default_factory=list)

    def is_over(self) -> bool:
        """Whether the next content of the model begins a turn. One that follows open calls belongs to their content,
        because the content after calls has to hold their responses."""
        return bool(self.user or self.responses.parts or (self.model.parts and not self.calls))

    def contents(self) -> Iterator[Native]:
        self._repair_responses()
        for content in (self.model, self.responses, *self.user):
            if content.parts:
                yield content.native()

    def _repair_responses(self) -> None:
        """Complete the responses in the order that the API wants, and without other parts, which every endpoint
        accepts; unless they were sent like that."""
        missing = [call for call in self.calls if call.answer is None]
        named = all(id_of(call.call) for call in self.calls)
        if not missing and not self.rebuilt and (named or self.answered == self.calls):
            return
        others = [part for part in self.responses.parts if get(part, "functionResponse") is None]
        ordered = [*self.answered, *missing] if named else self.calls  # without ids, the API pairs by order
        self.responses.parts = [call.answer or call.missing() for call in ordered]
        self.user.insert(0, _Content("user", others))


class _Builder:
    """Distributes the parts of contents, added in order, among turns."""

    def __init__(self) -> None:
        self.turns = [_Turn()]
        self._open: dict[tuple[str, str], list[_Call]] = {}

    def add(self, native: Native) -> None:
        parts = [shown for part in native.get("parts") or () if (shown := _sendable(part)) is not None]
        if native.get("role") == "model":
            self._add_reply(native, [_of_model(part) for part in parts])
        elif native.get("role") != "system":
            self._add_user(native, parts)

    def _add_reply(self, native: Native, parts: list[Part]) -> None:
        if not any(_speaks(part) for part in parts):
            return
        if self.turns[-1].is_over():
            self.turns.append(_Turn())
        turn = self.turns[-1]
        turn.model.add(parts, native)
        for part in parts:
            if get(part, "functionCall") is not None:
                self._called(_Call(part, turn))

    def _called(self, call: _Call) -> None:
        call.turn.calls.append(call)
        self._open.setdefault(("name", call.call["name"]), []).append(call)
        if call_id := id_of(call.call):
            self._open.setdefault(("id", call_id), []).append(call)

    def _add_user(self, native: Native, parts: list[Part]) -> None:
        newest = self.turns[-1]
        first = not (newest.user or newest.responses.parts)
        own: list[Part] = []
        for part in parts:
            if get(part, "functionCall") is not None:
                own.append({"text": as_json(part)})
            elif get(part, "functionResponse") is None:
                own.append(part)
            elif not (call := self._waiting(get(part, "functionResponse"))):
                own.extend(_orphan(get(part, "functionResponse")))
                newest.rebuilt = True
            elif first and call.turn is newest:
                own.append(call.accept(part))
            else:
                call.turn.rebuilt = True
                call.turn.responses.add([call.accept(part)], native)
        if first and newest.answered:
            newest.responses.add(own, native)
        elif own:
            newest.user.append(content := _Content("user"))
            content.add(own, native)

    def _waiting(self, answer: Part) -> _Call | None:
        """The open call that a response answers: the one with its id, or else the first of its name in the newest turn
        that has one, if that or the response has no id."""
        answered = id_of(answer)
        if answered and (named := self._newest(("id", answered))):
            # Merged contents may hold an id twice: then the name decides.
            return next((call for call in named if call.call["name"] == answer["name"]), named[-1])
        fitting = self._newest(("name", answer["name"]))
        return next((call for call in fitting if not (answered and id_of(call.call))), None)

    def _newest(self, key: tuple[str, str]) -> list[_Call]:
        """The open calls of this id or name in the newest turn that has any."""
        calls = self._open.get(key, [])
        while calls and calls[-1].answer is not None:
            calls.pop()
        found: list[_Call] = []
        for call in reversed(calls):
            if call.turn is not calls[-1].turn:
                break
            if call.answer is None:
                found.insert(0, call)
        return found


def assemble(natives: Sequence[Native]) -> list[Native]:
    """The contents of a valid request; equal to `natives` if these are valid already.

    System instructions are left out: the API takes `systemInstruction` in a field of its own.
    """
    builder = _Builder()
    for native in natives:
        builder.add(native)
    contents = [content for turn in builder.turns for content in turn.contents()]
    if contents and contents[0].get("role") == "model":
        contents.insert(0, {"role": "user", "parts": [{"text": ASSISTANT_FIRST}]})
    if len(contents) == 1:
        return contents
    return [content if "role" in content else {"role": "user", **content} for content in contents]


def _sendable(part: Part) -> Part | None:
    """The part; None if it has no data. A signature without data, as a stream may end, becomes an empty text."""
    if data_keys(part):
        return None if get(part, "text") == "" and not is_signed(part) else part
    if other_keys(part):
        return part
    return {**part, "text": ""} if is_signed(part) else None


def _of_model(part: Part) -> Part:
    return part if get(part, "functionResponse") is None else {"text": as_json(part)}


def _speaks(part: Part) -> bool:
    """Whether the part is more than a summary of thoughts, which means nothing on its own."""
    return part.get("thought") is not True or is_signed(part)


def _orphan(answer: Part) -> list[Part]:
    """A response without its call: its text, and the media nested in it."""
    text = orphan_text(_text_of(answer.get("response") or {}))
    media = [part for part in answer.get("parts") or () if data_keys(part)]
    return [{"text": text}, *media] if text else media


def _text_of(response: Part) -> str:
    values = list(response.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else as_json(response) if response else ""
