"""An image's width and height are read from its data, whatever the provider's part around it."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.messages import get_format
from contextstash.messages.parts import image_size

ACROSS, DOWN = 800, 600
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", ACROSS, DOWN) + bytes(9)
EXIF = b"\xff\xe1" + struct.pack(">H", 9_002) + bytes(9_000)
HUFFMAN_TABLE = b"\xff\xc4" + struct.pack(">H", 4) + bytes(2)
FRAME = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, DOWN, ACROSS) + bytes(10)
JPEG = b"\xff\xd8" + EXIF + HUFFMAN_TABLE + FRAME


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("data", [PNG, JPEG])
def test_the_size_is_read_from_each_kind_of_image(data: bytes) -> None:
    assert image_size(encoded(data)) == (ACROSS, DOWN)


def test_a_data_url_is_read_too_and_another_url_has_no_size() -> None:
    assert image_size("data:image/png;base64," + encoded(PNG)) == (ACROSS, DOWN)
    assert image_size("https://example.com/a.png") is None


@pytest.mark.parametrize("data", [PNG, JPEG])
def test_what_is_cut_off_has_no_size(data: bytes) -> None:
    assert image_size(encoded(data[:9])) is None


@given(st.sampled_from([b"", PNG[:8], JPEG[:2]]), st.binary())
def test_any_data_has_a_size_above_nothing_or_none(magic: bytes, rest: bytes) -> None:
    size = image_size(encoded(magic + rest))
    assert size is None or min(size) > 0


@pytest.mark.parametrize("data", [None, 7, "not base64 ☃", {"url": "x"}])
def test_what_is_no_data_has_no_size(data: Any) -> None:
    assert image_size(data) is None


URL = "data:image/png;base64," + encoded(PNG)
SOURCE = {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}


@pytest.mark.parametrize(
    ("name", "native"),
    [
        ("anthropic", {"role": "user", "content": [{"type": "image", "source": SOURCE}]}),
        ("openai-chat", {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}),
        ("openai-responses", {"role": "user", "content": [{"type": "input_image", "image_url": URL}]}),
    ],
)
def test_each_provider_s_image_shows_its_size(name: str, native: dict[str, Any]) -> None:
    assert [block.pixels for block in get_format(name).read(native).blocks] == [(ACROSS, DOWN)]
