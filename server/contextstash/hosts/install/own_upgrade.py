"""The installation of this program: its source, and the commands that upgrade it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from contextstash.hosts.publication import PUBLISHED, recorded_source

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
        """The origin of the program, in one line."""
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
        # Both tools know where the program is from, and with which extras: a database may need that for encryption.
        if (self.environment / PIPX_RECEIPT).exists():
            return [f"pipx reinstall {NAME}"]
        if (self.environment / UV_RECEIPT).exists():
            return [f"uv tool upgrade --reinstall {NAME}"]
        python = shlex.quote(str(self.environment / "bin" / "python"))
        return [f"{python} -m pip install --upgrade --force-reinstall {shlex.quote(source)}"]


def this_installation() -> Installation:
    """The installation that runs."""
    source = recorded_source()
    package = Path(__file__).resolve().parents[2]
    if source is None:
        return Installation(package, Path(sys.prefix), None)
    return Installation(package, Path(sys.prefix), source.address, source.editable)
