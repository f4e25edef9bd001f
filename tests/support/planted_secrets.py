"""Secrets of many kinds as their issuers form them, in the surroundings that agents see them in; all of them random."""

from __future__ import annotations

import base64
import copy
import json
import re
import string
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.documents import read_documents
from contextstash_storage.records import Native
from contextstash_storage.sqlite import SqliteTx

ALNUM = string.ascii_letters + string.digits
ALPHABETS = {
    "alnum": ALNUM,
    "ALNUM": ALNUM.upper(),
    "url": ALNUM + "-_",
    "base64": ALNUM + "+/",
    "hex": "0123456789abcdef",
    "digit": "123456789",
    "number": string.digits,
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "letters": string.ascii_letters,
    "base32": string.ascii_uppercase + "234567",
    "bech32": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}

Maker = Callable[[Random], str]


@dataclass(frozen=True)
class Planted:
    """A secret and the text that holds it."""

    kind: str
    secret: str
    text: str


def some(random: Random, letters: str, length: int) -> str:
    return "".join(random.choice(letters) for _ in range(length))


def _jwt(random: Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": some(random, string.digits, 10)})
    head, claims = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{claims}.{some(random, ALPHABETS['url'], 43)}"


def _password(random: Random) -> str:
    return some(random, ALNUM, 9) + random.choice("!#%^*") + random.choice(string.digits)


WORDS: dict[str, Maker] = {
    "jwt": _jwt,
    "password": _password,
    "basic": lambda random: base64.b64encode(f"deploy:{_password(random)}".encode()).decode(),
    "uuid": lambda random: str(UUID(int=random.getrandbits(128))),
}


def _made(form: str, random: Random) -> str:
    """A secret of a form in `secrets.toml`."""

    def filled(match: re.Match[str]) -> str:
        letters, length = match.groups()
        return some(random, ALPHABETS[letters], int(length)) if length else WORDS[letters](random)

    return re.sub(r"\{(\w+)(?::(\d+))?\}", filled, form)


_TABLES = tomllib.loads(Path(__file__).with_name("secrets.toml").read_text(encoding="utf-8"))
KINDS: dict[str, Maker] = {kind: partial(_made, form) for kind, form in _TABLES["kinds"].items()}
PUBLISHED: dict[str, Maker] = {kind: partial(_made, form) for kind, form in _TABLES["published"].items()}
SURROUNDINGS: dict[str, list[str]] = _TABLES["surroundings"]

BARE = (
    "{}",
    'curl -H "X-Key: {}" https://api.example.org',
    "key = '{}'  # local",
    "error: invalid credentials {} (401)",
)
"""Kinds that are recognized by themselves stand anywhere."""


def planted(random: Random, count: int) -> list[Planted]:
    """So many secrets, of all kinds in turn."""
    found = []
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        secret = KINDS[kind](random)
        text = random.choice(SURROUNDINGS.get(kind, BARE)).replace("{}", secret)
        found.append(Planted(kind, secret, text))
    return found


def readable(secret: Planted, text: str) -> bool:
    """Whether a text shows a secret, or so much of one that it can be guessed; a line of a private key is enough."""
    lines = [secret.secret, json.dumps(secret.secret)[1:-1], *secret.secret.splitlines()]
    return any(line in text for line in lines)


def is_indexed(secret: Planted, words: str) -> bool:
    """Whether an index has a word of a secret: indexes fold case, divide at punctuation and take off endings."""
    lines = [max(re.findall(r"[a-z0-9]+", line.lower()), key=len) for line in secret.secret.splitlines()]
    return any(line[: max(6, len(line) - 4)] in words.lower() for line in lines)


def made_session() -> list[Native]:
    """A session with prompts, calls and outputs, whose texts secrets can be planted in."""
    natives: list[Native] = [{"role": "user", "content": "Look into the deployment and fix what is broken."}]
    for number in range(40):
        name = f"toolu_{number}"
        call = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": f"cat config/{number}.env"}}
        output = "\n".join(f"line {line} of file {number}" for line in range(60))
        natives += [
            {"role": "assistant", "content": [{"type": "text", "text": f"Next is file {number}."}, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": output}]},
        ]
    return [*natives, {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}]


def _texts(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """The places of the texts in a message, by the object and the field."""
    if isinstance(value, dict):
        for key, child in value.items():
            if key in ("text", "content", "output", "command") and isinstance(child, str):
                yield value, key
            else:
                yield from _texts(child)
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)


def with_secrets(natives: list[Native], secrets: list[Planted], random: Random) -> list[Native]:
    """The session with each secret at a line of some text."""
    found = copy.deepcopy(natives)
    places = [place for native in found for place in _texts(native)]
    lines = [owner[key].split("\n") for owner, key in places]
    for secret in secrets:
        chosen = random.choice(lines)
        chosen.insert(random.randint(0, len(chosen)), secret.text)
    for (owner, key), each in zip(places, lines, strict=True):
        owner[key] = "\n".join(each)
    return found


def indexed_texts(database: Path) -> str:
    """Every text that the index was given, and the words that it holds."""
    db = sqlite3.connect(database)
    places = db.execute("SELECT DISTINCT session, session_id, seq FROM entries JOIN sessions USING (session)")
    texts = [each.text for _, found in read_documents(SqliteTx(db), places.fetchall()).values() for each in found]
    db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'words', 'row')")
    texts += [word for (word,) in db.execute("SELECT term FROM temp.terms")]
    texts += [argument for (argument,) in db.execute("SELECT coalesce(argument, '') FROM outputs")]
    db.close()
    return "\n".join(texts)
