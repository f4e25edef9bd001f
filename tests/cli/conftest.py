"""A session recorded with a command line of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Orchard


@pytest.fixture
def orchard(tmp_path: Path) -> Orchard:
    return Orchard(tmp_path)
