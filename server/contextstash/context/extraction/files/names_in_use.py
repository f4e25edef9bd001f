"""Names in use: the names, literals and commands that the agent is most likely to write again, the names by file.

A tool output that leaves the view takes with it the names that the agent learned from it. The list has those that the
agent wrote itself, or that stand in the files that it changed; in those that it read, if it changed none: then it still
looks for what to change.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from contextstash.context.extraction.actions import Action, actions_of, as_run, bare_command
from contextstash.context.extraction.errors import LOOKING
from contextstash.context.extraction.files.file_actions import file_uses
from contextstash.context.extraction.files.session_files import changes_by_message
from contextstash.context.extraction.turns import Turn
from contextstash.context.extraction.user.requests_and_rules import without_host_text
from contextstash.context.text.sanitize import one_line

AGENT_WEIGHT = 5.0
"""How much more a message of the agent says about a name than one that only shows it. Measured on recorded sessions: 2
to 8 keep about the same; a list of names that the agent itself wrote is the more readable one."""

DECAY = 0.3
"""The weight of a message falls with its age, in messages, to this power: need falls with age as a power law (Anderson
and Schooler, Reflections of the Environment in Memory, 1991). Measured: 0.3 keeps more than 0.5 and 0.8."""

NUMBERED_SHARE = 0.3
"""The share of its weight that a word with one digit, such as `result2`, counts: a variable of a short script."""

LITERALS_SHARE = 0.2
"""The share of the room that literals and commands may take together. They are longer than names, and fewer
are used again."""

MIN_USES = 2
"""Messages of the agent in which a literal or a command stands that is listed. One that was used once is rarely used
again."""

NAME_TOKENS = 3
"""What a name costs in addition to its own tokens when names are ranked by their weight per token: separators and its
part of the line's path."""

CHARACTERS_PER_TOKEN = 3.5
"""Of names; measured with o200k_base on recorded sessions. Only for the ranking, the text is counted exactly."""

MAX_SCANNED = 100_000
"""Characters of one text that are searched; it bounds the work on a huge output."""

MAX_RANKED = 1_500
"""Names that are considered for the list. Far fewer fit."""

ELSEWHERE = "Elsewhere"
FILES = "Files"
COMMANDS = "Commands used more than once"
LITERALS = "Literals"

_PATH = re.compile(r"(?<![\w/.)}*$-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,80}/){1,20}[\w.@+-]{0,79}\w")
"""Not the end of a pattern, or of a path that begins with a variable or with the output of a command."""

_NAME = re.compile(r"(?<![\w$])[A-Za-z_]\w{4,49}(?![\w$])")
_ESCAPE = re.compile(r"\\+[ntr]")
"""Of a white space, as it stands in JSON within JSON too."""

_DIFF_HEAD = re.compile(r"^(?:diff --git|---|\+\+\+) .+$", re.MULTILINE)
_DIFF_SIDE = re.compile(r" [ab]/")
_NUMBERED = re.compile(r"[A-Za-z][a-z]+\d")
_AT_LINE = re.compile(r"(\.\w{1,10})[:-]\d+(?:[:-]\d*)?$")
"""A line number behind a path, as a search prints it."""

_HEXADECIMAL = re.compile(r"[0-9a-f]{6,40}|[0-9A-F]{6,40}", re.ASCII)
"""A colour or a hash looks like a name with digits."""

_NO_FILE = re.compile(r"/(?:dev|proc)/|\.{0,2}/?[\w-]+$|.*\w\.{2,3}\w")
"""A path that names no file of the work: a device, a lone folder, or a range of Git."""

_LITERAL = re.compile(r"\"([^\"\n\\]{8,80})\"|(?<!\w)'([^'\n\\]{8,80})'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.:/-])\d{4,8}(?![\w:/-])")

_SHAPED = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|[A-Za-z]\d")
_LOCATED = re.compile(r"^\s*([\w.@+~-]*(?:/[\w.@+-]+)*\.\w{1,10})[:-]\d+[:-]", re.MULTILINE)
_ARGUMENT_KEY = re.compile(r'"\w{1,60}"\s*:')

Count = Callable[[str], int]
Named = Callable[[str], dict[str, None]]


@dataclass
class _Uses:
    """The uses of all names in a sequence of turns."""

    weights: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    own: set[str] = field(default_factory=set)
    homes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    forms: dict[str, str] = field(default_factory=dict)

    def add(self, names: Iterable[str], weight: float, *, own: bool) -> None:
        """Count uses of the names; `own` are those that the agent wrote or changed."""
        for name in names:
            key = _key(name)
            if own:
                self.own.add(key)
            self.weights[key] += weight
            self.forms[key] = name

    def ranked(self, hidden: Container[str]) -> list[str]:
        """The names of the agent with the highest weight per token, without those that `hidden` contains."""
        found = [name for name in self.weights if name in self.own and name not in hidden]
        found.sort(key=lambda name: -self._value(name) / (NAME_TOKENS + len(name) / CHARACTERS_PER_TOKEN))
        return found[:MAX_RANKED]

    def _value(self, name: str) -> float:
        return self.weights[name] * (NUMBERED_SHARE if _NUMBERED.fullmatch(name) else 1.0)


def path_key(path: str) -> str:
    """The last two parts of a path, by which it is recognized whether it is written relative or absolute."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..", "~")]
    return "/".join(parts[-2:])


def _key(name: str) -> str:
    return path_key(name) if "/" in name else name


def names_of(text: str) -> dict[str, None]:
    """The paths and the names in code that a text contains, each once, in order."""
    text = _ESCAPE.sub("\n", text[:MAX_SCANNED]).replace('\\"', '"')
    text = _DIFF_HEAD.sub(lambda line: _DIFF_SIDE.sub(" ", line.group()), text)
    found: dict[str, None] = {}
    for path in (_AT_LINE.sub(r"\1", each) for each in _PATH.findall(text)):
        # `read/write` and `net/http` look like paths too; a file has an extension or a place.
        if (
            len(path_key(path)) >= 6
            and not _NO_FILE.match(path)
            and (path[0] in "/~." or "." in path.rsplit("/", 1)[-1])
        ):
            found[path.removeprefix("./")] = None
    for name in _NAME.findall(_PATH.sub(" ", text)):
        if _SHAPED.search(name) and 3 * sum(map(str.isdigit, name)) <= len(name) and not _HEXADECIMAL.fullmatch(name):
            found[name] = None
    return found


def name_lines(
    turns: Sequence[Turn],
    before: Sequence[str],
    shown: Sequence[Turn],
    max_tokens: int,
    count: Count,
    said: str = "",
) -> list[str]:
    """Lines of at most about `max_tokens` that list the names most in use by file, and then literals and commands.
    `before` are such lines of earlier summaries, which count only if there are no turns: of each file the newest. What
    is in the turns that stay in the view (`shown`) or in the rest of the summary (`said`) is left out."""
    if not turns:
        return list({line.partition(": ")[0]: line for line in before}.values())
    actions = actions_of(turns)
    others = _others(actions, shown, int(max_tokens * LITERALS_SHARE), count)
    uses = _uses_of(turns, actions)
    hidden = {_key(name) for turn in shown for name in _names_in(turn, names_of)} | set(map(_key, names_of(said)))
    chosen: list[str] = []
    spent = sum(count(line) for line in others)
    for name in uses.ranked(hidden):
        cost = count(f" {uses.forms[name]},")
        if spent + cost <= max_tokens:
            spent += cost
            chosen.append(name)
        if spent > max_tokens - NAME_TOKENS:
            break
    return [*_written(chosen, uses), *others]


def below_in_list(line: str, base: str) -> str:
    """The line with paths relative to a folder; literals and commands stay as they are."""
    return line if not base or line.startswith((f"{LITERALS}: ", f"{COMMANDS}: ")) else line.replace(f"{base}/", "")


def _others(actions: Sequence[Action], shown: Sequence[Turn], max_tokens: int, count: Count) -> list[str]:
    """The lines about literals and commands, the newest of each first."""
    visible = "\n".join(text for turn in shown for text in turn.texts)
    lines = []
    for title, found_in in ((LITERALS, _literals_in), (COMMANDS, _command_in)):
        chosen: list[str] = []
        for text in _repeated([(action.seq, found_in(action)) for action in actions]):
            cost = count(f" {text},")
            if cost <= max_tokens and text.strip('`"') not in visible:
                max_tokens -= cost
                chosen.append(text)
        lines += [f"{title}: {', '.join(chosen)}"] if chosen else []
    return lines


def _repeated(found: Iterable[tuple[int, Mapping[str, str]]]) -> list[str]:
    """The texts that were found in several messages by the same key, as they were found last, the newest first."""
    uses: Counter[str] = Counter()
    newest: dict[str, tuple[int, str]] = {}
    for seq, texts in found:
        uses.update(texts.keys())
        newest |= {key: (seq, text) for key, text in texts.items()}
    often = [newest[key] for key, number in uses.items() if number >= MIN_USES]
    return [text for _, text in sorted(often, key=lambda entry: -entry[0])]


def _literals_in(action: Action) -> dict[str, str]:
    """The quoted texts and the numbers that the agent wrote into a file or a command."""
    code = action.written[:MAX_SCANNED].replace('\\"', '"')
    quoted = ["".join(pair) for pair in _LITERAL.findall(code)]
    found = [*(f'"{text}"' for text in quoted if _is_wording(text)), *_NUMBER.findall(code)]
    return {text: text for text in found}


def _is_wording(text: str) -> bool:
    """Whether a quoted text is wording, such as a message of an error, and no code between two quotations."""
    return text == text.strip() and " " in text and text[:1].isalnum() and not _CODE_SIGNS.search(text)


_CODE_SIGNS = re.compile(r"[(){}\[\];=<>]|, |\w\.\w+\(")


def _command_in(action: Action) -> dict[str, str]:
    """The command that the agent ran, by what it does, unless that only looks at something."""
    command = bare_command(action.command) if action.command else ""
    run = one_line(as_run(action.command or ""), MAX_COMMAND + 1)
    told = 0 < len(run) <= MAX_COMMAND and not _EVERYDAY.match(command) and "`" not in run
    return {command: f"`{run}`"} if told else {}


_EVERYDAY = re.compile(rf"{LOOKING.pattern}|^git (?:add|commit|push|pull|fetch|stash|checkout)\b")
"""Commands that say nothing about the work: they only look, or are the same in every project."""

MAX_COMMAND = 120
"""Characters of a command that is listed; a longer one is a script."""


def _uses_of(turns: Sequence[Turn], actions: Sequence[Action]) -> _Uses:
    uses = _Uses()
    end = len(turns) + 1
    named = cache(names_of)  # of each output, they are looked for twice
    for place, turn in enumerate(turns):
        if turn.role == "system" or turn.kind == "host":  # the client puts these into every window itself
            continue
        weight = (AGENT_WEIGHT if turn.role == "assistant" else 1.0) * (end - place) ** -DECAY
        uses.add(_names_in(turn, named), weight, own=turn.role == "assistant")
    changed = {path_key(path) for paths in changes_by_message(actions).values() for path in paths}
    for action in actions:
        for name, home in _homes(action, named):
            key = path_key(home)
            uses.homes[name][key] += 1
            if key in changed or not changed:
                uses.own.add(name)
    return uses


def _names_in(turn: Turn, named: Named) -> dict[str, None]:
    """The names in a turn."""
    found: dict[str, None] = {}
    for block, text in zip(turn.blocks, turn.texts, strict=True):
        if block.type == "tool_call":
            found |= names_of(_ARGUMENT_KEY.sub(" ", text))
        elif block.type == "tool_result" and turn.role != "user":
            found |= named(text)
        elif block.type != "thinking":
            found |= names_of(without_host_text(text) if turn.role == "user" else text)
    return found


def _homes(action: Action, named: Named) -> Iterable[tuple[str, str]]:
    """The names that a call shows, each with the file that it is shown in."""
    output = action.output.text if action.output else ""
    for line in output[:MAX_SCANNED].split("\n"):
        located = _LOCATED.match(line)
        if located and "/" in located.group(1):
            yield from ((name, located.group(1)) for name in names_of(line) if "/" not in name)
    paths = {use.path for use in file_uses(action) if "/" in use.path}
    if len(paths) == 1:
        path = paths.pop()
        yield from ((name, path) for name in {**names_of(action.text), **named(output)} if "/" not in name)


def _written(chosen: Sequence[str], uses: _Uses) -> list[str]:
    """A line for each file that has chosen names, the files without, and the names without a known file."""
    picked = set(chosen)
    homes = {name: uses.homes[name].most_common(1)[0][0] for name in chosen if uses.homes.get(name)}
    sizes = Counter(homes.values())
    by_file: dict[str, list[str]] = {}
    for name in chosen:
        home = homes.get(name)
        if "/" in name:
            by_file.setdefault(name, [])
        elif home and (home in picked or sizes[home] > 1):
            by_file.setdefault(home, []).append(name)
        else:
            by_file.setdefault(ELSEWHERE, []).append(name)
    loose = by_file.pop(ELSEWHERE, [])
    alone = [uses.forms.get(path, path) for path, names in by_file.items() if not names]
    lines = [f"{uses.forms.get(path, path)}: {', '.join(names)}" for path, names in by_file.items() if names]
    lines += [f"{FILES}: {', '.join(alone)}"] if alone else []
    return [*lines, *([f"{ELSEWHERE}: {', '.join(loose)}"] if loose else [])]
