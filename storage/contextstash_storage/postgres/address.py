"""Addresses of PostgreSQL databases, and how they are shown: never with the password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from contextstash_storage.errors import BadInputError


@dataclass(frozen=True)
class Address:
    """A database's address. `url` is for the driver alone, `given` is what the user wrote. `prepares` is False if a
    connection pooler that is in between cannot keep prepared statements."""

    url: str = field(repr=False)
    shown: str
    given: str = field(repr=False)
    password: str = field(repr=False)
    prepares: bool = True

    def __str__(self) -> str:
        return self.shown


def parse_address(text: str) -> Address:
    """Read an address: postgresql://user:password@host:port/database?prepare=no. What it names beside
    that is the driver's. Raises BadInputError."""
    if "://" not in text:
        raise BadInputError("An address of PostgreSQL is postgresql://user@host/database.")
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise BadInputError(f"--db is not a valid address of PostgreSQL: {error}.") from error
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    prepares = query.pop("prepare", "yes") not in ("no", "false", "0")
    password = query.get("password") or unquote(parts.password or "")
    user = f"{parts.username}@" if parts.username else ""
    shown = f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"
    url = urlunsplit(parts._replace(query=urlencode(query)))
    return Address(url=url, given=text, shown=shown, password=password, prepares=prepares)
