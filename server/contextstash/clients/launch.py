"""Starts clients: behind the proxy, with a window of another size, or with a first message; nothing else is changed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from contextstash.base.files import read_regular
from contextstash.clients.client import (
    ANTHROPIC,
    OPENAI,
    Client,
    Launch,
    Machine,
    Proxied,
    base_of,
    clients,
    without_version,
)

SDK_VARIABLES = {"ANTHROPIC_BASE_URL": "", "OPENAI_BASE_URL": "/v1"}
"""The variables of the providers' SDKs, and what follows the address in them."""

OF_PROVIDERS = {ANTHROPIC: ("ANTHROPIC_BASE_URL",), OPENAI: ("OPENAI_BASE_URL",)}
"""The variables that a program gets whose requests go to one of these. The program may use both providers: with both
variables set, the key and the messages for the one would go to the other."""


def _other(upstream: str) -> Client:
    """Any other program, whose model API is the one at this address; an address of neither provider gets both."""
    names = OF_PROVIDERS.get(without_version(upstream), tuple(SDK_VARIABLES))

    def launch(url: str, command: Sequence[str], _: Mapping[str, str]) -> Launch:
        return Launch(tuple(command), {name: url + SDK_VARIABLES[name] for name in names})

    return Client("", proxied=Proxied(base_of("ANTHROPIC_BASE_URL", ANTHROPIC), launch))


def launched_client(program: str, upstream: str | None = None) -> Client:
    """The client of a program, by its name or path; any other program has no name. `upstream` is the model API, if the
    user named one."""
    name = Path(program).name.removesuffix(".exe")
    known = next((each for each in clients() if name in each.programs and each.proxied is not None), None)
    return known or _other(upstream or ANTHROPIC)


def is_configured(client: Client, machine: Machine) -> bool:
    """Whether our server is configured in the client, by its files. True for unknown clients."""
    if client.entry is None or (client.bundle is not None and client.bundle.is_enabled(machine)):
        return True
    return _names_us(client.entry.file(machine))


def _names_us(path: Path) -> bool:
    try:
        return b"contextstash" in read_regular(path)
    except OSError:
        return False


CONTINUED = ("claude-code", "codex", "gemini")
"""The clients that can be started with a first message and stay interactive. Here, because the command
line's help names them before any client is imported. Sources: the clients' own --help."""

MAX_ARGUMENT_BYTES = 120_000
"""Of one argument of a program: Linux takes 131,072."""


def first_message(hand_off: str, session_id: str, agent: str | None) -> str:
    """The first message for the client: the hand-off, and how to read the rest of the session, of this agent."""
    return (
        f"{hand_off}\n\n"
        f"This continues session {session_id} of {agent or 'another program'}; nothing of it is in your own history."
        " The tools of contextstash may connect only after your first reply has begun. With them,"
        f' search_history with session_id "{session_id}" finds anything that was said or done in it,'
        " and get_archived_output returns an output by its handle. Say in two sentences where the work stands, and go"
        " on with what is open."
    )


PASSED_ON = ("SIGTERM", "SIGHUP")
"""Signals that are sent to the client if they come to us alone. SIGINT and SIGQUIT come from the terminal, which sends
them to the client too."""


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


def ignore_signals() -> None:
    """From now on no signal ends this process, which records what its client did last."""
    for number in _signals("SIGINT", "SIGQUIT", *PASSED_ON):
        signal.signal(number, signal.SIG_IGN)


def _signals(*names: str) -> list[signal.Signals]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
