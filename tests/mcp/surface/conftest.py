"""Both generations of the protocol, for the tests that talk to a server process."""

from __future__ import annotations

import pytest

from tests.support.servers import MODES, Mode


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen
