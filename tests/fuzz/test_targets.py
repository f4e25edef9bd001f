"""Each target on its seeds and on changes of them."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.mutation import mutated
from tests.fuzz.seeds import seeds_of
from tests.fuzz.targets import TARGETS
from tests.support.effort import examples

FINDINGS = (
    ("reader-1-codex", '{"type":"response_item","payload":{"type":[]}}\n'),
    ("reader-3-opencode", '[{"id":"ses_1"},{"info":{"role":"assistant","time":{"completed":2}},"parts":[{"type":"text",'
     '"text":"x"}]}]'),
    ("reply", 'data: {"type":{}}\n\n'),
    ("reply", 'data: {"type":"error","error":{"code":[]}}\n\n'),
    ("reply", "data: " + "[" * 100_000 + "\n\n"),
)  # fmt: skip
"""Inputs that raised errors of other kinds before."""

MAX_INPUT_BYTES = 8_000


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_that_is_read_from_outside_raises_an_error_of_another_kind(name: str) -> None:
    seeds = [seed[:MAX_INPUT_BYTES] for seed in seeds_of(name)]
    rng = random.Random(28)
    inputs = seeds[:12] + [mutated(rng.choice(seeds), rng)[:MAX_INPUT_BYTES] for _ in range(examples(500))]
    for data in inputs:
        try:
            TARGETS[name](data)
        except Exception as error:
            error.add_note(f"input: {data!r}")
            raise


@pytest.mark.parametrize(
    ("name", "data"), FINDINGS, ids=[f"{name}-{place}" for place, (name, _) in enumerate(FINDINGS)]
)
def test_what_was_found_is_mended(name: str, data: str) -> None:
    TARGETS[name](data.encode())
