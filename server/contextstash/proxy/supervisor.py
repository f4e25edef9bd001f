"""Runs a client behind a proxy of its own: the proxy is started again if it dies, and ends with the client."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

SECRET_VARIABLE = "_CONTEXTSTASH_PROXY_SECRET"
"""The environment variable with which `contextstash run` tells its proxy the path that its client uses."""

UPSTREAM_VARIABLE = "_CONTEXTSTASH_PROXY_UPSTREAM"
"""The same for the model API's address: that of a gateway can hold a secret."""

MAX_RESTARTS = 5
"""How often a proxy is started again within RESTART_SECONDS. One that dies at once would do so for ever."""

RESTART_SECONDS = 60.0

LAST_SECONDS = 10.0
"""How long the proxy may take to record the last requests after its client has ended: nothing waits for it then but the
prompt. With eight busy processes on two cores the first request of a session took 3 s."""

STOP_SECONDS = LAST_SECONDS + 5.0
"""How long the proxy may take to end after its client."""

NOT_RECORDED = "is not recorded"
"""Stands in the proxy's log for each request or reply that could not be recorded: `run` looks for it."""

SECRET_BYTES = 18
"""Of the path that only the client knows: 24 characters, too many to be guessed."""

PASSED_ON = ("SIGTERM", "SIGHUP")
"""Signals that are sent to the client if they come to us alone. SIGINT and SIGQUIT come from the terminal, which sends
them to the client too."""


class Supervisor:
    """A proxy process that serves a socket which this process keeps open: while a new proxy starts, connections wait
    instead of being refused, and the port stays the same."""

    def __init__(self, command: Callable[[int], Sequence[str]], upstream: str, log: int | None = None) -> None:
        """`command` returns the proxy's command for the descriptor of the socket, `upstream` is the model API; `log` is
        the descriptor of the file for the proxy's standard error, since the terminal belongs to the client."""
        self._command = command
        self._upstream = upstream
        self._log = log
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.set_inheritable(True)
        self._secret = secrets.token_urlsafe(SECRET_BYTES)
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    @property
    def url(self) -> str:
        """The proxy's address for its one client: other users of this machine can reach the port, but not guess the
        path."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/{self._secret}"

    @property
    def pid(self) -> int | None:
        """The process id of the proxy that runs now."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the proxy, and watch it."""
        self._spawn()
        self._watching.start()

    def stop(self) -> None:
        """End the proxy after it has recorded what it has seen."""
        self._ending.set()
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self._listener.close()

    def _spawn(self) -> None:
        descriptor = self._listener.fileno()
        # A session of its own: Ctrl-C in the terminal is for the client.
        self._process = subprocess.Popen(
            self._command(descriptor),
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=self._log if self._log is not None else subprocess.DEVNULL,
            stderr=self._log if self._log is not None else subprocess.DEVNULL,
            start_new_session=True,
            # Not as arguments, which all users see.
            env={**os.environ, SECRET_VARIABLE: self._secret, UPSTREAM_VARIABLE: self._upstream},
        )

    def _watch(self) -> None:
        starts: list[float] = []
        while self._process is not None:
            self._process.wait()
            now = time.monotonic()
            starts = [start for start in starts if now - start < RESTART_SECONDS] + [now]
            if self._ending.is_set() or len(starts) > MAX_RESTARTS:
                return
            self._spawn()


def run_client(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a client in this terminal, and return its exit code: of one that a signal ended, 128 and its number, as
    shells do. Raises OSError if it cannot be started."""
    process = subprocess.Popen(list(command), env=dict(environment))
    former = {number: signal.signal(number, signal.SIG_IGN) for number in _signals("SIGINT", "SIGQUIT")}

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    former |= {number: signal.signal(number, pass_on) for number in _signals(*PASSED_ON)}
    try:
        code = process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _signals(*names: str) -> list[signal.Signals]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def proxy_command(descriptor: int, options: Sequence[str]) -> list[str]:
    """The command of a proxy that serves this socket."""
    # -P: otherwise `-m` imports from the current folder first, and a cloned repository could bring its own contextstash
    return [
        sys.executable, "-P", "-m", "contextstash", "proxy",
        "--descriptor", str(descriptor), *options,
    ]  # fmt: skip
