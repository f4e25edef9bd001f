"""Each operation once: its arguments, what it is for, its result. Tools, commands and reference pages are made of it.

    prune_tool_outputs.arguments["keep_last"].text      # what a tool's schema and a command's help say of an argument
    await prune_tool_outputs.run(stash, session_id="3f2a61c0", keep_last=5)

A function here declares one, and the stash's method of the same name carries it out, or `call`. The annotations are
objects, as this module does without `from __future__ import annotations`; the name of a result is a class of
contextstash.results, which is not loaded for a command's help.
"""

# mypy: disable-error-code="empty-body"

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from contextstash.safety.sanitize import did_you_mean
from contextstash_storage.errors import BadInputError, SessionNotFoundError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from contextstash import results
    from contextstash.stash import Stash

MAX_SUMMARY_CHARACTERS = 24_000
"""Longest summary that a result repeats, about 6,000 tokens; contextstash itself writes at most 2,500 tokens."""

MAX_SESSIONS = 100
"""Sessions in one page, some 10,000 tokens: clients warn above that or cut the answer."""

SCOPES = ("read", "write", "admin")
DEFAULT_SCOPES = ("read", "write")
"""What a token of a server over HTTP may allow, and does if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as it is declared: `Annotated[its type, what it is for]`, and "strict" if only a number is a number.
    `default` is inspect.Parameter.empty if it must be given."""

    name: str
    type: Any
    default: Any
    text: str
    strict: bool


@dataclass(frozen=True)
class Operation:
    """An operation. `command` is the command that does the same. It `creates` sessions, is `destructive`, or takes the
    beginning of a session's id. `slow` is what it reports as its progress, if it may take seconds; `followed` its
    description for a client that sends its own history, if it has another one."""

    function: Callable[..., Any]
    command: str | None = None
    for_models: bool = True
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = True
    creates: bool = False
    slow: str | None = None
    followed: str | None = None
    call: Callable[..., Awaitable[Any]] | None = None

    @property
    def name(self) -> str:
        """The name of the tool, and of the stash's method."""
        return self.function.__name__

    @property
    def scope(self) -> str:
        """What a token must allow for it: what destroys needs `admin`, what reads needs `read`, all else `write`."""
        return "admin" if self.destructive else "read" if self.read_only else "write"

    @property
    def description(self) -> str:
        """What it does and when to use it, in one line."""
        return " ".join((self.function.__doc__ or "").split())

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """The arguments by name."""
        found = {}
        for each in inspect.signature(self.function).parameters.values():
            kind, text, *strict = get_args(each.annotation)
            found[each.name] = Argument(each.name, kind, each.default, text, bool(strict))
        return found

    @cached_property
    def model(self) -> "type[BaseModel]":
        """The model that checks and converts the arguments, with what each is for in its JSON schema."""
        from pydantic import Field, create_model

        fields: dict[str, Any] = {}
        for name, each in self.arguments.items():
            default = ... if each.default is inspect.Parameter.empty else each.default
            fields[name] = each.type, Field(default, description=each.text, strict=each.strict or None)
        return create_model(self.name, **fields)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments with their types. Raises BadInputError, which names each that is unknown or wrong, and what is
        expected. Values, and the names in them, may be secrets: it repeats none."""
        from pydantic import ValidationError

        for name in given:
            if name not in self.arguments:
                raise BadInputError(
                    f"There is no argument of {self.name} called '{name}'. {did_you_mean(name, self.arguments)}"
                )
        try:
            model = self.model.model_validate(dict(given))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            first = {each["loc"][:1]: each for each in reversed(found)}
            said = []
            for (argument, *path), message in ((each["loc"], each["msg"]) for each in reversed(first.values())):
                numbers = [str(step) for step in path if isinstance(step, int)]
                said.append(f"{'.'.join((str(argument), *numbers))}: {message}")
            raise BadInputError(f"{'. '.join(said)}.") from None
        return {name: getattr(model, name) for name in self.arguments}

    async def run(self, stash: "Stash", **arguments: Any) -> Any:
        """Carry it out. Raises what the stash raises."""
        if not (self.creates or self.destructive) and isinstance(given := arguments.get("session_id"), str):
            arguments["session_id"] = await stash.whole_id(given)
        return await (self.call(stash, **arguments) if self.call else getattr(stash, self.name)(**arguments))


OPERATIONS: dict[str, Operation] = {}
"""All operations by name, in the order in which a session uses them; those for programs last."""


def operation(command: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Operation]:
    """Declares the function as an operation; the options are the fields of Operation."""

    def declare(function: Callable[..., Any]) -> Operation:
        return OPERATIONS.setdefault(function.__name__, Operation(function, command, **options))

    return declare


def _clipped(summary: str, rest: str) -> str:
    """Head and tail of a summary within MAX_SUMMARY_CHARACTERS. The notice in the middle says how much is missing, and
    `rest` where to find it. Two thirds go to the head: a summary begins with the task."""
    left_out, head = len(summary) - MAX_SUMMARY_CHARACTERS, MAX_SUMMARY_CHARACTERS * 2 // 3
    if left_out <= 0:
        return summary
    return f"{summary[:head]}\n[… {left_out:,} characters left out here: {rest} …]\n{summary[head + left_out :]}"


SessionId = Annotated[str | None, "Default: current session"]
DryRun = Annotated[bool, "Only report what would happen"]
JsonObject = dict[str, object]
Messages = list[JsonObject]
System = Annotated[str | list[JsonObject] | None, "System prompt"]
Tools = Annotated[list[JsonObject] | None, "Tool definitions"]
Usage = Annotated[JsonObject | None, "Of the last reply"]
Model = Annotated[str | None, "Model of the session"]

OWN_VIEW = "Changes contextstash's own view only, not your window"
"""The first words on a change for a client that sends its own history."""


@operation("status", read_only=True)
async def estimate_context(
    session_id: SessionId = None,
    messages: Annotated[Messages | None, "Estimate these messages instead (provider's JSON)"] = None,
    model: Annotated[str | None, "Model whose window to use"] = None,
) -> "results.Estimate":
    """How full the context window is and what to do next. Call before long work."""


@operation("prune", followed=f"{OWN_VIEW}, unless your client runs behind its proxy. Archives old tool outputs there.")
async def prune_tool_outputs(
    session_id: SessionId = None,
    keep_last: Annotated[int | None, "How many newest outputs to keep"] = None,
    protect_tokens: Annotated[int | None, "How many tokens of newest outputs to keep"] = None,
    minimum_tokens: Annotated[int | None, "Do nothing if it saves less"] = None,
    dry_run: DryRun = False,
) -> "results.PruneResult":
    """Shrink the context: replace old tool outputs by short placeholders. Use at level prune. Reversible."""


async def _compacted(stash: "Stash", summary: str | None, **arguments: Any) -> "results.CompactResult":
    """A summary that the caller wrote is not repeated."""
    result = await stash.compact_session(summary=summary, **arguments)
    shown = None if summary is not None else result.summary
    return result.model_copy(update={"summary": shown and _clipped(shown, "get_summary")})


@operation(
    "compact",
    idempotent=False,
    slow="Summarizing",
    call=_compacted,
    followed=f"{OWN_VIEW}, unless your client runs behind its proxy. Keeps your summary for the hand-off after the"
    " client compacts.",
)
async def compact_session(
    session_id: SessionId = None,
    summary: Annotated[
        str | None,
        "Your summary: task, user's decisions and constraints, files changed, errors, open items, next step",
    ] = None,
    instructions: Annotated[str | None, "What the summary must keep, if you do not write it"] = None,
    strategy: Annotated[
        Literal["auto", "host", "anthropic", "extractive"],
        "Who writes the summary: you (host), or contextstash by one of the other means",
    ] = "auto",
    dry_run: DryRun = False,
) -> "results.CompactResult":
    """Replace all but the recent messages by a summary, preferably yours. Use at level compact, at a finished step,
    or before a new topic; not amid an edit. Reversible."""


async def _summary(stash: "Stash", **arguments: Any) -> "results.SummaryResult":
    result = await stash.get_summary(**arguments)
    rest = f"resource context://sessions/{result.session_id}/summary"
    return result.model_copy(update={"summary": _clipped(result.summary, rest)})


@operation("show", read_only=True, call=_summary)
async def get_summary(
    session_id: SessionId = None,
    level: Annotated[str | None, "recent (the newest) or an id (sum_...); default: all"] = None,
) -> "results.SummaryResult":
    """The summary of the session's older messages. Use after a compaction or to resume."""


@operation("show", read_only=True)
async def get_archived_output(
    handle: Annotated[str, "Handle (out_...) from a placeholder or search hit"],
    session_id: Annotated[str | None, "Default: any"] = None,
    offset: Annotated[int | None, "First line, from 1"] = None,
    limit: Annotated[int | None, "Lines"] = None,
    pattern: Annotated[str | None, "Regular expression: only lines that match"] = None,
    max_tokens: Annotated[int | None, "Default 4000, at most 8000"] = None,
) -> "results.OutputPage":
    """Read a pruned, cut or compacted tool output word for word, in pages. Use instead of running the tool again."""


@operation("search", read_only=True)
async def search_history(
    query: Annotated[str, "Words, names or paths"],
    session_id: SessionId = None,
    limit: Annotated[int | None, "Default 10, at most 50"] = None,
    scope: Annotated[
        Literal["session", "outputs", "messages", "everywhere"],
        "Sessions; or outputs or messages of this one",
    ] = "session",
) -> "results.SearchResult":
    """Search the session's whole history, including what was pruned or compacted."""


@operation("restore", followed=f"{OWN_VIEW}: undoes a prune or compaction there.")
async def restore_outputs(
    handles: Annotated[list[str], "Handles of outputs (out_...) or summaries (sum_...)"],
    session_id: SessionId = None,
) -> "results.RestoreResult":
    """Undo a prune or compaction: put the originals back into the context."""


async def _status(stash: "Stash", session_id: str | None) -> "results.ContextStatus":
    status = await stash.context_status(session_id)
    return status.model_copy(update={"timeline": await stash.timeline(status.session_id)})


@operation("status", read_only=True, call=_status)
async def context_status(session_id: SessionId = None) -> "results.ContextStatus":
    """Show the user a picture of how full the context is, and with what."""


@operation("import", for_models=False, idempotent=False, creates=True)
async def record_messages(
    messages: Annotated[Messages, "In the provider's own JSON, oldest first"],
    session_id: Annotated[str | None, "Created if new; default: current"] = None,
    first_seq: Annotated[int | None, "Of the first message: previous next_seq", "strict"] = None,
    batch_id: Annotated[str | None, "To repeat this batch safely"] = None,
    whole: Annotated[bool, "The whole conversation"] = False,
    format: Annotated[str | None, "openai-chat, openai-responses, anthropic or gemini; default: detected"] = None,
    model: Model = None,
    agent: Annotated[str | None, "Name of the agent"] = None,
    usage: Usage = None,
    system: System = None,
    tools: Tools = None,
) -> "results.RecordResult":
    """Append messages; with first_seq, batch_id or whole, repeated ones are skipped. Prunes and compacts
    automatically when due."""


@operation(for_models=False, creates=True)
async def get_context(
    session_id: SessionId = None,
    messages: Annotated[Messages | None, "Whole conversation, to record"] = None,
    system: System = None,
    tools: Tools = None,
    usage: Usage = None,
    budget: Annotated[int | None, "Tokens; default: usable"] = None,
    format: Annotated[str | None, "As in record_messages"] = None,
    model: Model = None,
) -> "results.ContextResult":
    """The message list to send next: valid for the provider, within budget. What is shrunk stays shrunk."""


@operation(for_models=False, idempotent=False)
async def recover_context(
    error: Annotated[str, "The provider's error, unchanged"],
    session_id: SessionId = None,
    system: System = None,
    tools: Tools = None,
) -> "results.RecoverResult":
    """After a request was refused as too long: shrink the session, get the messages to send."""


async def _listed(stash: "Stash", limit: int, cursor: str | None) -> "results.SessionList":
    return await stash.list_sessions(limit=max(1, min(limit, MAX_SESSIONS)), cursor=cursor)


@operation("sessions", for_models=False, read_only=True, call=_listed)
async def list_sessions(
    limit: Annotated[int, "At most 100"] = 50,
    cursor: Annotated[str | None, "next_cursor of the previous result"] = None,
) -> "results.SessionList":
    """Sessions, last changed first."""


@operation(for_models=False)
async def configure_session(
    settings: Annotated[JsonObject | None, "Such as window"] = None,
    pin: Annotated[list[str] | None, "Handles or paths to keep"] = None,
    unpin: Annotated[list[str] | None, "Remove"] = None,
    session_id: SessionId = None,
) -> "results.ConfigureResult":
    """Change a session's settings."""


async def _deleted(stash: "Stash", session_id: str) -> "results.DeleteResult":
    """A client that got no answer may call again: a session that is gone already is no error."""
    from contextstash.results import DeleteResult

    try:
        return await stash.delete_session(session_id)
    except SessionNotFoundError:
        return DeleteResult(session_id=session_id, deleted=False, messages=0)


@operation("delete", for_models=False, destructive=True, call=_deleted)
async def delete_session(session_id: Annotated[str, "The session's id"]) -> "results.DeleteResult":
    """Delete a session and everything in it permanently."""
