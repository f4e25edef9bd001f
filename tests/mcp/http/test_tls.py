"""A server that speaks https itself, with the files of a certificate."""

from __future__ import annotations

import ipaddress
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.command_line import CommandLine, failure_of
from tests.support.servers import http_command, http_server, local_token

PUBLIC = "https://stash.example/mcp"


def certificate(folder: Path, name: str = "server", password: bytes | None = None) -> tuple[Path, Path]:
    """A self-signed certificate for this machine, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stash.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kept = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    pkcs8 = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, kept))
    return files


async def test_a_client_that_knows_the_certificate_works_over_https(tmp_path: Path) -> None:
    database = tmp_path / "stash.db"
    files, others = certificate(tmp_path), certificate(tmp_path, "other")
    options = {"public_url": PUBLIC, "tls_certificate": str(files[0]), "tls_key": str(files[1])}
    with http_server(database, **options) as address:
        assert address.startswith("https://127.0.0.1:")
        headers = {"authorization": f"Bearer {local_token(database)}"}
        context = ssl.create_default_context(cafile=str(files[0]))
        async with (
            httpx2.AsyncClient(headers=headers, verify=context, timeout=60) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            assert len((await client.list_tools()).tools) > 5
            refused = await http.post(address, content=b"{}", headers={"authorization": "Bearer wrong"})
            assert refused.status_code == 401
        stranger = ssl.create_default_context(cafile=str(others[0]))
        async with httpx2.AsyncClient(verify=stranger, timeout=60) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(address)
            with pytest.raises(httpx2.HTTPError):
                await http.get(address.replace("https://", "http://"))
        old = ssl.create_default_context(cafile=str(files[0]))
        with pytest.warns(DeprecationWarning, match="deprecated"):
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        async with httpx2.AsyncClient(verify=old, timeout=60) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(address)


@pytest.mark.parametrize("fault", ["missing", "another key", "not a certificate", "a key with a password"])
def test_files_that_do_not_fit_are_refused_before_anything_is_served(tmp_path: Path, fault: str) -> None:
    [own, key], [_, other] = certificate(tmp_path), certificate(tmp_path, "other")
    if fault == "missing":
        key.unlink()
    elif fault == "another key":
        key = other
    elif fault == "not a certificate":
        own.write_text("no certificate")
    else:
        own, key = certificate(tmp_path, "locked", b"password")
    options: dict[str, Any] = {"public_url": PUBLIC, "tls_certificate": str(own), "tls_key": str(key)}
    command = http_command(tmp_path / "stash.db", **options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode != 0
    assert f"The certificate {own} and the key {key} cannot be used together" in done.stderr
    assert "serves" not in done.stderr


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--tls-certificate", "a.pem"], "pass --tls-certificate and --tls-key"),
        (["--tls-certificate", "a.pem", "--tls-key", "a.key"], "pass --public-url"),
    ],
)
def test_options_that_belong_together_are_named(line: CommandLine, options: list[str], advice: str) -> None:
    assert advice in failure_of(line.run("serve", "--http", "127.0.0.1:0", *options))


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)
