"""Whether the name `contextstash` on the package index is ours, and how uv starts this very package until it is.

The one place to switch on the day of the publication; a test then asks for what has to change with it: `packages` in
server.json (they wait in its `_meta`), and the README's line on where the package comes from.
"""

from __future__ import annotations

import json
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
    source = _source()
    return None if source is None else ["uvx", "--from", source, "contextstash"]


def _source() -> str | None:
    """The folder or repository that this package was installed from (PEP 610); None if it came from an index."""
    try:
        recorded = json.loads(distribution("contextstash").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    url = recorded.get("url") if isinstance(recorded, dict) else None
    if not isinstance(url, str):
        return None
    if url.startswith("file:"):
        return url2pathname(unquote(urlsplit(url).path))
    version = recorded.get("vcs_info")
    if not isinstance(version, dict):
        return url
    commit = version.get("commit_id")
    return f"{version.get('vcs', 'git')}+{url}" + (f"@{commit}" if isinstance(commit, str) else "")
