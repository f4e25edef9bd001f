"""Addresses of PostgreSQL databases, and how they are shown: never with the password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from contextstash_storage.errors import BadInputError


@dataclass(frozen=True)
class Address:
    """A database's address. `url` is what the user wrote."""

    url: str = field(repr=False)
    shown: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        return self.shown


def parse_address(text: str) -> Address:
    """Read an address: postgresql://user:password@host:port/database. What it names beside that is the driver's. Raises
    BadInputError."""
    if "://" not in text:
        raise BadInputError("An address of PostgreSQL is postgresql://user@host/database.")
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise BadInputError(f"--db is not a valid address of PostgreSQL: {error}.") from error
    password = dict(parse_qsl(parts.query)).get("password") or unquote(parts.password or "")
    user = f"{parts.username}@" if parts.username else ""
    shown = f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"
    return Address(url=text, shown=shown, password=password)
