"""Shell envelopes: what a command printed, without the headers and tags that an agent's shell tool adds."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from contextstash.safety.sanitize import without_ansi


@dataclass(frozen=True, slots=True)
class Printed:
    """A command's output; `exit_code` is None if the output does not contain it. `process` is the client's number of
    the process if the command was still running."""

    text: str
    exit_code: int | None = None
    process: str = ""

    @property
    def running(self) -> bool:
        return bool(self.process)


_CHUNK_HEADER = re.compile(
    r"\A(?:(?:Command|Chunk ID|Wall time|Process exited with code|Process running with session ID"
    r"|Original token count|Total output lines|Exit code|Output):[^\n]*\n"
    r"|Process (?:exited with code|running with session ID) [^\n]*\n"
    r"|Script (?:completed|failed|running with \w+ ID \d+)\n|Wall time [\d.]+ seconds\n|\n)+"
)
_EXITED = re.compile(r"(?:exited with code|Exit code:?) (-?\d{1,5})")
_RUNNING = re.compile(r"^(?:Process|Script) running with (?:session|cell) ID (\d{1,12})$", re.MULTILINE)
_SCRIPT_FAILED = "Script failed\n"
_BACKGROUND = re.compile(r"\ACommand running in background with ID: (\w{1,40})")
"""How Codex and Claude Code say that a command goes on."""

_TAGGED = re.compile(r"\A\s*<returncode>(-?\d{1,5})</returncode>\s*(?:<warning>.*?</warning>\s*)?", re.DOTALL)
_TAGS = re.compile(r"</?(?:output|output_head|output_tail|stdout|stderr|elided_chars)>\n?")
_PLAIN = re.compile(r"\AExit code (\d{1,5})\n?")
TOOL_ERROR = "<tool_use_error>"
REMINDER_START, REMINDER_END = "<system-reminder>", "</system-reminder>"
FOLDER_RESET = "Shell cwd was reset to "
_FOLDER_RESET = re.compile(rf"\n?{FOLDER_RESET}[^\n]*\s*\Z")
_JSON_ENVELOPE = '{"output":'
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w{1,40})\1")
MAX_HEADER_CHARACTERS = 2_000
"""How much of each end is searched for an envelope: Codex's headers are a few short lines."""


def unwrap(text: str) -> Printed:
    """A command's output and its exit code, without the envelopes of common agents: Codex's headers and its JSON
    envelope, `<returncode>` tags, `Exit code n` on the first line, reminders at the end."""
    text = without_ansi(text)
    text = without_reminders(text)
    if FOLDER_RESET in text[-MAX_HEADER_CHARACTERS:]:
        text = text[:-MAX_HEADER_CHARACTERS] + _FOLDER_RESET.sub("", text[-MAX_HEADER_CHARACTERS:])
    if text.startswith(_JSON_ENVELOPE):
        return _from_envelope(text)
    tagged = _TAGGED.match(text[:MAX_HEADER_CHARACTERS])
    if tagged:
        return Printed(_TAGS.sub("", text[tagged.end() :]), int(tagged.group(1)))
    if text.startswith(TOOL_ERROR):
        return Printed(text.removeprefix(TOOL_ERROR).removesuffix("</tool_use_error>"))
    plain = _PLAIN.match(text)
    if plain:
        return Printed(text[plain.end() :], int(plain.group(1)))
    header = _CHUNK_HEADER.match(text[:MAX_HEADER_CHARACTERS])
    if header:
        code = _EXITED.search(header.group())
        running = _RUNNING.search(header.group())
        process = running.group(1) if running else ""
        exit_code = int(code.group(1)) if code else 1 if text.startswith(_SCRIPT_FAILED) else None
        return Printed(text[header.end() :], exit_code, process)
    background = _BACKGROUND.match(text)
    return Printed(text, process=background.group(1) if background else "")


def without_reminders(text: str) -> str:
    """The text without the reminders that a host inserts into outputs and requests."""
    kept: list[str] = []
    place = 0
    while (start := text.find(REMINDER_START, place)) >= 0:
        end = text.find(REMINDER_END, start)
        if end < 0:
            break
        kept.append(text[place:start])
        place = end + len(REMINDER_END)
    return "".join([*kept, text[place:]]) if kept else text


def _from_envelope(text: str) -> Printed:
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        return Printed(text)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("output"), str):
        return Printed(text)
    metadata = envelope.get("metadata")
    code = metadata.get("exit_code") if isinstance(metadata, dict) else None
    return Printed(envelope["output"], code if isinstance(code, int) else None)


def without_json_envelopes(text: str) -> str:
    """The text; each line that is a JSON envelope is what the command printed, with its line breaks."""
    if _JSON_ENVELOPE not in text:
        return text
    lines = text.split("\n")
    return "\n".join(_from_envelope(line).text if line.startswith(_JSON_ENVELOPE) else line for line in lines)


def without_heredocs(command: str, mark: str = " ") -> tuple[str, list[str]]:
    """The command with a `mark` in place of its here-documents, and the lines of these. Only a delimiter alone in its
    line ends one, with tabs before it behind `<<-`: without it, all that follows is in the file, and nothing of it is
    run."""
    may_be_indented = "<<-" in command
    kept: list[str] = []
    bodies: list[str] = []
    closing: str | None = None
    for line in command.split("\n"):
        if closing is not None:
            if (line.strip() if may_be_indented else line.strip("\r")) == closing:
                closing = None
            else:
                bodies.append(line)
            continue
        found = _HEREDOC.search(line)
        closing = found.group(2) if found else None
        kept.append(_HEREDOC.sub(mark, line))
    return "\n".join(kept), bodies
