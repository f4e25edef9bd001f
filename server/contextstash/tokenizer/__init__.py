"""Byte-pair token counting with vocabularies from inside the package; nothing is downloaded."""

from __future__ import annotations

import gzip
import json
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

MAX_PIECE_CHARACTERS = 100_000
"""The longest text that is encoded at once: a run of a million white-space characters makes the encoder panic. Cutting
at line ends changes the count by about 0.003 % at most."""

_BETWEEN = "\0<between two texts>"
"""Stands between texts that are encoded in one call. A special token: the encoder cuts a text at it before it looks at
what is on either side, so that the texts count as if each were alone. No beginning of it is also an end of it: a text's
end and the token after it cannot be taken for another such token."""

MAX_TOGETHER_CHARACTERS = 200_000
"""The most characters that are encoded in one call: 30 ms, and a list of 50,000 numbers."""

_loading = Lock()


def count_with(name: str) -> Callable[[str], int]:
    """A function that counts the tokens of a text with the vocabulary `cl100k_base` or `o200k_base`.

    The vocabulary is loaded at the first count (0.3 s).
    """

    def count(text: str) -> int:
        if not text:
            return 0
        encoding = _loaded(name)
        return sum(len(encoding.encode_ordinary(piece)) for piece in pieces(encodable(text)))

    return count


def count_all_with(name: str, texts: Sequence[str]) -> list[int]:
    """The tokens of each text, as `count_with` counts them, in few calls: the encoder does not keep Python's lock, but
    each call waits for it at its end, which takes longer than counting a short text if other threads compute."""
    encoding = _loaded(name)
    counts: list[int] = []
    for together in _batches(texts):
        if any(_BETWEEN in text for text in together):
            count = count_with(name)
            counts += [count(text) for text in together]
            continue
        cut = [list(pieces(encodable(text))) for text in together]
        sizes = _sizes(encoding, [piece for parts in cut for piece in parts])
        counts += [sum(next(sizes) for _ in parts) for parts in cut]
    return counts


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in batches of at most MAX_TOGETHER_CHARACTERS, longer ones alone."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > MAX_TOGETHER_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _sizes(encoding: Encoding, parts: Sequence[str]) -> Iterator[int]:
    """The tokens of each of these texts, which are encoded in one call."""
    tokens = encoding.encode(_BETWEEN.join(parts), allowed_special={_BETWEEN}, disallowed_special=())
    between = encoding.n_vocab - 1
    start = 0
    for _ in parts[1:]:
        end = tokens.index(between, start)
        yield end - start
        start = end + 1
    yield len(tokens) - start


def encodable(text: str) -> str:
    """The text with lone surrogates, which no encoder takes, replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def pieces(text: str) -> Iterator[str]:
    """The text in pieces of at most MAX_PIECE_CHARACTERS characters, cut after a line end if there is one."""
    start = 0
    while len(text) - start > MAX_PIECE_CHARACTERS:
        cut = text.rfind("\n", start, start + MAX_PIECE_CHARACTERS) + 1
        end = cut if cut > start else start + MAX_PIECE_CHARACTERS
        yield text[start:end]
        start = end
    yield text[start:]


def _loaded(name: str) -> Encoding:
    with _loading:
        return _load(name)


@cache
def _load(name: str) -> Encoding:
    from tiktoken import Encoding

    folder = files("contextstash.tokenizer")
    known = json.loads(folder.joinpath("vocabularies.json").read_text(encoding="utf-8"))[name]
    raw = gzip.decompress(folder.joinpath(f"{name}.tiktoken.gz").read_bytes())
    words = raw.split()[::2]
    # Without a step of Python for each of 200,000 lines: half the time. Each line's rank is its number, from 0.
    ranks = dict(zip(map(a2b_base64, words), range(len(words)), strict=True))
    return Encoding(name=name, pat_str=known["pattern"], mergeable_ranks=ranks, special_tokens={_BETWEEN: len(words)})
