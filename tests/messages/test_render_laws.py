"""Laws of rendering, over generated conversations, valid and broken."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contextstash.messages.detection import FORMATS, detect_format, get_format
from contextstash.messages.repair import render
from contextstash_storage.errors import BadMessageError
from tests.support.conversations import FORMAT_NAMES, conversations, json_objects, json_values
from tests.support.effort import examples
from tests.support.provider_rules import violations

laws = settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow])
formats = pytest.mark.parametrize("name", FORMAT_NAMES)


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


@formats
@laws
@given(st.data())
def test_a_valid_conversation_breaks_no_rule_and_is_rendered_unchanged(name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(name))
    assert violations(name, natives) == []
    assert dumped(render(get_format(name), natives)) == dumped(natives)


@formats
@laws
@given(st.data())
def test_a_broken_conversation_is_rendered_valid_and_rendering_again_changes_nothing(
    name: str, data: st.DataObject
) -> None:
    natives = data.draw(conversations(name, broken=True))
    before = copy.deepcopy(natives)
    rendered = render(get_format(name), natives)
    assert violations(name, rendered) == []
    assert dumped(render(get_format(name), rendered)) == dumped(rendered)
    assert natives == before


@formats
@laws
@given(st.data())
def test_every_generated_message_is_read_and_detected(name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(name))
    for native in natives:
        found = get_format(name).read(native)
        assert len(found.blocks) == len(found.texts)
        assert [block.size for block in found.blocks] == [len(text) for text in found.texts]
    if any(get_format(name).is_own(native) for native in natives):
        assert detect_format(natives) == name


@formats
@laws
@given(st.data())
def test_replacing_a_result_changes_that_text_and_nothing_else(name: str, data: st.DataObject) -> None:
    fmt = get_format(name)
    natives = data.draw(conversations(name))
    replaced = []
    for native in natives:
        found = fmt.read(native)
        places = [place for place, block in enumerate(found.blocks) if block.type == "tool_result"]
        chosen = [place for place in places if data.draw(st.booleans())]
        before = copy.deepcopy(native)
        changed = fmt.replace(native, {place: f"placeholder {place}" for place in chosen})
        replaced.append(changed)
        assert native == before
        assert list(changed) == list(native)
        kept = [
            (block, text)
            for place, (block, text) in enumerate(zip(found.blocks, found.texts, strict=True))
            if not _goes(found.blocks, place, chosen)
        ]
        again = fmt.read(changed)
        shown = list(zip(again.blocks, again.texts, strict=True))
        placeholders = [pair for pair in shown if pair[1].startswith("placeholder ")]
        assert [text for _, text in placeholders] == [f"placeholder {place}" for place in chosen]
        assert [pair for pair in shown if pair not in placeholders] == kept
    assert violations(name, replaced) == []


def _goes(blocks: Any, place: int, chosen: list[int]) -> bool:
    if place in chosen:
        return True
    owners = [index for index in chosen if index < place]
    return bool(owners and blocks[place].type == "image" and blocks[place].call_id == blocks[owners[-1]].call_id)


@formats
@settings(max_examples=examples(400))
@given(native=json_objects)
def test_reading_arbitrary_json_gives_blocks_or_a_clear_error(name: str, native: dict[str, Any]) -> None:
    fmt = get_format(name)
    with suppress(BadMessageError):
        for block in fmt.read(native).blocks:
            assert block.argument is None or (len(block.argument) <= 120 and "\n" not in block.argument)


@settings(max_examples=examples(200))
@given(natives=st.lists(json_values, max_size=3))
def test_detecting_arbitrary_json_gives_a_format_or_a_clear_error(natives: list[Any]) -> None:
    with suppress(BadMessageError):
        assert detect_format(natives) in FORMATS


@formats
@settings(max_examples=examples(300))
@example([{"role": "model", "parts": [{"functionCall": {"name": "ls"}}]}])
@example([{"type": "other_output", "call_id": "c", "output": [[None], "x"]}])
@example([{"role": "assistant"}])
@given(natives=st.lists(json_objects, max_size=4))
def test_every_readable_list_can_be_rendered_and_validated(name: str, natives: list[dict[str, Any]]) -> None:
    readable = [native for native in natives if _is_readable(name, native)]
    rendered = render(get_format(name), readable)
    problems = violations(name, rendered)
    assert problems == []


def _is_readable(name: str, native: dict[str, Any]) -> bool:
    try:
        get_format(name).read(native)
    except BadMessageError:
        return False
    return True


def test_a_deeply_nested_part_is_read_or_refused() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    _is_readable("gemini", {"role": "user", "parts": [{"other": deep}]})


def test_responses_to_calls_of_one_id_stay_with_the_names_of_their_calls() -> None:
    calls: list[dict[str, Any]] = [
        {"functionCall": {"name": name, "id": "call_1", "args": {}}} for name in ("Read", "Bash")
    ]
    natives = [{"role": "user", "parts": [{"text": "go"}]}, *({"role": "model", "parts": [call]} for call in calls)]
    rendered = render(get_format("gemini"), natives)
    assert [part["functionResponse"]["name"] for part in rendered[-1]["parts"]] == ["Read", "Bash"]
    assert render(get_format("gemini"), rendered) == rendered
