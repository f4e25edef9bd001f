"""A quick run of the whole tree takes some of the tests; a thorough one, or one of files by name, takes all."""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.effort import THOROUGH, sample

QUICK_CASES = 2
"""Cases of a parametrized test in a quick run. A guess: the first and one in the middle."""

QUICK_PROCESSES = 1
"""Tests of a file with the mark `processes` in a quick run. Each such test starts interpreters, which import the SDK
for most of a second; with one, `make test` takes 5 minutes on two cores instead of 7."""


def pytest_configure() -> None:
    """Trust no certificate: the tests speak to this machine alone, and a client takes 25 ms to load the usual ones."""
    os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what the collected modules hold until the end."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if THOROUGH or config.getoption("keyword") or not _is_whole_tree(config):
        return
    some = _sampled(items, lambda item: item.nodeid.partition("[")[0], QUICK_CASES)
    marked = [item for item in some if item.get_closest_marker("processes")]
    left_out = {id(item) for item in marked} - {id(item) for item in _sampled(marked, _file, QUICK_PROCESSES)}
    kept = {id(item) for item in some} - left_out
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def _is_whole_tree(config: pytest.Config) -> bool:
    whole = [config.rootpath / name for name in config.getini("testpaths")]
    return [Path(argument).resolve() for argument in config.args] == whole


def _file(item: pytest.Item) -> str:
    return str(item.path)


def _sampled(items: list[pytest.Item], group_of: Callable[[pytest.Item], str], quick: int) -> list[pytest.Item]:
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item)].append(item)
    return [item for group in groups.values() for item in sample(group, quick)]
