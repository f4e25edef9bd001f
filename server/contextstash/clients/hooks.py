"""What a client runs of contextstash: its hooks, at each event, and its plugin, which asks for the window.

**A hook's event** is JSON on standard input. Large outputs are replaced after they are archived, transcripts are read,
hand-offs are given. Whatever goes wrong, the exit code is 0 and standard output is empty, so that the client continues
as if there were no hook; a line in the log says what failed. Most events need nothing done, and nothing heavy is
imported for those. What differs between clients is in their `Hooks`; the event's other fields and the response with
`additionalContext` are the same for all of them.

**A plugin's request** (`contextstash window CLIENT`) is a JSON object too, as plugins/README.md describes it; if it
fails, the exit code is 1, a line on standard error says why, and the client goes on as if there were no plugin.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contextstash.base.files import is_below, read_regular, resolved
from contextstash.clients.client import client as client_of
from contextstash.clients.client import project_folder, project_of
from contextstash_storage.errors import BadInputError, ContextstashError, SessionNotFoundError

if TYPE_CHECKING:
    from contextstash.clients.client import Client, Hooks
    from contextstash.outputs.limits import OutputLimits
    from contextstash.stash import Stash

MIN_LIMIT = 4_000
"""Characters up to which an output is shown whole without a look at the settings: the smallest limit of any preset, the
4,000 bytes of `byte-budget`."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""The largest event that is parsed, in 0.2 s. The tools' output in a larger one stays with the client as it is."""

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""The largest request of a plugin that is read: ten windows of a million tokens."""

MAX_ARCHIVED_CHARACTERS = 8_000_000
"""Longest output, all texts of a response together, that is archived while the client waits: some 1.5 s on an idle
machine, most of it for the search index. A longer one stays with the client as it is. Measured: 32 million characters
took 26 s with an analysis of their lines."""

MAX_ANALYSED_CHARACTERS = 2_000_000
"""Above this an output is shown as a preview, without an analysis of its lines. That takes 0.1 s."""

NOTICE_CHARACTERS = 200
"""Room for the notice of a cut: some 100 characters, and as many to spare."""

COMPARED_CHARACTERS = 1_000
"""If so many first characters of a file and of an output are equal, the file holds the whole output."""

MAX_LOG_BYTES = 1_000_000
"""A larger log is begun again."""

PART_SECONDS = 0.4
"""How much later each further part of a hand-off comes: Claude Code shows what its hooks add in the order in which they
end, and starts all of them at once. Without it 3 of 11 came in another order."""

MAX_LOG_LINE = 1_000
"""Characters of a line. The longest lines are remarks on a project's files, which name what was ignored and the command
that accepts it."""

STARTS, ENDS = "SessionStart", "SessionEnd"
"""All clients have these events. At the second one the client is about to end: Claude Code waits 1.5 s for it, and then
kills its hooks; reading a long transcript on a busy machine takes longer."""

Result = TypeVar("Result")
Event = Mapping[str, Any]
HookPart = tuple[int, int]
"""The number of this hook among those that give a hand-off together, and how many these are."""


def run_hook(name: str, options: Sequence[str] = ()) -> int:
    """Handle one event of a client's hook; the exit code is always 0. The options are `--db DATABASE`, instead of the
    default one, and `--part NUMBER/OF`."""
    try:
        number, _, of = _given(options).get("--part", "1/1").partition("/")
        client, data = client_of(name), sys.stdin.buffer.read()
        if len(data) > MAX_EVENT_BYTES:
            raise ValueError(f"An event of more than {MAX_EVENT_BYTES:,} bytes is not handled; its output stays.")
        event = json.loads(data)
        if not isinstance(event, dict) or (event.get("hook_event_name") == ENDS and _leaves_a_child()):
            return 0
        response = _response_to(client, event, (int(number), int(of)))
        if response is not None:
            _write(response)
    except BaseException as error:  # an error of contextstash must not stop the client
        note(name, f"{type(error).__name__}: {error}")
    return 0


def _given(options: Sequence[str]) -> dict[str, str]:
    """The options by name; a database that they name is used by this process."""
    # Pydantic looks for plugins among all installed packages, which takes a tenth of a hook's time; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    given = dict(zip(options[::2], options[1::2], strict=True))
    if database := given.get("--db"):
        os.environ["CONTEXTSTASH_DB"] = database
    return given


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


def _write(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()


def _response_to(client: Client, event: Event, part: HookPart) -> dict[str, Any] | None:
    """The hook's response to an event, as JSON or as the plain text that the client wants; None if there is nothing to
    say. Does not catch any error."""
    name, hooks = event.get("hook_event_name"), client.hooks
    assert hooks is not None, f"{client.name} has no hooks"
    # The hook with the first part handles every other event than the start of a compacted session.
    if name == hooks.after_tool and part[0] == 1:
        return _after_tool(client, hooks, event)
    handled = event.get("source") == "compact" if name == STARTS else name in hooks.events and part[0] == 1
    return _run(_read_to_the_end(client, hooks, event, part)) if handled else None


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import asyncio

    return asyncio.run(work)


# Large outputs.


def _after_tool(client: Client, hooks: Hooks, event: Event) -> dict[str, Any] | None:
    tool, response = event.get("tool_name"), event.get("tool_response")
    # A page read from the archive is not archived again.
    if not isinstance(tool, str) or (tool.startswith(hooks.mcp_prefix) and "contextstash" in tool):
        return None
    if hooks.script_ids and str(event.get("tool_use_id")).startswith(hooks.script_ids):
        return None
    texts = {path: text for path in hooks.text_paths(tool, response) if (text := _text_at(response, path))}
    longest = max(map(len, texts.values()), default=0)
    if longest <= MIN_LIMIT or (longest <= hooks.limit(tool) and not _has_settings()):
        return None
    whole = _whole_texts(client, hooks, response, list(texts.values()))
    if whole is None or sum(len(text) for text, _ in whole) > MAX_ARCHIVED_CHARACTERS:
        note(client.name, f"An output of '{tool}' is too long to be archived here, or its file is not readable.")
        return None
    shown = _run(_cut(client, hooks, event, whole))
    if shown is None:
        return None
    changed: Any = {"response": response}  # the event's own, which nothing else needs
    for path, text in zip(texts, shown, strict=True):
        *above, last = ("response", *path)
        reduce(getitem, above, changed)[last] = text
    return hooks.replacement(changed["response"], shown)


def _text_at(response: Any, path: Sequence[Any]) -> str | None:
    """The text at a path in a response; None if there is none."""
    try:
        found = reduce(getitem, path, response)
    except (LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _whole_texts(client: Client, hooks: Hooks, response: Any, texts: Sequence[str]) -> list[tuple[str, bool]] | None:
    """The texts of a response, and whether the client shows only a preview of each. If it keeps the whole of the
    first one in a file, because the response holds only its beginning, the text is read from there; None if it cannot
    be read: what the client shows then names the file, and must stay."""
    path = response.get(hooks.persisted_path) if isinstance(response, dict) else None
    if not isinstance(path, str):
        return [(text, False) for text in texts]
    try:
        file = own_file(path, client)
        whole = "" if file is None else read_regular(file, MAX_ARCHIVED_CHARACTERS).decode("utf-8", "surrogateescape")
    except (OSError, BadInputError) as error:
        note(client.name, f"An output's file: {error}")
        return None
    if file is None or not whole.startswith(texts[0][:COMPARED_CHARACTERS]):
        return None
    return [(whole, True), *((text, False) for text in texts[1:])]


def _has_settings() -> bool:
    """Whether there are any settings, which may limit outputs more than the default does."""
    from contextstash.configuration.database import has_settings

    return has_settings(os.environ, project_folder())


async def _cut(client: Client, hooks: Hooks, event: Event, texts: Sequence[tuple[str, bool]]) -> list[str] | None:
    """Archive each text that is over its limit, by the settings of the client's session. Returns what is shown, None if
    none is over it, or the session was deleted; of each text it is given whether the client shows only a preview.

    The client waits for this after every long output. So it opens only the store, and imports only what a cut needs;
    the archived text is counted by its bytes, because a tokenizer's vocabulary takes longer to load than all the rest.
    """
    from contextstash.configuration.database import HOOK_BUSY_SECONDS, open_database
    from contextstash.messages.base import main_argument
    from contextstash.outputs.limits import OutputLimits, sets_output_limits
    from contextstash.record.output_archive import OutputArchive, tokens_of_bytes
    from contextstash.window.settings import resolve_settings, session_layer

    layer: Mapping[str, Any] = {}
    if _has_settings():  # most users have none
        from contextstash.configuration.setting_layers import configuration

        project, remark = project_folder(), partial(note, client.name)
        found = configuration(project=project, environment=os.environ, on_remark=remark)
        layer = found.settings_layer(client.name)
    tool, argument = event["tool_name"], main_argument(event.get("tool_input")) or ""
    named, own = event.get("session_id"), {}
    session_id = named if isinstance(named, str) and named else None
    async with await open_database(busy_seconds=HOOK_BUSY_SECONDS, is_brief=True) as store:
        if session_id is not None:
            try:
                own = session_layer((await store.get_session(session_id)).settings)
            except SessionNotFoundError:
                if any(each.is_continued_by(session_id, ()) for each in await store.deleted_sessions()):
                    return None
        archive = OutputArchive(store, resolve_settings(layer, own), tokens_of_bytes, session_id)
        limits = OutputLimits.of(archive.settings, archive.settings.window)
        if not sets_output_limits(layer):
            limits = limits.merged({"tokens": None, "chars": hooks.limit(tool)})
        limited = []
        for text, is_preview in texts:
            given = _limits(hooks, tool, text, limits, is_preview=is_preview)
            limited.append(await archive.limited(text, limits.merged(given), tool=tool, argument=argument))
    return [each.text for each in limited] if any(each.handle for each in limited) else None


def _limits(hooks: Hooks, tool: str, text: str, limits: OutputLimits, *, is_preview: bool) -> dict[str, Any]:
    """What differs from the `limits` for one text: characters in place of tokens, fewer if the client itself shows only
    a preview. A text cut at its end ends with a whole line, because the model may edit what it sees."""
    from contextstash.outputs.limits import CHARACTERS_PER_TOKEN

    most = [limits.chars, limits.tokens and limits.tokens * CHARACTERS_PER_TOKEN]
    given: dict[str, Any] = {"tokens": None, "chars": min(filter(None, most), default=None)}
    given["spill_chars"] = limits.spill_chars or MAX_ANALYSED_CHARACTERS
    if is_preview and hooks.preview_limit is not None:
        given |= {"chars": hooks.preview_limit, "bytes": hooks.preview_limit}
    if tool in hooks.cut_at_end:
        given["cut"] = "head"
        if given["chars"] is not None and len(text) > given["chars"]:
            whole_lines = text.count("\n", 0, max(0, given["chars"] - NOTICE_CHARACTERS))
            given["lines"] = min(limits.lines or whole_lines, whole_lines) or None
    return given


# Transcripts and hand-offs.


async def _read_to_the_end(client: Client, hooks: Hooks, event: Event, given: HookPart) -> dict[str, Any] | None:
    """Read the transcript. Returns the `given` part of the hand-off for the session's new window, once."""
    import asyncio

    from contextstash.request.handoff import Part

    name = event["hook_event_name"]
    async with await _opened(client) as stash:
        session_id, _ = await read_transcripts(client, stash, event.get("transcript_path"), event.get("agent_id"))
        if session_id is None or name != STARTS:
            return None
        text = await stash.hand_off(session_id, part=Part(*given, hooks.context_limit))
    if text is None:
        return None
    await asyncio.sleep(PART_SECONDS * (given[0] - 1))
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}


async def _opened(client: Client) -> Stash:
    """The stash with the settings for this client. Remarks on a project's files go to the log."""
    from contextstash.configuration.database import HOOK_BUSY_SECONDS, open_database
    from contextstash.configuration.setting_layers import api_key_from, configuration
    from contextstash.stash import Stash
    from contextstash.window.settings import resolve_settings

    remark = partial(note, client.name)
    found = configuration(project=project_folder(), environment=os.environ, on_remark=remark)
    resolve_settings(found.settings_layer(client.name))
    return Stash(
        await open_database(busy_seconds=HOOK_BUSY_SECONDS),
        settings=found.settings_layer,
        api_key=api_key_from(os.environ),
        consent=found.may_call_model,
        host_windows={client.name: client.used_window} if client.used_window else {},
        project_of=project_of,
    )


async def read_transcripts(
    client: Client, stash: Stash, named: object, agent: object, *, reduce: bool = True
) -> tuple[str | None, int]:
    """Record what is new in the transcript that the client named, and in those of its sub-agents. Returns the session
    whose window the client means, and how many messages were recorded: if it names a sub-agent, that is the session of
    the agent with this id; Claude Code names the transcript of the main agent then too (2.1.332). Raises BadInputError
    if that file is not one of the client's own."""
    from contextstash.clients.follow import NOT_RECORDED, ingest

    path = own_file(named, client) if isinstance(named, str) and named else None
    if path is None or client.reader is None:
        return None, 0
    reader, session_id, recorded = client.reader(), None, 0
    meant = f"agent-{agent}" if agent else path.stem
    for file in (path, *(client.files.sub_agents(path) if client.files else ())):
        report = await ingest(stash, file, reader=reader, reduce=reduce)
        recorded += report.recorded
        if file == path and report.deleted:
            note(client.name, NOT_RECORDED % (path.name, path))
        if file.stem == meant:
            session_id = report.session_id
    return session_id, recorded


def own_file(path: str, client: Client) -> Path | None:
    """The file at a path that a client passed, resolved, so that neither `..` nor a link leads out of its folder; None
    if it is missing (a new session has no transcript yet). Raises BadInputError if it is not a regular file below the
    folder in which the client keeps its transcripts."""
    found = resolved(Path(path).expanduser())
    own = client.files.folder() if client.files is not None else None
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


# The window that a plugin asks for.


def run_window(name: str, options: Sequence[str] = ()) -> int:
    """Handle one request of a client's plugin; returns the exit code. The options are `--db DATABASE`."""
    try:
        _given(options)
        asked = None
        with suppress(ValueError, RecursionError):
            asked = json.loads(sys.stdin.buffer.read(MAX_REQUEST_BYTES))
        if not isinstance(asked, dict):
            raise BadInputError("Expected a JSON object on standard input; see contextstash window --help.")
        _run(_answer(client_of(name), asked))
    except Exception as error:  # whatever fails, the client goes on without us
        note(name, f"{type(error).__name__}: {error}")
        expected = isinstance(error, ContextstashError | OSError)
        said = str(error) if expected else "The request could not be answered; hooks.log says why."
        sys.stderr.write(f"Error: {' '.join(said.split())}\n")
        return 1
    return 0


async def _answer(client: Client, asked: Mapping[str, Any]) -> None:
    """Write the answer. Only what the plugin has taken counts as given: if it is late, the plugin has ended this
    process, and the client compacts itself."""
    from contextstash.request.handoff import ClientCall, ClientMessage, ClientResult

    work, given, tokens = asked.get("do"), asked.get("messages") or [], asked.get("tokens")
    if work not in ("compact", "view", "record"):
        raise BadInputError("'do' is one of compact, view, record.")
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise BadInputError("'messages' is a list of objects.")
    messages = []
    for each in given:
        calls = tuple(ClientCall(**call) for call in each.get("calls") or ())
        results = tuple(ClientResult(**result) for result in each.get("results") or ())
        messages.append(ClientMessage(**{**each, "calls": calls, "results": results}))
    async with await _opened(client) as stash:
        told, agent = asked.get("transcript"), asked.get("agent")
        session_id, recorded = await read_transcripts(client, stash, told, agent, reduce=False)
        session_id = session_id or asked.get("session")
        if not isinstance(session_id, str) or not session_id:
            raise BadInputError("The session is not known: pass 'session', or its 'transcript'.")
        if work == "record":
            _write({"session_id": session_id, "recorded": recorded})
            return
        if work == "view":
            window = await stash.read_client_window(session_id, messages)
        else:
            more = {"tokens": tokens} if isinstance(tokens, int) and tokens > 0 else {}
            window = await stash.compact_client_window(session_id, messages, **more)
        before, after = (f"{round(size / 1000):,}k" for size in (window.tokens_before, window.tokens_after))
        left = "1 message" if window.left == 1 else f"{window.left} messages"
        line = f"{before} → {after} tokens, {left} archived, all searchable."
        _write({**window.model_dump(), "line": line})
        if work == "compact":
            await stash.note_given_window(session_id, window)


def note(client: str, line: str) -> None:
    """Write a line into the log, which only the owner can read, since it names files and errors. A failure is ignored,
    as it could be reported nowhere else."""
    with suppress(Exception):
        from contextstash.base.files import open_log
        from contextstash.base.process import printable
        from contextstash.configuration.database import data_folder

        with open_log(data_folder() / "hooks.log") as file:
            if file.tell() > MAX_LOG_BYTES:
                file.truncate(0)
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            file.write(f"{at} {client}: {printable(line)[:MAX_LOG_LINE]}\n")
