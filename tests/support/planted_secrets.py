"""Secrets of many kinds as their issuers form them, in the surroundings that agents see them in; all of them random."""

from __future__ import annotations

import base64
import copy
import json
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.records import Native
from contextstash_storage.search.index import read_documents
from contextstash_storage.sqlite.connection import SqliteTx

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
URL = ALNUM + "-_"
BASE64 = ALNUM + "+/"


@dataclass(frozen=True)
class Planted:
    """A secret and the text that holds it."""

    kind: str
    secret: str
    text: str


def some(random: Random, letters: str, length: int) -> str:
    return "".join(random.choice(letters) for _ in range(length))


def _segment(random: Random, value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(random: Random) -> str:
    head = _segment(random, {"alg": "HS256", "typ": "JWT"})
    return f"{head}.{_segment(random, {'sub': some(random, '0123456789', 10)})}.{some(random, URL, 43)}"


def _password(random: Random) -> str:
    return some(random, ALNUM, 9) + random.choice("!#%^*") + random.choice(string.digits)


def _key_lines(random: Random, lines: int) -> str:
    return "\n".join(some(random, BASE64, 64) for _ in range(lines))


Maker = Callable[[Random], str]

KINDS: dict[str, Maker] = {
    "aws access key": lambda r: "AKIA" + some(r, string.ascii_uppercase + "234567", 16),
    "aws secret": lambda r: some(r, BASE64, 40),
    "github classic": lambda r: "ghp_" + some(r, ALNUM, 36),
    "github fine": lambda r: f"github_pat_{some(r, ALNUM, 22)}_{some(r, ALNUM, 59)}",
    "gitlab": lambda r: "glpat-" + some(r, URL, 20),
    "slack bot": lambda r: f"xoxb-{some(r, '123456789', 12)}-{some(r, '123456789', 12)}-{some(r, ALNUM, 24)}",
    "slack webhook": lambda r: (
        f"https://hooks.slack.com/services/T{some(r, ALNUM.upper(), 8)}/B{some(r, ALNUM, 8)}/" + some(r, ALNUM, 24)
    ),
    "stripe": lambda r: "sk_live_" + some(r, ALNUM, 24),
    "openai": lambda r: "sk-proj-" + some(r, URL, 48),
    "anthropic": lambda r: "sk-ant-api03-" + some(r, URL, 93) + "AA",
    "npm": lambda r: "npm_" + some(r, ALNUM, 36),
    "pypi": lambda r: "pypi-AgEIcHlwaS5vcmc" + some(r, URL, 120),
    "google": lambda r: "AIza" + some(r, URL, 35),
    "google oauth": lambda r: "GOCSPX-" + some(r, URL, 28),
    "sendgrid": lambda r: f"SG.{some(r, URL, 22)}.{some(r, URL, 43)}",
    "hugging face": lambda r: "hf_" + some(r, string.ascii_letters, 34),
    "digitalocean": lambda r: "dop_v1_" + some(r, HEX, 64),
    "mailchimp": lambda r: some(r, HEX, 32) + "-us12",
    "telegram": lambda r: f"{some(r, '123456789', 10)}:AA{some(r, URL, 33)}",
    "jwt": _jwt,
    "private key": lambda r: _key_lines(r, 12),
    "address password": _password,
    "env password": _password,
    "env key": lambda r: some(r, ALNUM, 32),
    "bearer": lambda r: some(r, ALNUM, 40),
    "basic": lambda r: base64.b64encode(f"deploy:{_password(r)}".encode()).decode(),
    "azure": lambda r: some(r, BASE64, 86) + "==",
    "json secret": lambda r: some(r, URL, 40),
    "yaml token": lambda r: some(r, HEX, 40),
    "npmrc": lambda r: some(r, HEX, 36),
    "option": _password,
    "login": _password,
    "docker login": lambda r: base64.b64encode(f"deploy:{_password(r)}".encode()).decode(),
    "authorization": lambda r: some(r, ALNUM, 36),
    "sql password": _password,
}

BARE = (
    "{}",
    'curl -H "X-Key: {}" https://api.example.org',
    "key = '{}'  # local",
    "error: invalid credentials {} (401)",
)
"""Kinds that are recognized by themselves stand anywhere."""

SURROUNDINGS: dict[str, tuple[str, ...]] = {
    "option": (
        "mysql -h db -u app -p{} shop",
        "mysqldump -p'{}' shop",
        "sshpass -p {} ssh a@b",
        "redis-cli -a {} ping",
    ),
    "login": ("curl -s -u deploy:{} https://x.example.org", "curl -udeploy:{} http://h", "curl --user='deploy:{}' h"),
    "docker login": ('{{"auths": {{"r.example.org": {{"auth": "{}"}}}}}}',),
    "authorization": ("Authorization: token {}", "-H 'authorization: ApiKey {}'"),
    "sql password": ("ALTER USER app WITH PASSWORD '{}'", "CREATE USER app IDENTIFIED BY '{}'"),
    "aws secret": (
        "aws configure set aws_secret_access_key {}",
        "AWS_SECRET_ACCESS_KEY={}",
        "aws_secret_access_key = {}",
        '"SecretAccessKey": "{}"',
    ),
    "private key": (
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "cat key\n-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\ndone",
    ),
    "address password": ("DATABASE_URL=postgres://app:{}@db.internal:5432/app", "redis://:{}@10.0.0.7:6379/0"),
    "env password": ("DB_PASSWORD={}", "export SMTP_PASSWORD='{}'", '  password: "{}"', "mysql --password {}"),
    "env key": ("API_KEY={}", "SESSION_SECRET={}", 'api_key="{}"'),
    "bearer": ("Authorization: Bearer {}", "curl -H 'authorization: bearer {}' https://x.example.org"),
    "basic": ("Authorization: Basic {}",),
    "azure": ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",),
    "json secret": ('{{"client_id": "web", "client_secret": "{}"}}',),
    "yaml token": ("  auth_token: {}", "github_token: '{}'"),
    "npmrc": ("//npm.example.org/:_authToken={}",),
}


def planted(random: Random, count: int) -> list[Planted]:
    """So many secrets, of all kinds in turn."""
    found = []
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        secret = KINDS[kind](random)
        text = random.choice(SURROUNDINGS.get(kind, BARE)).format(secret)
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
    messages = [message for (message,) in db.execute("SELECT message FROM messages")]
    texts = [d.text + d.call for each in read_documents(SqliteTx(db), messages).values() for d in each]
    db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'words', 'row')")
    texts += [word for (word,) in db.execute("SELECT term FROM temp.terms")]
    texts += [argument for (argument,) in db.execute("SELECT coalesce(argument, '') FROM outputs")]
    db.close()
    return "\n".join(texts)
