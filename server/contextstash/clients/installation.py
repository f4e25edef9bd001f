"""The command that starts this installation of contextstash."""

from __future__ import annotations

import sys
from pathlib import Path


def own_command(executable: str = sys.executable) -> list[str]:
    """The command that starts this installation of contextstash: the script next to its interpreter, by absolute path,
    because clients have another PATH; else the module. Never the name on the package index, which is not ours yet."""
    for name in ("contextstash", "contextstash.exe"):
        script = Path(executable).with_name(name)
        if script.is_file():
            return [str(script)]
    # -P: clients start it in the project's folder, from which `-m` alone would import first
    return [executable, "-P", "-m", "contextstash"]
