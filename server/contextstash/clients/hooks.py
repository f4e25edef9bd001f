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
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contextstash.base.files import is_below, read_regular, resolved
from contextstash.clients.client import client as client_of
from contextstash.clients.client import hooks_of, project_folder, project_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.clients.client import Client, Hooks
    from contextstash.clients.follow import IngestReport
    from contextstash.stash import Stash

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

ENDS = "SessionEnd"
"""The event of a client that is about to end. Claude Code waits 1.5 s for it, and then kills its hooks; reading a long
transcript on a busy machine takes longer."""

Result = TypeVar("Result")
Event = Mapping[str, Any]
HookPart = tuple[int, int]
"""The number of this hook among those that give a hand-off together, and how many these are."""


def run_hook(name: str, options: Sequence[str] = ()) -> int:
    """Handle one event of a client's hook; the exit code is always 0. The options are `--db DATABASE`, instead of the
    default one, and `--part NUMBER/OF`."""
    # Pydantic looks for plugins among all installed packages, which takes a tenth of a hook's time; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        given = dict(zip(options[::2], options[1::2], strict=True))
        if database := given.get("--db"):
            os.environ["CONTEXTSTASH_DB"] = database
        number, _, of = given.get("--part", "1/1").partition("/")
        client, data = client_of(name), sys.stdin.buffer.read()
        if len(data) > MAX_EVENT_BYTES:
            raise ValueError(f"An event of more than {MAX_EVENT_BYTES:,} bytes is not handled; its output stays.")
        event = json.loads(data)
        if not isinstance(event, dict) or (event.get("hook_event_name") == ENDS and _leaves_a_child()):
            return 0
        response = _response_to(client, event, (int(number), int(of)))
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


def _response_to(client: Client, event: Event, part: HookPart) -> dict[str, Any] | str | None:
    """The hook's response to an event, as JSON or as the plain text that the client wants; None if there is nothing to
    say. Does not catch any error."""
    name, hooks = event.get("hook_event_name"), hooks_of(client)
    compacted = name == "SessionStart" and event.get("source") == "compact"
    if compacted or (name == hooks.after_compaction and _marker(event).exists()):
        return _run(_hand_off(client, event, part))
    if part[0] > 1:
        return None  # the hook with the first part handles every other event
    if name == hooks.after_tool:
        return _after_tool(client, event)
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
        file = own_file(path, client)
        whole = "" if file is None else read_regular(file, most).decode("utf-8", "surrogateescape")
    except (OSError, BadInputError) as error:
        note(client.name, f"An output's file: {error}")
        return None
    if file is None or not whole.startswith(texts[0][:COMPARED_CHARACTERS]):
        return None
    return [(whole, True), *((text, False) for text in texts[1:])]


def _is_configured(client: Client) -> bool:
    """Whether there are any settings, which may limit outputs more than the default does."""
    from contextstash.configuration.database import has_settings

    return has_settings(os.environ, project_folder(os.environ))


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import asyncio

    return asyncio.run(work)


async def _read_transcripts(client: Client, event: Event) -> str | None:
    """Read the transcript to its end. Before a compaction, also note that a hand-off is awaited, if the client cannot
    be given one at the start of its new window. Returns what the model that writes the client's summary is told, if the
    client passes it on."""
    hooks, told = hooks_of(client), None
    compacts = event.get("hook_event_name") == hooks.before_compaction
    async with hook_stash(client) as stash:
        reports = await read_transcripts(client, stash, event.get("transcript_path"))
        session_id = session_of(reports, event.get("agent_id"))
        if hooks.instructs_summary and compacts and session_id is not None:
            told = await stash.summary_instructions(session_id)
    if hooks.after_compaction is not None and compacts and session_id is not None:
        _marker(event).parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # if the database is on a server
        _marker(event).touch(mode=0o600)
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
    _marker(event).unlink(missing_ok=True)
    if text is None:
        return None
    return {"hookSpecificOutput": {"hookEventName": event["hook_event_name"], "additionalContext": text}}


def _marker(event: Event) -> Path:
    """An empty file that exists as long as a session awaits the hand-off after a compaction."""
    import hashlib

    from contextstash.configuration.database import data_folder

    digest = hashlib.sha256(str(event.get("session_id")).encode()).hexdigest()[:16]
    return data_folder() / f"compacted-{digest}"


@asynccontextmanager
async def hook_stash(client: Client) -> AsyncIterator[Stash]:
    """The stash with the settings for this client. Remarks on a project's files go to the log."""
    from contextstash.configuration.database import HOOK_BUSY_SECONDS, open_database
    from contextstash.configuration.setting_layers import api_key_from, configuration
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
    from contextstash.clients.follow import NOT_RECORDED, ingest, recognize

    path = own_file(named, client) if isinstance(named, str) and named else None
    if path is None:
        return {}
    reader = recognize(path)
    files = [path, *(client.files.sub_agents(path) if client.files else [])]
    reports = {file: await ingest(stash, file, reader=reader, reduce=reduce) for file in files}
    if reports[path].deleted:
        note(client.name, NOT_RECORDED % (path.name, path))
    return reports


def session_of(reports: Mapping[Path, IngestReport], agent: object) -> str | None:
    """The session whose window a client means: that of the sub-agent with this id, if it names one. Claude Code names
    the transcript of the main agent then too (2.1.332)."""
    found = (report for file, report in reports.items() if not agent or file.stem == f"agent-{agent}")
    report = next(found, None)
    return None if report is None else report.session_id


def own_file(path: str, client: Client) -> Path | None:
    """The file at a path that a client passed, resolved, so that neither `..` nor a link leads out of its folder; None
    if it is missing (a new session has no transcript yet). Raises BadInputError if it is not a regular file below the
    folder in which the client keeps its transcripts."""
    found = resolved(Path(path).expanduser())
    own = client.files.folder(Path.home()) if client.files is not None else None
    if own is None or not is_below(found, own.expanduser()):
        raise BadInputError(f"Not read: {str(found)[:200]} is outside of {own}, where {client.name} keeps its files.")
    try:
        mode = found.stat().st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:  # a session in a client's database is named as if that were a folder
        mode = found.parent.stat().st_mode
    if not stat.S_ISREG(mode):
        raise BadInputError(f"Not read: {str(found)[:200]} is not a regular file.")
    return found


def note(client: str, line: str) -> None:
    """Write a line into the log, which only the owner can read, since it names files and errors. A failure is ignored,
    as it could be reported nowhere else."""
    with suppress(Exception):
        from datetime import UTC, datetime

        from contextstash.base.files import open_log
        from contextstash.configuration.database import data_folder
        from contextstash.safety.secret_masks import shown as masked

        path = data_folder() / LOG_NAME
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shown = "".join(character if character.isprintable() else " " for character in line)
        shown = masked(" ".join(shown.split()))[:MAX_LOG_LINE]
        descriptor = open_log(path)
        if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
            os.close(descriptor)
            path.replace(path.with_suffix(".log.1"))
            descriptor = open_log(path)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {client}: {shown}\n")
