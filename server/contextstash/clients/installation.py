"""The installation of this program: its source, and the command that starts it.

`PUBLISHED` is the one place to switch on the day of the publication; a test then asks for what has to change with it:
`packages` in server.json (they wait in its `_meta`), and the README's line on where the package comes from.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

PUBLISHED = False
"""As long as this is false, whoever registers the name first decides what `uvx contextstash` runs."""


def uv_command() -> list[str] | None:
    """The command by which uv starts this package: by its name once that is ours, before that by the source that it was
    installed from. None if the installation does not record that source."""
    if PUBLISHED:
        return ["uvx", "contextstash"]
    source = recorded_source()
    if source is None:
        return None
    return ["uvx", "--from", source.address + (f"@{source.commit}" if source.commit else ""), "contextstash"]


@dataclass(frozen=True)
class Source:
    """The source of this package: a folder, an address or a repository, and the commit of that, if known.
    `editable`: it runs from that folder."""

    address: str
    commit: str | None = None
    editable: bool = False


def recorded_source() -> Source | None:
    """The source that pip or uv recorded (PEP 610); None if the package came from an index, or the record is not
    there."""
    try:
        recorded = json.loads(distribution("contextstash").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    url = recorded.get("url") if isinstance(recorded, dict) else None
    if not isinstance(url, str):
        return None
    editable = bool((recorded.get("dir_info") or {}).get("editable"))
    if url.startswith("file:"):
        return Source(url2pathname(unquote(urlsplit(url).path)), None, editable)
    version = recorded.get("vcs_info")
    if not isinstance(version, dict):
        return Source(url, None, editable)
    commit = version.get("commit_id")
    return Source(f"{version.get('vcs', 'git')}+{url}", commit if isinstance(commit, str) else None, editable)


def own_command(executable: str = sys.executable) -> list[str]:
    """The command that starts this installation of contextstash: `uvx` if it lies in uv's cache, which may be emptied;
    else the script next to its interpreter, by absolute path, because clients have another PATH; else the module.
    Never the name on the package index as long as that name is not ours."""
    parts = Path(executable).parts
    in_the_cache = "uv" in parts and any(part.startswith("archive-v") for part in parts)
    if in_the_cache and (command := uv_command()) is not None:
        return command
    for name in ("contextstash", "contextstash.exe"):
        script = Path(executable).with_name(name)
        if script.is_file():
            return [str(script)]
    # -P: clients start it in the project's folder, from which `-m` alone would import first
    return [executable, "-P", "-m", "contextstash"]


def described() -> str:
    """Where this program is from, in one line."""
    source = recorded_source()
    if source is not None and source.editable:
        return f"the checkout {source.address}"
    origin = "" if source is None else f", installed from {source.address}"
    return f"{Path(__file__).resolve().parents[1]}{origin}"
