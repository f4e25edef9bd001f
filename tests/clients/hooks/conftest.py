"""A command line of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


@pytest.fixture
def contextstash(tmp_path: Path) -> CommandLine:
    """`contextstash` in an empty folder."""
    return CommandLine(tmp_path)
