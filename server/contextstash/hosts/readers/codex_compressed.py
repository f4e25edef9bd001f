"""Codex CLI's older rollouts, which it compresses: `rollout-….jsonl.zst`, the same lines as uncompressed.

Names as in openai/codex, codex-rs/rollout/src/compression.rs; if both files exist, the uncompressed one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from contextstash.files.regular_files import read_regular
from contextstash.files.zstandard import zstandard
from contextstash.hosts.readers.codex import CodexReader
from contextstash.hosts.readers.documents import stamp_of
from contextstash.hosts.readers.transcript import Batch, Line, Stamp, State, split_lines
from contextstash_storage.errors import BadInputError

SUFFIX = ".jsonl.zst"


class CompressedCodexReader:
    """Reads a compressed rollout whole. Its messages have the same keys as in the uncompressed file, so messages that
    were read from that file are not recorded again."""

    name = "codex"

    def claims(self, path: Path, document: object) -> bool:
        return path.name.endswith(SUFFIX)

    def stamp(self, path: Path) -> Stamp:
        return stamp_of([path])

    def load(self, path: Path) -> list[Line]:
        """Raises BadInputError if it is damaged."""
        zstd = zstandard()
        try:
            data = zstd.decompress(read_regular(path))
        except zstd.ZstdError as error:
            raise BadInputError(f"This compressed rollout is damaged or still being written: {error}.") from error
        return split_lines(data, at_end=True)[0]

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        return CodexReader().read(lines, {}, source.removesuffix(".zst"))


def is_superseded(path: Path) -> bool:
    """Whether the uncompressed rollout exists next to this compressed one."""
    return path.name.endswith(SUFFIX) and path.with_suffix("").is_file()
