"""Four properties of any list that is sent, checked without the code of the rules, after chained prunes and cuts: each
result once, every call matched, parallel calls kept or removed together, the thinking of an open tool loop kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from contextstash.messages.cuts import safe_cuts
from contextstash.messages.detection import get_format
from contextstash.messages.repair import render
from contextstash_storage.records import Message, Native
from tests.support.conversations import FORMAT_NAMES, as_messages, conversations
from tests.support.effort import examples

formats = pytest.mark.parametrize("name", FORMAT_NAMES)
laws = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))


def calls_of(message: Message) -> list[str]:
    return [block.call_id for block in message.blocks if block.type == "tool_call" and block.call_id]


def answers_of(message: Message) -> list[str]:
    """A screenshot is an answer of its own; an image inside a result is not."""
    results = [block.call_id for block in message.blocks if block.type in ("tool_result", "opaque") and block.call_id]
    alone = [block.call_id for block in message.blocks if block.type in ("image", "document") and block.call_id]
    return [*results, *(call for call in alone if call not in results)]


def pruned(name: str, natives: Sequence[Native], data: st.DataObject) -> list[Native]:
    """Some tool results replaced by placeholders."""
    fmt = get_format(name)
    left = []
    for native in natives:
        results = [place for place, block in enumerate(fmt.read(native).blocks) if block.type == "tool_result"]
        left.append(fmt.replace(native, {place: "[archived]" for place in results if data.draw(st.booleans())}))
    return left


def compacted(name: str, natives: Sequence[Native], data: st.DataObject) -> list[Native]:
    """One summary in the place of everything before some safe cut."""
    cut = data.draw(st.sampled_from(safe_cuts(as_messages(name, natives))))
    return [get_format(name).user_message(f"Summary of {cut} messages."), *natives[cut:]]


@formats
@laws
@given(st.data())
def test_calls_and_results_match_one_to_one_and_parallel_calls_stay_together(name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(name, min_turns=2))
    batches = [calls_of(message) for message in as_messages(name, natives)]
    assume(all(times == 1 for times in Counter(call for batch in batches for call in batch).values()))
    for step in data.draw(st.lists(st.sampled_from((pruned, compacted)), min_size=1, max_size=4)):
        natives = step(name, natives, data)
        sent = as_messages(name, render(get_format(name), natives))
        called = [call for message in sent for call in calls_of(message)]
        answered = [call for message in sent for call in answers_of(message)]
        assert Counter(answered) == Counter(called)
        assert set(Counter(called).values()) <= {1}
        for batch in batches:
            assert len(set(batch) & set(called)) in (0, len(batch))


def thinks(native: Native) -> bool:
    return any(block["type"].endswith("thinking") for block in native["content"] if isinstance(block, dict))


def speaks(native: Native) -> bool:
    content = native["content"]
    answers = isinstance(content, list) and any(block["type"] == "tool_result" for block in content)
    return native["role"] == "user" and not answers


def turn(thinking: bool, *rounds: bool) -> list[Native]:
    """A user message and a tool loop after it; the flags say whether the first and each later reply thinks."""
    natives: list[Native] = [{"role": "user", "content": "go on"}]
    for thoughtful in (thinking, *rounds):
        thought = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}] if thoughtful else []
        use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
        natives += [{"role": "assistant", "content": [*thought, use]}, {"role": "user", "content": [result]}]
    return natives


@laws
@given(st.lists(st.lists(st.booleans(), max_size=5), min_size=2, max_size=4))
def test_an_open_loop_that_is_cut_still_begins_with_thinking_if_all_loops_do(loops: list[list[bool]]) -> None:
    natives = [native for later in loops for native in turn(True, *later)]
    for cut in safe_cuts(as_messages("anthropic", natives)):
        kept = natives[cut:]
        spoken = [place for place, native in enumerate(kept) if speaks(native)]
        loop = kept[spoken[-1] + 1 :] if spoken else kept
        assert not loop or thinks(loop[0])


@pytest.mark.parametrize(
    ("natives", "cuts"),
    [
        pytest.param(
            [*turn(True, False), *turn(True, False, True, False)], [0, 1, 3, 5, 6, 10, 14], id="all think first"
        ),
        pytest.param([*turn(True, False), *turn(False, False)], [0, 1, 3, 5, 6, 8, 10], id="one thinks not at all"),
        pytest.param(turn(True, False, False), [0, 1, 3, 5, 7], id="one loop alone may outgrow the window"),
        pytest.param(
            [*turn(True, False), *turn(True, False), {"role": "assistant", "content": "done"}],
            [0, 1, 3, 5, 6, 8, 10, 11],
            id="no loop is open",
        ),
    ],
)
def test_where_an_open_loop_may_be_cut(natives: list[Native], cuts: list[int]) -> None:
    assert safe_cuts(as_messages("anthropic", natives)) == cuts
