"""What is derived from a message comes back from its short form."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.messages import fingerprint, fingerprint_in, line_of, message_of
from contextstash_storage.records import Block, BlockType, Kind, Message, NewMessage, Record, Role, Usage
from contextstash_storage.rows import FACTS, to_json
from contextstash_storage.transaction import now


def plainly(kind: type[Record]) -> Callable[..., Record]:
    """Makes a record: of the class itself, hypothesis would give the fields by their short names too."""
    return lambda **fields: kind(**fields)


texts = st.none() | st.text(max_size=5)
counts = st.integers(0, 10**6)
blocks = st.builds(
    plainly(Block),
    type=st.sampled_from(get_args(BlockType)),
    tokens=counts,
    size=counts,
    call_id=texts,
    tool=texts,
    argument=texts,
    is_error=st.booleans(),
)
messages = st.builds(
    plainly(NewMessage),
    body=st.just({}),
    key=texts,
    role=st.sampled_from(get_args(Role)),
    kind=st.sampled_from(get_args(Kind)),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    usage=st.none() | st.builds(plainly(Usage), prompt_tokens=counts, cached_tokens=counts, cache_write_tokens=counts),
    group=texts,
    agent_visible=st.booleans(),
)


@given(messages)
def test_any_message_comes_back_equal(message: NewMessage) -> None:
    fields = {name: getattr(message, name) for name in FACTS}
    stored = Message(session_id="one", seq=7, key=message.key, created_at=now(), **fields)
    line = line_of(stored, to_json(message, FACTS), fingerprint({}))
    assert b"\n" not in line
    assert message_of("one", 7, line) == stored
    assert fingerprint_in(line) == fingerprint({})
