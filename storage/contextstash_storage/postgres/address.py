"""Addresses of PostgreSQL databases, and how they are shown: never with the password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from contextstash_storage.errors import BadInputError

POOL_SIZE = 10
"""Connections of one process at most, as in asyncpg. Each costs the server about 10 MB."""

MAX_PARTITIONS = 1_024


@dataclass(frozen=True)
class Address:
    """A database's address. `url` is for the driver alone, `given` is what the user wrote. `partitions` is into how
    many partitions the tables are divided when they are made; 0 for none. `prepares` is False if a connection pooler
    that is in between cannot keep prepared statements."""

    url: str = field(repr=False)
    shown: str
    given: str = field(repr=False)
    password: str = field(repr=False)
    pool_size: int = POOL_SIZE
    partitions: int = 0
    prepares: bool = True

    def __str__(self) -> str:
        return self.shown


def parse_address(text: str) -> Address:
    """Read an address: postgresql://user:password@host:port/database?pool_size=20&partitions=16. What it names beside
    that is the driver's. Raises BadInputError."""
    if "://" not in text:
        raise BadInputError("An address of PostgreSQL is postgresql://user@host/database.")
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise BadInputError(f"--db is not a valid address of PostgreSQL: {error}.") from error
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {
        "pool_size": _number(query.pop("pool_size", None), "pool_size", POOL_SIZE, 1),
        "partitions": _number(query.pop("partitions", None), "partitions", 0, 0),
    }
    prepares = query.pop("prepare", "yes") not in ("no", "false", "0")
    password = query.get("password") or unquote(parts.password or "")
    user = f"{parts.username}@" if parts.username else ""
    shown = f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"
    url = urlunsplit(parts._replace(query=urlencode(query)))
    return Address(url=url, given=text, shown=shown, password=password, prepares=prepares, **ours)


def _number(value: str | None, name: str, usual: int, least: int) -> int:
    if value is None:
        return usual
    if not value.isascii() or not value.isdigit() or not least <= int(value) <= MAX_PARTITIONS:
        raise BadInputError(f"{name} in --db is a number from {least} to {MAX_PARTITIONS}, not '{value}'.")
    return int(value)
