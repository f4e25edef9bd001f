"""`contextstash token`: a secret is printed once, and a revoked one is gone."""

from __future__ import annotations

from tests.support.command_line import CommandLine, failure_of


def test_a_token_is_printed_once_listed_without_its_secret_and_revoked(contextstash: CommandLine) -> None:
    made = contextstash.run("token", "create", "laptop", "--owner", "alice", "--scope", "admin", "--scope", "read")
    assert made.returncode == 0
    secret = made.stdout.strip()
    assert secret.startswith("cst_")
    assert secret not in made.stderr
    assert "the sessions of alice: read, admin" in made.stderr
    [listed] = contextstash.json("token", "list")["tokens"]
    assert (listed["name"], listed["owner"], listed["scopes"]) == ("laptop", "alice", ["read", "admin"])
    assert secret not in contextstash.run("token", "list").stdout
    assert secret.encode() not in contextstash.database.read_bytes()
    assert contextstash.run("token", "revoke", "laptop").stdout == "Revoked laptop.\n"
    assert contextstash.json("token", "list") == {"tokens": []}


def test_a_token_can_expire_and_belongs_to_its_name_by_default(contextstash: CommandLine) -> None:
    made = contextstash.json("token", "create", "bob", "--days", "30")
    assert (made["owner"], made["scopes"], "expires_at" in made) == ("bob", ["read", "write"], True)


def test_mistakes_are_named(contextstash: CommandLine) -> None:
    assert contextstash.run("token", "create", "bob").returncode == 0
    assert "There is a token bob already" in failure_of(contextstash.run("token", "create", "bob"))
    assert "There is no token eve" in failure_of(contextstash.run("token", "revoke", "eve"))
