"""What is compressed with a dictionary comes back as it was, also in later versions."""

from __future__ import annotations

import hashlib
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.codec.bodies import CONSTANT, WINDOW, ZLIB, session_dictionary, unpacked
from contextstash_storage.errors import StoreError
from tests.support.json_values import json_objects


@given(json_objects, st.binary(max_size=2_000))
def test_any_data_comes_back_with_the_dictionary_that_it_was_packed_with(value: object, content: bytes) -> None:
    own = session_dictionary(1, content)
    for data in (json.dumps(value).encode(), content):
        assert unpacked(CONSTANT.packed(data)) == data
        assert unpacked(own.packed(data), own) == data
        assert unpacked(ZLIB + zlib.compress(data)) == data


def test_the_constant_dictionary_is_that_of_stored_databases() -> None:
    """If it changed, no message that is stored could be read again: a new dictionary needs a codec of its own."""
    digest = "30b5fd5f814bfceb718b7f234c7ae473db8eeaf304fb1ab02f199b94464f8c2c"
    assert hashlib.sha256(CONSTANT.content).hexdigest() == digest
    assert len(CONSTANT.content) < WINDOW // 2


def test_what_resembles_earlier_messages_becomes_much_smaller() -> None:
    earlier = " ".join(f"src/module_{number}/handler.py" for number in range(500)).encode()
    later = b'{"role":"user","content":"See src/module_77/handler.py and src/module_78/handler.py"}'
    assert len(session_dictionary(1, earlier).packed(later)) < len(CONSTANT.packed(later)) < len(zlib.compress(later))


def test_a_message_whose_dictionary_is_gone_is_reported_as_damage() -> None:
    stored = session_dictionary(1, b"a dictionary of a session " * 100).packed(b"a dictionary of a session " * 10)
    with pytest.raises(StoreError, match="damaged"):
        unpacked(stored)
