"""The form in which SQLite keeps messages. The size of a database and the time of a commit depend on it."""

from __future__ import annotations

from contextstash_storage.codec.bodies import Parts, text_bytes
from contextstash_storage.codec.compression import CONSTANT, Dictionary
from contextstash_storage.codec.derived_form import compact
from contextstash_storage.codec.text_references import referring, sources
from contextstash_storage.preparation.messages import Columns, Form, Prepared
from contextstash_storage.records import NewMessage

LARGE_STRING = 8_000
"""Strings longer than this, in characters, are blobs. A shorter one, compressed, does not fill a page of 4 KB; within
its message it is also compressed better. Of 1,024, 4,096 and 8,000: with 8,000 the recorded sessions take 5 to 20 %
less than with 1,024."""

PACKED_LATER = 32_000
"""Bytes of a body up to which it is packed within the transaction, which knows the dictionary of its session: that
takes 50 µs for a message of usual size, and at most 1 ms. A larger one hardly gains by a dictionary."""


def _columns(message: NewMessage, parts: Parts, blobs: tuple[bytes, ...]) -> Columns:
    return Columns(
        body=b"" if len(parts.rest) <= PACKED_LATER else CONSTANT.packed(parts.rest),
        blobs=blobs,
        derived=compact(message),
        search_text=_search_text(message),
    )


def _search_text(message: NewMessage) -> bytes | None:
    if not message.search_text:
        return None
    in_order = sorted(message.outputs, key=lambda output: output.block)  # as their rows are read
    calls = [(output.tool, output.argument) for output in in_order]
    return referring(message.search_text, sources(message.body, calls))


def packed_body(prepared: Prepared, dictionary: Dictionary | None) -> bytes:
    """The body as it is stored in a session with this dictionary."""
    return prepared.columns.body or (dictionary or CONSTANT).packed(prepared.parts.rest)


COMPACT_FORM = Form(
    large_string=LARGE_STRING, packed_text=lambda text: CONSTANT.packed(text_bytes(text)), columns=_columns
)
