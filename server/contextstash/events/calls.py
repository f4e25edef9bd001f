"""Tool calls, each with its result: what was run, what it printed, whether it failed or was refused."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from contextstash.events.shell import GO_TO, LOOKING, bare_command
from contextstash.events.turns import Turn
from contextstash.outputs.run_outcomes import TestRun, find_crash, find_test_run
from contextstash.outputs.salient import error_line
from contextstash.outputs.shell_envelope import TOOL_ERROR, Printed, unwrap
from contextstash.safety.sanitize import one_line

COMMAND_KEYS = ("command", "cmd", "script")
_REFUSAL = re.compile(
    r"\A\s*(?:Error:\s*)?(?:(?:the )?user (?:doesn['’]t want|does not want|rejected|denied|declined)"
    r"|(?:[\w-]{1,20} ){0,4}rejected by (?:the )?user|plan (?:was )?rejected\b)",
    re.IGNORECASE,
)
"""How a host's text begins if it stands for an output. Anywhere else, the same words belong to the output itself."""

ASKING_TOOLS = frozenset({"AskUserQuestion", "question"})
"""The tools of Claude Code and of OpenCode that ask the user. An MCP server's tool is recorded with the server's name,
and the gateway offers none under such a name."""

PLAN_TOOLS = frozenset({"exitplanmode", "exit_plan_mode"})


def is_refusal(text: str) -> bool:
    """Whether this is what a host puts in the place of an output if the user refused the call."""
    return bool(_REFUSAL.match(text[:500]))


def is_dialog(tool: str) -> bool:
    """Whether a tool asks the user, so that its output holds the user's words."""
    return tool in ASKING_TOOLS or tool.lower() in PLAN_TOOLS


_MCP_TOOL = re.compile(r"mcp[_:.]", re.IGNORECASE)
_TOOL_ERROR = re.compile(r"\A\s*(?:Error:|error:|ERROR:|Error executing)")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `arguments` is empty if the call's text is not a JSON object. `output` is None
    without a result, and `ended` is then whether the assistant went on: it will not come. `seq` is the message with the
    result, or else with the call."""

    seq: int
    tool: str
    argument: str
    text: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    output: Printed | None = None
    is_error: bool = False
    handle: str | None = None
    tests: TestRun | None = None
    ended: bool = True

    @property
    def command(self) -> str | None:
        """The shell command, None if this is not one."""
        for key in COMMAND_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, str) and value.strip() and not self.arguments.get("path"):
                return value
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return str(value[-1]) if len(value) == 3 and value[1] in ("-c", "-lc") else " ".join(value)
        return None

    @property
    def written(self) -> str:
        """The texts in the arguments, without their names; the whole call if it has no arguments."""
        return "\n".join(_strings(self.arguments)) if self.arguments else self.text

    @property
    def folder(self) -> str:
        """The folder in which it ran, as far as it says it; it may be relative to an unknown one."""
        given = self.arguments.get("workdir") or self.arguments.get("cwd")
        folder = given.rstrip("/") if isinstance(given, str) and given.startswith("/") else ""
        went = GO_TO.match(self.command or "")
        return posixpath.normpath(posixpath.join(folder, went.group(1))) if went else folder

    @property
    def refused(self) -> bool:
        """Whether the user refused the call. Only the host's own text counts, not the output of a program or MCP
        server. All that a dialog returns is the host's; some formats have no flag for an error."""
        own = self.is_error or is_dialog(self.tool)
        if not own or self.output is None or self.output.exit_code is not None:
            return False
        return not _MCP_TOOL.match(self.tool) and is_refusal(self.output.text)

    @property
    def failed(self) -> bool:
        """Whether the call failed in a way that matters; a search without results is not a failure."""
        if self.output is None or self.refused:
            return False
        if self.tests:
            return self.tests.failed > 0
        if self.is_error or self.output.exit_code not in (None, 0):
            return not self._harmless()
        if _TOOL_ERROR.match(self.output.text[:200]):
            return self.command is None
        return self.command is not None and self.output.exit_code is None and bool(find_crash(self.output.text))

    def _harmless(self) -> bool:
        if self.output is None or self.output.exit_code not in (None, 1):
            return False
        # A search or comparison that prints more than 2,000 characters has found something.
        return len(self.output.text) < 2_000 and bool(LOOKING.match(bare_command(self.command or "")))

    @property
    def error_message(self) -> str:
        """What went wrong, in one line; empty if there is no output."""
        if self.output is None:
            return ""
        if self.tests and self.tests.failed:
            return self.tests.line()
        code = f"exit {self.output.exit_code}" if self.output.exit_code else ""
        said = find_crash(self.output.text) or error_line(self.output.text) or one_line(self.output.text, 160)
        return ": ".join(filter(None, (code, said)))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(each)


def calls_of(turns: Iterable[Turn]) -> list[Call]:
    """All tool calls in order, each with its result, wherever in the turns that is."""
    calls: dict[str, tuple[int, str, str, str]] = {}
    processes: dict[str, tuple[str, str, str]] = {}
    printed: dict[str, str] = {}  # by a command that goes on
    done: list[Call] = []
    answered: set[str] = set()
    newest, spoke = -1, ""  # where the assistant's newest step begins, of one or more messages
    for turn in turns:
        newest = turn.seq if turn.role == "assistant" != spoke else newest
        spoke = turn.role
        for index, (block, text) in enumerate(zip(turn.blocks, turn.texts, strict=True)):
            if block.type == "tool_call":
                calls[block.call_id or f"{turn.seq}.{index}"] = (
                    turn.seq,
                    block.tool or "tool",
                    block.argument or "",
                    text,
                )
            elif block.type == "tool_result":
                call_id = block.call_id or ""
                _, *called = calls.get(call_id, (0, block.tool or "tool", "", ""))
                process = _waits_for(called[2])
                tool, argument, call = processes.get(process, called)
                answered.add(call_id)
                output = unwrap(text)
                if before := printed.pop(process, ""):
                    output = replace(output, text=f"{before}\n{output.text}")
                if output.running:
                    processes[output.process] = (tool, argument, call)
                    printed[output.process] = output.text[-MAX_PRINTED:]
                is_error = block.is_error or text.startswith(TOOL_ERROR)  # some formats have no flag for it
                done.append(_call(turn.seq, tool, argument, call, output, is_error, turn.handles.get(index)))
    for call_id, (seq, tool, argument, text) in calls.items():
        if call_id not in answered:
            done.append(Call(seq, tool, argument, text, _arguments(text), ended=seq < newest))
    return sorted(done, key=lambda call: call.seq)


_WAITS = re.compile(r'"(?:session_id|bash_id|task_id|shell_id|cell_id)"\s*:\s*"?(\w{1,40})')
_TYPES = re.compile(r'"chars"\s*:\s*"(?!")')


def _waits_for(call: str) -> str:
    """The process whose output a call only waits for; its result is that of the command that began it."""
    waits = _WAITS.search(call) if len(call) < MAX_WAITING else None
    return "" if waits is None or _TYPES.search(call) else waits.group(1)


MAX_WAITING = 400
"""Characters of a call that only waits. A longer one does something else."""


MAX_PRINTED = 20_000
"""Characters that are known of what a command printed so far, the newest."""


def _call(seq: int, tool: str, argument: str, call: str, output: Printed, is_error: bool, handle: str | None) -> Call:
    arguments = _arguments(call)
    runs = any(key in arguments for key in COMMAND_KEYS)
    tests = find_test_run(output.text) if runs else None
    return Call(seq, tool, argument, call, arguments, output, is_error, handle, tests)


def _arguments(text: str) -> Mapping[str, Any]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
