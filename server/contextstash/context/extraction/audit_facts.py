"""The facts of a session that matter to go on with it: what a summary of it has to hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from contextstash.context.extraction.actions import Action, actions_of, bare_command
from contextstash.context.extraction.errors import troubles
from contextstash.context.extraction.facts import find_facts
from contextstash.context.extraction.file_actions import Verb, file_uses
from contextstash.context.extraction.files import changes_by_message
from contextstash.context.extraction.todos import said_to_be_open, todo_lines
from contextstash.context.extraction.turns import Turn
from contextstash.context.extraction.user_requests import OWN_TEXT, Request, laid_down, requests_of
from contextstash.context.text.sanitize import one_line

FactKind = Literal["path", "id", "error", "open item", "constraint"]

MAX_OF_A_KIND: dict[FactKind, int] = {"path": 28, "id": 14, "error": 10, "open item": 10, "constraint": 18}
"""80 facts together."""

SHOWN = 260
"""Characters of a fact; a constraint, which must be known whole, may have `CONSTRAINT_SHOWN`."""

CONSTRAINT_SHOWN = 400
ASKED_SHOWN = 160


@dataclass(frozen=True, slots=True)
class AuditedFact:
    """One fact, in one line. `seq` is the message in which it was said last, `handle` the tool output that holds
    it, if one does."""

    kind: FactKind
    text: str
    seq: int
    handle: str | None = None


@dataclass(frozen=True, slots=True)
class Worthy:
    """A fact and what it is worth to know it: more for what cannot be found out again, and for what is new."""

    fact: AuditedFact
    worth: float


@dataclass(frozen=True, slots=True)
class Known:
    """All facts that matter, worthiest first, at most 80; and every path the session touched, which tells
    whether the tail of one could mean another."""

    facts: tuple[Worthy, ...]
    paths: tuple[str, ...]


def facts_that_matter(turns: Sequence[Turn]) -> Known:
    """What someone who goes on must know or be able to look up: the user's constraints in their own words, open
    items, errors that still stand and those of the work that were met, files changed or gone back to, and ids
    that the user named or that came up more than once in the conversation."""
    actions = actions_of(turns)
    requests, _ = requests_of(turns)
    touched = _touched(actions)
    ages = _Ages(turns[0].seq if turns else 0, turns[-1].seq if turns else 0)
    by_kind: dict[FactKind, list[Worthy]] = {
        "constraint": list(_constraints(requests, ages)),
        "open item": list(_open_items(turns, actions, requests, ages)),
        "error": list(_errors(actions, ages)),
        "path": list(_paths(turns, requests, touched, ages)),
        "id": list(_ids(turns, requests, ages)),
    }
    chosen: list[Worthy] = []
    for kind, found in by_kind.items():
        found.sort(key=lambda worthy: (-worthy.worth, -worthy.fact.seq))
        chosen += found[: MAX_OF_A_KIND[kind]]
    chosen.sort(key=lambda worthy: (-worthy.worth, -worthy.fact.seq))
    return Known(tuple(_with_handles(chosen, turns)), tuple(touched))


@dataclass(frozen=True, slots=True)
class _Ages:
    first: int
    last: int

    def newness(self, seq: int) -> float:
        """From 0 for the first message to 1 for the last."""
        return (seq - self.first) / max(1, self.last - self.first)


_RULE = re.compile(
    r"\b(?:must(?:n['’]?t)?|never|always|don['’]?t|do not|cannot|can['’]?t|should(?:n['’]?t| not)|shall|forbidden"
    r"|not allowed|no longer|avoid|prefer|only|instead of|make sure|ensure|without|required|exactly"
    r"|nie(?:mals)?|immer|nicht|muss|müssen|darf|nur|ohne|jamais|toujours|il faut|sans|uniquement|nunca|siempre"
    r"|debe[ns]?|solo|sin|sempre|deve|mai|senza|никогда|всегда|нельзя|только|без)\b"
    r"|必须|不要|不能|禁止|务必|只能|必ず|しないで|ください|禁止|반드시|하지 ?마|항상|절대",
    re.IGNORECASE,
)
_STRICT_RULE = re.compile(
    r"\b(?:must(?:n['’]?t)?|never|always|don['’]?t|do not|forbidden|not allowed|make sure|nie(?:mals)?|immer|jamais"
    r"|toujours|nunca|siempre|sempre|никогда|всегда|нельзя)\b|必须|不要|禁止|务必|必ず|しないで|반드시|항상|절대",
    re.IGNORECASE,
)
"""What counts as a rule in a pasted text, which describes more than it demands."""

_NO_RULE = re.compile(
    r"^(?:I|we|you|it|this|that|they|there) (?:(?:also|still|really|just) )?(?:don['’]?t|do not|can['’]?t"
    r"|cannot|didn['’]?t) (?:know|think|see|understand|remember|have|get|mind|care|believe|seem|find|look|work|recall"
    r"|like to)\b"
    r"|\b(?:if|whether|when) (?:not|you (?:can['’]?t|don['’]?t))\b|why (?:don['’]?t|can['’]?t)"
    r"|\bnever (?:been|\w{2,}(?:ed|[^s]s))\b|\bonly \w{2,}[^s]s\b",
    re.IGNORECASE,
)
MIN_RULE_WORDS = 3


def _constraints(requests: Sequence[Request], ages: _Ages) -> Iterator[Worthy]:
    """The user's rules, each once. Out of a long pasted text a rule is worth less than what they typed."""
    found: dict[str, Worthy] = {}
    for request in requests:
        pasted = len(request.text) > OWN_TEXT
        rule = _STRICT_RULE if pasted or request.is_reply else _RULE
        for sentence, _ in laid_down(request):
            if not rule.search(sentence) or _NO_RULE.search(sentence) or _is_too_short(sentence):
                continue
            text = one_line(sentence, CONSTRAINT_SHOWN)
            worth = (3.0 if pasted else 6.0) + ages.newness(request.seq)
            found[text.casefold()] = Worthy(AuditedFact("constraint", text, request.seq), worth)
    yield from found.values()


def _is_too_short(sentence: str) -> bool:
    return sentence.isascii() and len(sentence.split()) < MIN_RULE_WORDS


def _open_items(
    turns: Sequence[Turn], actions: Sequence[Action], requests: Sequence[Request], ages: _Ages
) -> Iterator[Worthy]:
    """What the user asked for last, if the work on it was cut off; what the newest to-do list leaves open, which
    counts less the older it is; what the assistant's last words leave open, if the user has not answered."""
    said, said_seq = _last_words(turns)
    wanted = [request for request in requests if not request.is_reply]
    if wanted and turns[-1].seq != said_seq:
        asked = AuditedFact("open item", one_line(wanted[-1].text, ASKED_SHOWN), wanted[-1].seq)
        yield Worthy(asked, 6.0)
    list_seq = max((action.seq for action in actions if _keeps_a_list(action)), default=0)
    for place, line in enumerate(todo_lines(actions) or ()):
        text = line.partition("] ")[2].removesuffix(" (in progress)")
        if not line.startswith("[x]"):
            worth = 5.5 - place / 10 - 3.0 * (1.0 - ages.newness(list_seq))
            yield Worthy(AuditedFact("open item", text, list_seq), worth)
    if not requests or requests[-1].seq < said_seq:
        for place, text in enumerate(said_to_be_open(said)):
            yield Worthy(AuditedFact("open item", text, said_seq), 5.0 - place / 10)


def _keeps_a_list(action: Action) -> bool:
    return todo_lines([action]) is not None


def _last_words(turns: Sequence[Turn]) -> tuple[str, int]:
    for turn in reversed(turns):
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if turn.role == "assistant" and block.type == "text" and text.strip():
                return text, turn.seq
    return "", -1


def _errors(actions: Sequence[Action], ages: _Ages) -> Iterator[Worthy]:
    """Errors still standing, and those that went away after changes to files; not slips in the use of a tool."""
    handles = {action.seq: action.handle for action in actions if action.failed}
    went_well = {program: action.seq for action in actions if _went_well(action) for program in _programs(action)}
    for trouble in troubles(actions, changes_by_message(actions)):
        if trouble.is_slip or (trouble.resolved and not trouble.fix) or _LOOKING.match(trouble.label):
            continue
        stands = not trouble.resolved and went_well.get(_program(trouble.label), -1) < trouble.seq
        text = one_line(f"`{trouble.label}`: {trouble.complaint}", SHOWN)
        worth = (3.5 + ages.newness(trouble.seq) if stands else 1.0) + ages.newness(trouble.seq)
        yield Worthy(AuditedFact("error", text, trouble.seq, handles.get(trouble.seq)), worth)


_LOOKING = re.compile(r"^(?:rg|e?grep|ls|cat|find|sed|head|tail|wc|which|git (?:log|show|diff|status|grep)|test)\b")


def _went_well(action: Action) -> bool:
    return action.command is not None and action.output is not None and not action.failed and not action.refused


def _programs(action: Action) -> Iterator[str]:
    for part in re.split(r"&&|;|\n", bare_command(action.command or "")):
        yield _program(part)


def _program(command: str) -> str:
    """The program with its first word: what else the same one did since tells whether its failure still counts."""
    words = [word for word in command.split() if "=" not in word and word != "env"]
    return " ".join(words[:2])


_PASSING = re.compile(r"^(?:/private)?/(?:tmp|var/folders|dev|proc)/|^\$|[*{}<>$]|/\.claude/|^/?\.?$|^\d+$")
_CHANGES: frozenset[Verb] = frozenset({"edited", "created", "renamed"})


@dataclass(slots=True)
class _Touch:
    """How a file was used: by how many calls, whether changed, when last, and which output shows it.
    `named` if the user said it."""

    uses: int = 0
    changes: int = 0
    seq: int = 0
    handle: str | None = None
    gone: bool = False
    named: bool = False


def _touched(actions: Sequence[Action]) -> dict[str, _Touch]:
    touched: dict[str, _Touch] = {}
    for action in actions:
        for use in file_uses(action):
            touch = touched.setdefault(use.path.removeprefix("./"), _Touch())
            touch.uses += 1
            touch.changes += use.verb in _CHANGES
            touch.gone = use.verb == "deleted"
            touch.seq = action.seq
            touch.handle = action.handle or touch.handle
    return touched


def _paths(
    turns: Sequence[Turn], requests: Sequence[Request], touched: Mapping[str, _Touch], ages: _Ages
) -> Iterator[Worthy]:
    """Files changed; files that the user named; files read, more so those gone back to or talked about. Each under
    its fullest name."""
    talked = {_file_name(path) for text in _told(turns) for path in find_facts(text, 200).paths}
    named = _named_by_user(requests)
    files = _fullest({**{path: _Touch(seq=seq, named=True) for path, seq in named.items()}, **touched})
    names = {_file_name(path) for path in named}
    for path, touch in files.items():
        if touch.gone or _PASSING.search(path) or not _names_a_file(path):
            continue
        is_named = touch.named or _file_name(path) in names
        if touch.changes:
            worth = 3.0 + min(4, touch.changes) / 4
        elif is_named or touch.uses > 1 or (touch.uses and _file_name(path) in talked):
            worth = 1.0 + min(4, touch.uses) / 8
        elif touch.uses:
            worth = 0.0
        else:
            continue
        fact = AuditedFact("path", one_line(path, SHOWN), touch.seq, touch.handle)
        yield Worthy(fact, worth + is_named + ages.newness(touch.seq))


def _named_by_user(requests: Sequence[Request]) -> dict[str, int]:
    """The paths in what the user typed, with the message; a pasted text names too many."""
    typed = [request for request in requests if len(request.text) <= OWN_TEXT]
    return {path.removeprefix("./"): request.seq for request in typed for path in find_facts(request.text, 40).paths
            if _NAMED.search(path)}  # fmt: skip


_NAMED = re.compile(r"^[/~.]|/.*/|\.\w{1,8}$")
"""What of a user's words is a path without doubt, as `and/or` is not."""


def _told(turns: Iterable[Turn]) -> Iterator[str]:
    for turn in turns:
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if block.type == "text" and turn.role == "assistant":
                yield text


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _names_a_file(path: str) -> bool:
    return "/" in path or "." in path.strip(".")


def _fullest(touched: Mapping[str, _Touch]) -> dict[str, _Touch]:
    """The files, those known under a full and a shorter name once, if the shorter can only mean that one."""
    longer: dict[str, list[str]] = {}
    for path in touched:
        longer.setdefault(_file_name(path), []).append(path)
    files: dict[str, _Touch] = {}
    for path, touch in touched.items():
        same = [other for other in longer[_file_name(path)] if other != path and other.endswith(f"/{path}")]
        name = same[0] if len(same) == 1 else path
        files[name] = _joined(files[name], touch) if name in files else touch
    return files


def _joined(one: _Touch, other: _Touch) -> _Touch:
    newer = one if one.seq >= other.seq else other
    handle = newer.handle or one.handle or other.handle
    uses, changes = one.uses + other.uses, one.changes + other.changes
    return _Touch(uses, changes, newer.seq, handle, newer.gone, one.named or other.named)


_LABELLED = re.compile(
    r"\b(?:(?:ticket|issue|order|pull request|PR|case|bug|invoice|booking|reservation|confirmation|customer|account"
    r"|incident|job|run|build|flight|tracking|transaction|payment)(?:[ _-](?:id|number|no\.?|code|key))?"
    r"|[a-z]{2,20}[ _-]?(?:id|number))[\"'`]?(?: is |: ?|=| ?#| )[#`\"']{0,2}"
    r"((?=[A-Za-z_-]{0,30}\d)[A-Za-z0-9][\w-]{1,40})(?![\w./(])",
    re.IGNORECASE,
)
_ID_SHAPED = re.compile(
    r"^#\d+$|^#?[A-Z]{0,10}-?\d{2,}$|^[A-Z0-9]{5,}$|^[a-z]{2,10}-\d{3,}$|^(?=.{0,40}\d.{0,40}\d)[0-9a-f-]{7,40}$"
    r"|^[a-z]+(?:_[a-z0-9]+){0,3}_\d{2,}$|^#?[A-Z]{1,3}\d+$"
)
_LIST_MARK = re.compile(r"^#\d{1,2}$")
_STANDARD = re.compile(
    r"^(?:utf|sha|iso|rfc|md|aes|rsa|base|gpt|claude|http|tls|ipv|es|ecma|python|node|java|step|phase|part|task|tier"
    r"|level|line|lines|version|v|p|h|top|option|plan|page|row|column|col|section|chapter|cp|x|arm|amd|win|mp|exit"
    r"|opus|sonnet|haiku|go|day|week|round|test|item|point|rule)[-_ ]?\d{1,5}$"
    r"|^\d{1,3}(?:st|nd|rd|th|px|ms|kb|mb|gb|k|x|s|am|pm)$"
    r"|^\d{4}-\d\d(?:-\d\d)?$",
    re.IGNORECASE,
)


def _ids(turns: Sequence[Turn], requests: Sequence[Request], ages: _Ages) -> Iterator[Worthy]:
    """Ids that the user named, that the assistant told of after meeting them elsewhere, or that calls of three
    messages passed on."""
    named = {name for request in requests if len(request.text) <= OWN_TEXT for name in _ids_in(request.text)}
    told: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    last: dict[str, int] = {}
    for turn in turns:
        if turn.role == "assistant":
            for kind, counter in (("text", told), ("tool_call", passed)):
                counter.update(names := _ids_of(turn, kind))
                last.update(dict.fromkeys(names, turn.seq))
    listed = {name for name in told if _LIST_MARK.match(name)}
    names = named | {name for name in last if told[name] + passed[name] > 1 and told[name]} - listed
    names |= {name for name in passed if passed[name] > 2 and not name.isdigit()} - listed
    often = sorted(names, key=lambda name: (name not in named, -told[name] - passed[name], -last.get(name, 0), name))
    for name in _longest(often[:IDS_COMPARED]):
        uses = told[name] + passed[name]
        worth = (4.0 if name in named else 1.0 + 0.5 * bool(told[name])) + min(4, uses) / 4
        seq = last.get(name, ages.first)
        yield Worthy(AuditedFact("id", name, seq), worth + ages.newness(seq))


def _ids_of(turn: Turn, kind: str) -> set[str]:
    texts = [text for block, text in zip(turn.blocks, turn.texts, strict=True) if block.type == kind]
    return {name for text in texts for name in _ids_in(text)}


def _ids_in(text: str) -> set[str]:
    text = text[:20_000]
    found = {*find_facts(text, 100).ids, *(match.group(1).rstrip("-_") for match in _LABELLED.finditer(text))}
    return {name for name in found if _ID_SHAPED.match(name) and not _STANDARD.match(name)}


IDS_COMPARED = 200


def _longest(names: Iterable[str]) -> list[str]:
    """The ids that do not end another."""
    kept: list[str] = []
    for name in sorted(names, key=lambda name: (-len(name), name)):
        if not any(longer.endswith(name) for longer in kept):
            kept.append(name)
    return kept


def _with_handles(chosen: Iterable[Worthy], turns: Sequence[Turn]) -> Iterator[Worthy]:
    """The facts, ids with the newest tool output in which each stands."""
    worthies = list(chosen)
    wanted = {worthy.fact.text for worthy in worthies if worthy.fact.kind == "id"}
    homes: dict[str, str] = {}
    for turn in reversed(turns):
        for index, handle in turn.handles.items():
            for name in [name for name in wanted if name in turn.texts[index]]:
                homes[name] = handle
                wanted.discard(name)
    for worthy in worthies:
        fact = worthy.fact
        home = homes.get(fact.text) if fact.kind == "id" else fact.handle
        yield Worthy(AuditedFact(fact.kind, fact.text, fact.seq, home), worthy.worth)
