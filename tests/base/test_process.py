"""What a process that serves sets in its interpreter."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
from contextstash.base.process import own_interpreter
own_interpreter()
print(sys.getswitchinterval() < 0.005, gc.get_freeze_count() > 0, gc.isenabled())
"""


def test_threads_take_short_turns_and_what_is_loaded_is_not_collected_again() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == ["True", "True", "True"]
