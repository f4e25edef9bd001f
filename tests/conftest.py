"""A quick run of the whole tree takes some of the tests; a thorough one, or one of files by name, takes all."""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from contextstash.stash import Stash
from contextstash.window.settings import PRESETS
from tests.support.command_line import CommandLine
from tests.support.effort import THOROUGH, sample
from tests.support.stashes import stash_at

QUICK_CASES = 2
"""Cases of a parametrized test in a quick run. A guess: the first and one in the middle."""

QUICK_PROCESSES = 1
"""Tests of a file with the mark `processes` in a quick run. Each such test starts interpreters, which import the SDK
for most of a second; with one, `make test` takes 5 minutes on two cores instead of 7."""

QUICK_POSTGRES = 2
"""The same for the mark `postgres`: each test copies a database, which takes 0.1 s, and each worker starts a server."""

# A change is refused or taken for what it does, not for the examples of that day, nor for a busy machine;
# `make hunt` looks for new examples.
NOISY: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("random", **NOISY)
settings.register_profile("repeatable", derandomize=True, **NOISY)
settings.load_profile("repeatable")


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
    quick = [item for item in items if not item.get_closest_marker("slow")]
    some = _sampled(quick, lambda item: item.nodeid.partition("[")[0], QUICK_CASES)
    left_out = _left_out(some, "processes", QUICK_PROCESSES) | _left_out(some, "postgres", QUICK_POSTGRES)
    kept = {id(item) for item in some} - left_out
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def pytest_sessionfinish() -> None:
    """End the PostgreSQL of this process: a worker of xdist ends without what is registered for the exit."""
    from tests.support.postgres_server import server

    if server.cache_info().currsize:
        server().end()


@pytest.fixture
def contextstash(tmp_path: Path) -> CommandLine:
    """`contextstash` in an empty folder, which is home too."""
    return CommandLine(tmp_path)


@pytest.fixture
async def stash(tmp_path: Path) -> AsyncIterator[Stash]:
    """A stash for the tests that need no settings of their own."""
    async with stash_at(tmp_path / "s.db") as opened:
        yield opened


@pytest.fixture
def preset_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Returns the name of a preset that has these numbers instead of those of `base`."""

    def made(base: str = "default", **numbers: Any) -> str:
        monkeypatch.setitem(PRESETS, "of-this-test", {**PRESETS[base], **numbers})
        return "of-this-test"

    return made


def _left_out(items: list[pytest.Item], mark: str, quick: int) -> set[int]:
    """The tests with a mark that are not among so many of their file."""
    marked = [item for item in items if item.get_closest_marker(mark)]
    return {id(item) for item in marked} - {id(item) for item in _sampled(marked, _file, quick)}


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
