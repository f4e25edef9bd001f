"""Handles a client's hook events: replaces large outputs after archiving them, reads transcripts, gives hand-offs.

The event comes as JSON on standard input. Whatever goes wrong, the exit code is 0 and standard output is empty, so that
the client continues as if there were no hook; a line in the log says what failed. Most events need nothing done, and
nothing heavy is imported for those. What differs between clients is in their `Hooks`; the event's other fields and the
response with `additionalContext` are the same for all of them.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contextstash.base.files import is_below, read_regular, resolved
from contextstash.base.json_values import lenient_value
from contextstash.clients.client import client as client_of
from contextstash.clients.client import hooks_of
from contextstash.clients.projects import project_folder, project_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.clients.client import Client, Hooks
    from contextstash.clients.follow import IngestReport
    from contextstash.stash import Stash

HOOKED = ("claude-code", "codex", "gemini")
"""The clients whose hooks are handled. Here, because a hook must start before anything of its client is imported."""

MIN_LIMIT = 4_000
"""Characters up to which an output is shown whole without a look at the settings: the smallest limit of any preset, the
4,000 bytes of `byte-budget`."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""The largest event that is parsed, in 0.2 s. The tools' output in a larger one stays with the client as it is."""

LOG_NAME = "hooks.log"

MAX_LOG_BYTES = 1_000_000
"""A larger log is renamed to `hooks.log.1`, which replaces the previous one."""

MAX_LOG_LINE = 1_000
"""Characters of a line. The longest lines are remarks on a project's files, which name what was ignored and the command
that accepts it."""

COMPARED_CHARACTERS = 1_000
"""If so many first characters of a file and of an output are equal, the file holds the whole output."""

OWN_SERVER = "contextstash"

GIVEN_SECONDS = 60
"""How long after we gave a client its window the hooks at the start of that window are left out. They follow at once;
of a window that the client did not take after all none must remain."""

ENDS = "SessionEnd"
"""The event of a client that is about to end. Claude Code waits 1.5 s for it, and then kills its hooks; reading a long
transcript on a busy machine takes longer."""

Result = TypeVar("Result")
Event = Mapping[str, Any]
HookPart = tuple[int, int]


def part_of(text: str) -> HookPart | None:
    """The two numbers of a text such as `2/3`; None if it is not the number of a part."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and len(text) <= 5):
        return None
    return (int(number), int(of)) if 1 <= int(number) <= int(of) else None


def run_hook(
    name: str,
    database: str | None = None,
    part: HookPart = (1, 1),
    read: Callable[[int], bytes] | None = None,
) -> int:
    """Handle one event of a client's hook, in this database or the default one; the exit code is always 0. `part` is
    the number of this hook among those that give a hand-off together, and how many these are."""
    if database is not None:
        os.environ["CONTEXTSTASH_DB"] = database
    # Pydantic looks for plugins among all installed packages, which takes a tenth of a hook's time; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        client = client_of(name)
        event = lenient_value(_bounded(read or sys.stdin.buffer.read))
        if not isinstance(event, dict) or (read is None and event.get("hook_event_name") == ENDS and _leaves_a_child()):
            return 0
        response = _response_to(client, event, part)
        if response is not None:
            sys.stdout.write(response if isinstance(response, str) else json.dumps(response))
            sys.stdout.flush()
    except BaseException as error:  # an error of contextstash must not stop the client
        note(name, f"{type(error).__name__}: {error}")
    return 0


def _leaves_a_child() -> bool:
    """Leave the event to a process that outlives the client; true in the one that may end now. Not on Windows."""
    if not hasattr(os, "fork"):
        return False
    if os.fork():
        return True
    os.setsid()  # the client may end all processes of its group
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # or it would wait for the ends of these
        os.dup2(nothing, stream)
    return False


def _bounded(read: Callable[[int], bytes]) -> bytes:
    """The event's bytes. One that is too large is read to its end, so that the client does not find a broken pipe."""
    data = read(MAX_EVENT_BYTES + 1)
    if len(data) <= MAX_EVENT_BYTES:
        return data
    while read(MAX_EVENT_BYTES):
        pass
    raise ValueError(f"An event of more than {MAX_EVENT_BYTES:,} bytes is not handled; its output stays as it is.")


def _response_to(client: Client, event: Event, part: HookPart) -> dict[str, Any] | str | None:
    """The hook's response to an event, as JSON or as the plain text that the client wants; None if there is nothing to
    say. Does not catch any error."""
    name, hooks = event.get("hook_event_name"), hooks_of(client)
    if name == "SessionStart" and event.get("source") == "compact":
        return None if _was_given(event, part[0]) else _run(_hand_off(client, event, part))
    if part[0] > 1:
        return None  # the hook with the first part handles every other event
    if name == hooks.after_tool:
        return _after_tool(client, event)
    if name == hooks.after_compaction and event.get("session_id") and _marker("compacted", event).exists():
        return _run(_hand_off(client, event, part))
    if name in hooks.read_to_its_end or _compacts(hooks, event):
        return _run(_read_transcripts(client, event))
    return None


def _compacts(hooks: Hooks, event: Event) -> bool:
    """Whether the client is about to compact the session."""
    is_sure = event.get("trigger") == "manual" or not hooks.only_manual_is_sure
    return event.get("hook_event_name") == hooks.before_compaction and is_sure


def _after_tool(client: Client, event: Event) -> dict[str, Any] | None:
    tool, response, hooks = event.get("tool_name"), event.get("tool_response"), hooks_of(client)
    # A page read from the archive is not archived again.
    if not isinstance(tool, str) or (tool.startswith(hooks.mcp_prefix) and OWN_SERVER in tool):
        return None
    if hooks.script_ids and str(event.get("tool_use_id")).startswith(hooks.script_ids):
        return None
    texts = {path: text for path in hooks.text_paths(tool, response) if (text := _text_at(response, path))}
    longest = max(map(len, texts.values()), default=0)
    if longest <= MIN_LIMIT or (longest <= hooks.limit(tool) and not _is_configured(client)):
        return None
    from contextstash.clients.output_cut import MAX_ARCHIVED_CHARACTERS, cut_outputs

    whole = _whole_texts(client, response, list(texts.values()), MAX_ARCHIVED_CHARACTERS)
    if whole is None or sum(len(text) for text, _ in whole) > MAX_ARCHIVED_CHARACTERS:
        note(client.name, f"An output of '{tool}' is too long to be archived here, or its file is not readable.")
        return None
    shown = _run(cut_outputs(client, event, tool, whole, partial(note, client.name)))
    if shown is None:
        return None
    for path, text in zip(texts, shown, strict=True):
        response = _with_text(response, path, text)
    return hooks.replacement(response, shown)


def _text_at(response: Any, path: Sequence[str | int]) -> str | None:
    """The text at a path in a response; None if there is none."""
    for step in path:
        if isinstance(step, int):
            response = response[step] if isinstance(response, list) else None
        else:
            response = response.get(step) if isinstance(response, dict) else None
    return response if isinstance(response, str) else None


def _with_text(response: Any, path: Sequence[str | int], text: str) -> Any:
    """A copy of the response with another text at this path, and everything else unchanged."""
    if not path:
        return text
    changed: Any = list(response) if isinstance(response, list) else dict(response)
    changed[path[0]] = _with_text(changed[path[0]], path[1:], text)
    return changed


def _whole_texts(client: Client, response: Any, texts: Sequence[str], most: int) -> list[tuple[str, bool]] | None:
    """The texts of a response, and whether the client shows only a preview of each. If it keeps the whole of the
    first one in a file, because the response holds only its beginning, the text is read from there, of at most so many
    bytes; None if it cannot be read: what the client shows then names the file, and must stay."""
    hooks = hooks_of(client)
    path = hooks.persisted_output(response)
    if path is None:
        return [(text, False) for text in texts]
    try:
        file = own_file(path, client.name, own_folders(client))
        whole = "" if file is None else read_regular(file, most).decode("utf-8", "surrogateescape")
    except (OSError, BadInputError) as error:
        note(client.name, f"An output's file: {error}")
        return None
    if file is None or not whole.startswith(texts[0][:COMPARED_CHARACTERS]):
        return None
    return [(whole, True), *((text, False) for text in texts[1:])]


def _is_configured(client: Client) -> bool:
    """Whether there are any settings, which may limit outputs more than the default does."""
    from contextstash.configuration.locations import has_settings

    return has_settings(os.environ, project_folder(os.environ), client.name)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import asyncio

    return asyncio.run(work)


async def _read_transcripts(client: Client, event: Event) -> str | None:
    """Read the transcript to its end. Before a compaction, also note that a hand-off is awaited, if the client cannot
    be given one at the start of its new window. Returns what the model that writes the client's summary is told, if the
    client passes it on."""
    name, hooks, told = event.get("hook_event_name"), hooks_of(client), None
    async with hook_stash(client) as stash:
        reports = await read_transcripts(client, stash, event.get("transcript_path"))
        session_id = session_of(reports, event.get("agent_id"))
        if hooks.instructs_summary and name == hooks.before_compaction and session_id is not None:
            told = await stash.summary_instructions(session_id)
    if hooks.after_compaction is not None and name == hooks.before_compaction and session_id is not None:
        _mark("compacted", event)
    return told


async def _hand_off(client: Client, event: Event, given: HookPart) -> dict[str, Any] | None:
    """The `given` part of the hand-off for the session's new window, once."""
    from contextstash.request.handoff import Part

    hooks = hooks_of(client)
    async with hook_stash(client) as stash:
        reports = await read_transcripts(client, stash, event.get("transcript_path"))
        session_id = session_of(reports, event.get("agent_id"))
        part = Part(*given, hooks.context_limit)
        text = None if session_id is None else await stash.hand_off(session_id, part=part)
    if event.get("hook_event_name") == hooks.after_compaction:
        _marker("compacted", event).unlink(missing_ok=True)
    if text is None:
        return None
    return {"hookSpecificOutput": {"hookEventName": event["hook_event_name"], "additionalContext": text}}


def _marker(kind: str, event: Event) -> Path:
    """An empty file of a session: `compacted` exists as long as it awaits its hand-off, `given` and a hook's number
    until that hook finds its new window made by us."""
    import hashlib

    from contextstash.configuration.locations import data_folder

    digest = hashlib.sha256(str(event.get("session_id")).encode()).hexdigest()[:16]
    return data_folder() / f"{kind}-{digest}"


def mark_given(client: Client, session_id: str) -> None:
    """Let the hooks at the start of the session's window end at once: the window is ours, and each of them would load
    as much as its making did."""
    for number in range(1, hooks_of(client).parts + 1):
        _mark(f"given{number}", {"session_id": session_id})


def _was_given(event: Event, number: int) -> bool:
    """Whether this window is ours; each hook asks once."""
    import time

    marker = _marker(f"given{number}", event)
    try:
        written = marker.stat().st_mtime
        marker.unlink()
    except FileNotFoundError:
        return False
    return time.time() - written < GIVEN_SECONDS


def _mark(kind: str, event: Event) -> None:
    marker = _marker(kind, event)
    marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # a database on a server needs no folder here
    marker.touch(mode=0o600)


@asynccontextmanager
async def hook_stash(client: Client) -> AsyncIterator[Stash]:
    """The stash with the settings for this client. Remarks on a project's files go to the log."""
    from contextstash.configuration.api_key import api_key_from
    from contextstash.configuration.database import HOOK_BUSY_SECONDS, open_database
    from contextstash.configuration.setting_layers import configuration
    from contextstash.stash import Stash
    from contextstash.window.settings import resolve_settings

    remark = partial(note, client.name)
    found = configuration(project=project_folder(os.environ), environment=os.environ, on_remark=remark)
    resolve_settings(found.settings_layer(client.name))
    async with Stash(
        await open_database(busy_seconds=HOOK_BUSY_SECONDS),
        settings=found.settings_layer,
        api_key=api_key_from(os.environ),
        consent=found.may_call_model,
        host_windows={client.name: client.used_window} if client.used_window else {},
        project_of=project_of,
    ) as stash:
        yield stash


async def read_transcripts(
    client: Client, stash: Stash, named: object, *, reduce: bool | None = True
) -> dict[Path, IngestReport]:
    """Record what is new in the transcript that the client named, and in those of its sub-agents. Returns what was done
    by file, its own first. Raises BadInputError if that file is not one of the client's own."""
    from contextstash.clients.follow import NOT_RECORDED, ingest_session

    if not isinstance(named, str) or not named:
        return {}
    path = own_file(named, client.name, own_folders(client))
    if path is None:
        return {}
    reports = await ingest_session(stash, client.files, path, reduce=reduce)
    if reports[path].deleted:
        note(client.name, NOT_RECORDED % (path.name, path), once=True)
    return reports


def own_folders(client: Client) -> Sequence[Path]:
    """The folders in which a client keeps the files that it names to us."""
    if client.hooks is not None:
        return client.hooks.own_folders(Path.home())
    folder = client.files.folder(Path.home()) if client.files is not None else None
    return [] if folder is None else [folder]


def session_of(reports: Mapping[Path, IngestReport], agent: object) -> str | None:
    """The session whose window a client means: that of the sub-agent with this id, if it names one. Claude Code names
    the transcript of the main agent then too (2.1.332)."""
    found = (report for file, report in reports.items() if not agent or file.stem == f"agent-{agent}")
    report = next(found, None)
    return None if report is None else report.session_id


def own_file(path: str, client: str, folders: Sequence[Path]) -> Path | None:
    """The file at a path that a client passed, resolved, so that neither `..` nor a link leads out of its folders; None
    if it is missing (a new session has no transcript yet). Raises BadInputError if it is not a regular file below one
    of the client's own folders."""
    found = resolved(Path(path).expanduser())
    own = [folder.expanduser() for folder in folders]
    if not any(is_below(found, folder) for folder in own):
        kept = " or ".join(map(str, own))
        raise BadInputError(f"Not read: {str(found)[:200]} is outside of {kept}, where {client} keeps its files.")
    try:
        mode = found.stat().st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:  # a session in a client's database is named as if that were a folder
        mode = found.parent.stat().st_mode
    if not stat.S_ISREG(mode):
        raise BadInputError(f"Not read: {str(found)[:200]} is not a regular file.")
    return found


def note(client: str, line: str, *, once: bool = False) -> None:
    """Write a line into the log, which only the owner can read, since it names files and errors; with `once` only if
    the log does not hold it yet. A failure is ignored, as it could be reported nowhere else."""
    with suppress(Exception):
        from datetime import UTC, datetime

        from contextstash.base.files import open_log
        from contextstash.configuration.locations import data_folder
        from contextstash.safety.secret_masks import shown as masked

        path = data_folder() / LOG_NAME
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shown = "".join(character if character.isprintable() else " " for character in line)
        shown = masked(" ".join(shown.split()))[:MAX_LOG_LINE]
        if once and path.is_file() and shown in path.read_text("utf-8", "replace"):
            return
        descriptor = open_log(path)
        if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
            os.close(descriptor)
            path.replace(path.with_suffix(".log.1"))
            descriptor = open_log(path)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {client}: {shown}\n")
