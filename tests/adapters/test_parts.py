"""A framework's messages as a provider's blocks, and which of them a request sends."""

from __future__ import annotations

from contextstash.adapters.parts import Part, by_message, natives, parts_sent


def said(text: str, at: int, role: str = "user") -> Part:
    return Part(role, {"type": "text", "text": text}, (at, 0))


def places(sent: list[str], given: list[str]) -> list[tuple[int, int] | None]:
    """Where the texts that are sent stand among those that were given."""
    messages = natives([said(text, 0) for text in sent], "anthropic")
    parts = parts_sent(messages, [said(text, at) for at, text in enumerate(given)], "anthropic")
    return [part.source for part in parts]


def test_parts_that_are_sent_are_found_again_in_order() -> None:
    assert places(["a", "b", "a"], ["a", "a", "b", "a"]) == [(1, 0), (2, 0), (3, 0)]
    assert places(["b", "c", "b"], ["a", "b", "b"]) == [(1, 0), None, (2, 0)]
    assert places([], ["a"]) == []


def test_words_that_stand_before_each_call_are_found_before_their_own() -> None:
    given = []
    for turn in range(3):
        given.append(Part("assistant", {"type": "text", "text": "I read on."}, (2 * turn, 0)))
        given.append(Part("assistant", {"type": "tool_use", "id": f"c{turn}", "name": "r", "input": {}}, (2 * turn, 1)))
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": "x" * 9}
        given.append(Part("user", result, (2 * turn + 1, 0)))
    sent = natives([said("summary", 0), *given[-3:]], "anthropic")
    sent[-1]["content"] = [{**sent[-1]["content"][0], "content": "archived"}]
    found = parts_sent(sent, given, "anthropic")
    assert [(part.source, part.changed) for part in found] == [
        (None, False),
        ((4, 0), False),
        ((4, 1), False),
        ((5, 0), True),
    ]
    assert [place for place, _ in by_message(found)] == [None, 4, 5]
