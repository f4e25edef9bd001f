"""How this program was installed, and so how it is upgraded."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from contextstash.hosts.publication import PUBLISHED

NAME = "contextstash"

PIPX_RECEIPT, UV_RECEIPT = "pipx_metadata.json", "uv-receipt.toml"
"""The files by which pipx and uv know the environments that they made, which have no pip of their own. The folders of
both can be moved by variables, so their names say nothing."""


@dataclass(frozen=True)
class Installation:
    """The folder of the package, the environment that it is in, and the source that it was installed from as pip
    recorded it (PEP 610), None if that is unknown. `editable`: the package is in a checkout and runs from there."""

    package: Path
    environment: Path
    source: str | None
    editable: bool = False

    @property
    def described(self) -> str:
        """Where the program comes from, in a line."""
        if self.editable:
            return f"the checkout {self.source}"
        origin = "" if self.source is None else f", installed from {self.source}"
        return f"{self.package}{origin}"

    @property
    def upgrade(self) -> list[str]:
        """The commands that upgrade it, or what has to be known before."""
        source = self.source
        if self.editable and source is not None:
            folder = shlex.quote(source)
            pull = [f"git -C {folder} pull"] if (Path(source) / ".git").exists() else []
            return [*pull, f"make -C {folder} setup"] if (Path(source) / "Makefile").exists() else pull
        if source is None:
            if not PUBLISHED:
                return []
            source = NAME
        return [f"{self._installer} {shlex.quote(source)}"]

    @property
    def _installer(self) -> str:
        if (self.environment / PIPX_RECEIPT).exists():
            return "pipx install --force"
        if (self.environment / UV_RECEIPT).exists():
            return "uv tool install --reinstall"
        return f"{shlex.quote(str(self.environment / 'bin' / 'python'))} -m pip install --upgrade --force-reinstall"


def this_installation() -> Installation:
    """The installation that runs."""
    url, editable = _recorded()
    package = Path(__file__).resolve().parents[2]
    return Installation(package, Path(sys.prefix), url, editable)


def _recorded() -> tuple[str | None, bool]:
    try:
        recorded: Any = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None, False
    url = recorded.get("url") if isinstance(recorded, dict) else None
    if not isinstance(url, str):
        return None, False
    editable = bool((recorded.get("dir_info") or {}).get("editable"))
    if url.startswith("file:"):
        return url2pathname(unquote(urlsplit(url).path)), editable
    version = recorded.get("vcs_info")
    return (f"{version.get('vcs', 'git')}+{url}" if isinstance(version, dict) else url), editable
