"""A provider that models the prompt cache, and the proxy before it, on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.proxies import CachingProvider, Clock, RunningProxy, caching_provider, running_proxy


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(clock: Clock) -> Iterator[CachingProvider]:
    with caching_provider(clock) as running:
        yield running


@pytest.fixture
def proxy(provider: CachingProvider, clock: Clock, tmp_path: Path) -> Iterator[RunningProxy]:
    with running_proxy(provider, tmp_path / "stash.db", clock) as running:
        yield running
