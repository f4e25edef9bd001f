"""A model API on loopback that speaks HTTP/2 only, over TLS, with a certificate of its own."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, StreamEnded

EVENTS = (b'event: message_start\ndata: {"type": "message_start"}\n\n', b'event: ping\ndata: {"type": "ping"}\n\n')


@dataclass
class Http2Provider:
    """Each reply is a stream of two events; the second one is sent when `resumed` is set. `bodies` are the requests by
    their streams."""

    folder: Path
    url: str = ""
    bodies: dict[int, bytes] = field(default_factory=dict)
    resumed: threading.Event = field(default_factory=threading.Event)

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        replies: set[asyncio.Task[None]] = set()
        writer.write(connection.data_to_send())
        while data := await reader.read(1 << 16):
            for event in connection.receive_data(data):
                self._take(connection, event)
                if isinstance(event, StreamEnded):
                    replies.add(asyncio.ensure_future(self._reply(connection, writer, event.stream_id)))
            writer.write(connection.data_to_send())
        await asyncio.gather(*replies)
        writer.close()

    def _take(self, connection: H2Connection, event: Event) -> None:
        if isinstance(event, DataReceived):
            self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    async def _reply(self, connection: H2Connection, writer: asyncio.StreamWriter, stream: int) -> None:
        connection.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream")])
        connection.send_data(stream, EVENTS[0])
        writer.write(connection.data_to_send())
        await asyncio.to_thread(self.resumed.wait, 30)
        connection.send_data(stream, EVENTS[1], end_stream=True)
        writer.write(connection.data_to_send())


@contextmanager
def http2_provider(folder: Path) -> Iterator[Http2Provider]:
    """The running provider. Its files are in `folder`."""
    provider = Http2Provider(folder)
    key = folder / "key.pem"
    _write_certificate(provider.certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(provider.certificate, key)
    context.set_alpn_protocols(["h2"])
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, ssl=context)
        provider.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        ready.set()
        async with server:
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield provider
    finally:
        provider.resumed.set()
        stop[0]()
        thread.join(30)


def _write_certificate(path: Path, key_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key_path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
