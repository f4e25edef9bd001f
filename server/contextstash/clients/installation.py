"""The installation of this program: its source, and the command that starts it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
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


def described() -> str:
    """Where this program is from, in one line: its folder, and the source that pip or uv recorded (PEP 610)."""
    here = str(Path(__file__).resolve().parents[1])
    try:
        recorded = json.loads(distribution("contextstash").read_text("direct_url.json") or "{}")
        url, version = recorded["url"], recorded.get("vcs_info", {}).get("commit_id")
    except (PackageNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return here
    if recorded.get("dir_info", {}).get("editable"):
        return f"the checkout {url.removeprefix('file://')}"
    return f"{here}, installed from {url}{f' at {version}' if version else ''}"
