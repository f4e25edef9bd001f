"""A quick run takes some cases of each parametrized test, evenly spread; a thorough one takes all."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.support.effort import THOROUGH, sample

QUICK_CASES = 3
"""Cases of a parametrized test in a quick run. A guess: the first, one in the middle and a late one."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if THOROUGH or config.getoption("keyword") or any("::" in argument for argument in config.args):
        return  # who asks for a test by its name gets all its cases
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    kept = {id(item) for group in cases.values() for item in sample(group, QUICK_CASES)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]
