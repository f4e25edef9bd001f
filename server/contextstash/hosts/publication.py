"""Whether the name `contextstash` on the package index is ours, and how uv starts this very package until it is.

The one place to switch on the day of the publication; a test then asks for what has to change with it: `packages` in
server.json (they wait in its `_meta`), and the README's line on where the package comes from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
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
