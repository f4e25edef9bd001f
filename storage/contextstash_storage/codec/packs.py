"""Packs: the bodies of neighbouring old messages, compressed together, as they share most of their words."""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from contextstash_storage.codec.bodies import IN_PACK, checksum, to_bytes

PACK_BYTES = 384_000
"""Bytes of the bodies of one pack. With 64, 128, 256, 384 and 512 KB, recorded sessions of Claude Code take 0.56, 0.52,
0.49, 0.47 and 0.46 of what each body takes compressed alone, those of Codex 0.55, 0.49, 0.43, 0.41 and 0.39. To read
the first message of a pack takes 0.7, 1.4, 2.6, 3.9 and 4.5 ms of processor time; to make one, under the write lock,
takes 16 ms with 128 KB, 35 with 256, 55 with 384 and 75 with 512."""

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2 * PACK_BYTES}]
"""With preset 4 packs are 3 % larger, with 9 they are 1 % smaller and take 1.5 times as long. The usual dictionary of
8 MB would only take memory."""


@dataclass(frozen=True)
class Pack:
    """Some bodies; in the place of each a reference to it is stored: the number of the pack, and its place in it."""

    mark: int
    content: bytes

    codec = IN_PACK

    def expanded(self, small: bytes) -> bytes:
        """The body that a reference means. Raises zlib.error if the pack is damaged."""
        return self._bodies[int(small.split()[1])]

    @cached_property
    def _bodies(self) -> list[bytes]:
        try:
            plain = lzma.decompress(self.content)
        except lzma.LZMAError as error:
            raise zlib.error("damaged pack") from error
        if checksum(plain) != self.mark:
            raise zlib.error("damaged pack")
        sizes, _, bodies = plain.partition(b"\n")
        return [bodies[start:end] for start, end in pairwise(accumulate(json.loads(sizes), initial=0))]


def pack_of(bodies: Sequence[bytes]) -> Pack:
    """A pack of these bodies."""
    plain = to_bytes([len(body) for body in bodies]) + b"\n" + b"".join(bodies)
    return Pack(checksum(plain), lzma.compress(plain, check=lzma.CHECK_NONE, filters=_FILTERS))


def reference(number: int, place: int) -> bytes:
    """What is stored in place of the body at this place of the pack of this number."""
    return IN_PACK + b"%d %d" % (number, place)


def pack_number(stored: bytes) -> int | None:
    """The number of the pack that a stored body is in; None if it stands alone."""
    return int(stored[1:].split()[0]) if stored[:1] == IN_PACK else None
