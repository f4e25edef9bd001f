"""The facts that are needed to continue a session, and that a summary of it should contain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from contextstash.context.extraction.actions import Action, actions_of
from contextstash.context.extraction.errors import failures
from contextstash.context.extraction.facts import find_facts
from contextstash.context.extraction.files.files_under_edit import EditedFile, files_of
from contextstash.context.extraction.files.session_files import changes_by_message
from contextstash.context.extraction.todos import stated_open_items, todo_lines
from contextstash.context.extraction.turns import Turn
from contextstash.context.extraction.user.requests_and_rules import MAX_TYPED_LENGTH, Request, requests_of, user_rules
from contextstash.context.text.sanitize import one_line

FactKind = Literal["path", "id", "error", "open item", "constraint"]

MAX_OF_A_KIND: dict[FactKind, int] = {"path": 28, "id": 14, "error": 10, "open item": 10, "constraint": 18}
"""At most this many facts of each kind, 80 in total; further ones are not audited. Paths are the most numerous facts,
and constraints the most expensive to lose."""

MAX_FACT_LENGTH = 260
"""Characters of a fact, about two lines; the rest is not compared."""

MAX_CONSTRAINT_LENGTH = 400
"""In characters, as long as the longest sentence that counts as a rule (`MAX_RULE_LENGTH`): it must not be cut."""

MAX_REQUEST_LENGTH = 160
"""Characters of the newest request as an open item: one line that identifies it."""


@dataclass(frozen=True, slots=True)
class AuditedFact:
    """One fact, in one line. `seq` is the last message that mentions it, `handle` a tool output that contains it, if
    there is one."""

    kind: FactKind
    text: str
    seq: int
    handle: str | None = None


@dataclass(frozen=True, slots=True)
class RankedFact:
    """A fact and its value, which is higher if it cannot be found out again, and if it is recent.

    The values below only order the facts: constraints (6), then open items (5 to 6), open errors
    (3.5), changed files (3 to 4), and at the end what was only read. Recency adds up to 1 or 2.
    """

    fact: AuditedFact
    value: float


@dataclass(frozen=True, slots=True)
class RelevantFacts:
    """The relevant facts, at most 80, most valuable first; and every path that the session used, which is needed to
    decide whether the tail of one is ambiguous."""

    facts: tuple[RankedFact, ...]
    paths: tuple[str, ...]


def relevant_facts(turns: Sequence[Turn]) -> RelevantFacts:
    """What is needed to continue: the user's constraints in their own words, open items, errors of the work, files that
    were changed or used repeatedly, and ids that the user named or that occur more than once in the conversation."""
    actions = actions_of(turns)
    requests, _ = requests_of(turns)
    files = files_of(actions)
    ages = _Ages(turns[0].seq if turns else 0, turns[-1].seq if turns else 0)
    by_kind: dict[FactKind, list[RankedFact]] = {
        "constraint": list(_constraints(requests, ages)),
        "open item": list(_open_items(turns, actions, requests, ages)),
        "error": list(_errors(actions, ages)),
        "path": list(_paths(turns, requests, files, ages)),
        "id": list(_ids(turns, requests, ages)),
    }
    chosen: list[RankedFact] = []
    for kind, found in by_kind.items():
        found.sort(key=lambda ranked: (-ranked.value, -ranked.fact.seq))
        chosen += found[: MAX_OF_A_KIND[kind]]
    chosen.sort(key=lambda ranked: (-ranked.value, -ranked.fact.seq))
    return RelevantFacts(tuple(_with_handles(chosen, turns)), tuple(file.path.removeprefix("./") for file in files))


@dataclass(frozen=True, slots=True)
class _Ages:
    first: int
    last: int

    def recency(self, seq: int) -> float:
        """From 0 for the first message to 1 for the last."""
        return (seq - self.first) / max(1, self.last - self.first)


_NO_RULE = re.compile(
    r"^(?:I|we|you|it|this|that|they|there) (?:(?:also|still|really|just) )?(?:don['’]?t|do not|can['’]?t"
    r"|cannot|didn['’]?t) (?:know|think|see|understand|remember|have|get|mind|care|believe|seem|find|look|work|recall"
    r"|like to)\b"
    r"|\b(?:if|whether|when) (?:not|you (?:can['’]?t|don['’]?t))\b|why (?:don['’]?t|can['’]?t)"
    r"|\bnever (?:been|\w{2,}(?:ed|[^s]s))\b|\bonly \w{2,}[^s]s\b",
    re.IGNORECASE,
)
MIN_RULE_WORDS = 3
"""Fewer words, such as "only this", are meaningless without what was said before."""


def _constraints(requests: Sequence[Request], ages: _Ages) -> Iterator[RankedFact]:
    """The user's strong rules, each once. One in a long pasted text has a lower value than one that the user typed."""
    found: dict[str, RankedFact] = {}
    for request in requests:
        for sentence, strong in user_rules(request):
            short = sentence.isascii() and len(sentence.split()) < MIN_RULE_WORDS
            if not strong or short or _NO_RULE.search(sentence):
                continue
            text = one_line(sentence, MAX_CONSTRAINT_LENGTH)
            value = (3.0 if len(request.text) > MAX_TYPED_LENGTH else 6.0) + ages.recency(request.seq)
            found[text.casefold()] = RankedFact(AuditedFact("constraint", text, request.seq), value)
    yield from found.values()


def _open_items(
    turns: Sequence[Turn], actions: Sequence[Action], requests: Sequence[Request], ages: _Ages
) -> Iterator[RankedFact]:
    """The user's last request, if the work on it was interrupted; the open entries of the newest to-do list, with a
    lower value the older it is; and what the assistant's last message leaves open, if the user has not answered it."""
    said, said_seq = _last_words(turns)
    wanted = [request for request in requests if not request.is_reply]
    if wanted and turns[-1].seq != said_seq:
        asked = AuditedFact("open item", one_line(wanted[-1].text, MAX_REQUEST_LENGTH), wanted[-1].seq)
        yield RankedFact(asked, 6.0)
    list_seq = max((action.seq for action in actions if _is_todo_list(action)), default=0)
    for place, line in enumerate(todo_lines(actions) or ()):
        text = line.partition("] ")[2].removesuffix(" (in progress)")
        if not line.startswith("[x]"):
            value = 5.5 - place / 10 - 3.0 * (1.0 - ages.recency(list_seq))
            yield RankedFact(AuditedFact("open item", text, list_seq), value)
    if turns and turns[-1].ends_work and (not requests or requests[-1].seq < said_seq):
        for place, text in enumerate(stated_open_items(said)):
            yield RankedFact(AuditedFact("open item", text, said_seq), 5.0 - place / 10)


def _is_todo_list(action: Action) -> bool:
    return todo_lines([action]) is not None


def _last_words(turns: Sequence[Turn]) -> tuple[str, int]:
    for turn in reversed(turns):
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if turn.role == "assistant" and block.type == "text" and text.strip():
                return text, turn.seq
    return "", -1


def _errors(actions: Sequence[Action], ages: _Ages) -> Iterator[RankedFact]:
    """The errors that still stand."""
    handles = {action.seq: action.handle for action in actions if action.failed}
    for failure in failures(actions, changes_by_message(actions)):
        text = one_line(f"`{failure.label}`: {failure.error_message}", MAX_FACT_LENGTH)
        value = 3.5 + 2 * ages.recency(failure.seq)
        yield RankedFact(AuditedFact("error", text, failure.seq, handles.get(failure.seq)), value)


_IGNORED_PATH = re.compile(r"^(?:/private)?/(?:tmp|var/folders|dev|proc)/|^\$|[*{}<>$]|/\.claude/|^/?\.?$|^\d+$")


def _paths(
    turns: Sequence[Turn], requests: Sequence[Request], files: Sequence[EditedFile], ages: _Ages
) -> Iterator[RankedFact]:
    """Changed files, files that the user named, and read files, with a higher value if the assistant mentions them."""
    talked = {_file_name(path) for text in _assistant_texts(turns) for path in find_facts(text, 200).paths}
    named = _named_by_user(requests)
    names = {_file_name(path) for path in named}
    known = {_file_name(file.path) for file in files}
    for path, seq in named.items():
        if _file_name(path) not in known and not _IGNORED_PATH.search(path) and _names_a_file(path):
            yield RankedFact(AuditedFact("path", one_line(path, MAX_FACT_LENGTH), seq), 2.0 + ages.recency(seq))
    for file in files:
        path = file.path.removeprefix("./")
        if file.deleted or _IGNORED_PATH.search(path) or not _names_a_file(path):
            continue
        seq = max(file.changed_at, -1 if file.read_at is None else file.read_at)
        value = 3.5 if file.changed_at >= 0 else 1.0 * (_file_name(path) in names | talked)
        fact = AuditedFact("path", one_line(path, MAX_FACT_LENGTH), seq, file.handle)
        yield RankedFact(fact, value + (_file_name(path) in names) + ages.recency(seq))


def _named_by_user(requests: Sequence[Request]) -> dict[str, int]:
    """The paths in messages that the user typed, with the message; pasted text contains too many."""
    typed = [request for request in requests if len(request.text) <= MAX_TYPED_LENGTH]
    return {path.removeprefix("./"): request.seq for request in typed for path in find_facts(request.text, 40).paths
            if _NAMED.search(path)}  # fmt: skip


_NAMED = re.compile(r"^[/~.]|/.*/|\.\w{1,8}$")
"""Words of a user that are certainly paths, unlike `and/or`."""


def _assistant_texts(turns: Iterable[Turn]) -> Iterator[str]:
    for turn in turns:
        for block, text in zip(turn.blocks, turn.texts, strict=True):
            if block.type == "text" and turn.role == "assistant":
                yield text


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _names_a_file(path: str) -> bool:
    return "/" in path or bool(_ENDING.search(path.strip(".")))


_ENDING = re.compile(r"\.\w{1,8}$")
"""Of a file; the last part of a dotted name, such as `orders.test_refunds`, is usually longer."""


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


def _ids(turns: Sequence[Turn], requests: Sequence[Request], ages: _Ages) -> Iterator[RankedFact]:
    """Ids that the user named, that the assistant mentioned and that occur at least twice, or that at least three
    messages use in calls."""
    named = {name for request in requests if len(request.text) <= MAX_TYPED_LENGTH for name in _ids_in(request.text)}
    mentioned: Counter[str] = Counter()
    used: Counter[str] = Counter()
    last: dict[str, int] = {}
    for turn in turns:
        if turn.role == "assistant":
            for kind, counter in (("text", mentioned), ("tool_call", used)):
                counter.update(names := _ids_of(turn, kind))
                last.update(dict.fromkeys(names, turn.seq))
    listed = {name for name in mentioned if _LIST_MARK.match(name)}
    names = named | {name for name in last if mentioned[name] + used[name] > 1 and mentioned[name]} - listed
    names |= {name for name in used if used[name] > 2 and not name.isdigit()} - listed
    order = sorted(names, key=lambda id_: (id_ not in named, -mentioned[id_] - used[id_], -last.get(id_, 0), id_))
    for name in _longest(order[:MAX_COMPARED_IDS]):
        uses = mentioned[name] + used[name]
        value = (4.0 if name in named else 1.0 + 0.5 * bool(mentioned[name])) + min(4, uses) / 4
        seq = last.get(name, ages.first)
        yield RankedFact(AuditedFact("id", name, seq), value + ages.recency(seq))


def _ids_of(turn: Turn, kind: str) -> set[str]:
    texts = [text for block, text in zip(turn.blocks, turn.texts, strict=True) if block.type == kind]
    return {name for text in texts for name in _ids_in(text)}


def _ids_in(text: str) -> set[str]:
    text = text[:20_000]  # about 5,000 tokens: a longer text lists ids rather than uses them
    found = {*find_facts(text, 100).ids, *(match.group(1).rstrip("-_") for match in _LABELLED.finditer(text))}
    return {name for name in found if _ID_SHAPED.match(name) and not _STANDARD.match(name)}


MAX_COMPARED_IDS = 200
"""How many ids are compared with each other. It bounds the quadratic comparison below."""


def _longest(names: Iterable[str]) -> list[str]:
    """The ids that are not the end of another one."""
    kept: list[str] = []
    for name in sorted(names, key=lambda name: (-len(name), name)):
        if not any(longer.endswith(name) for longer in kept):
            kept.append(name)
    return kept


def _with_handles(chosen: Iterable[RankedFact], turns: Sequence[Turn]) -> Iterator[RankedFact]:
    """The facts, with the newest tool output that contains it added to each id."""
    ranked_facts = list(chosen)
    wanted = {ranked.fact.text for ranked in ranked_facts if ranked.fact.kind == "id"}
    sources: dict[str, str] = {}
    for turn in reversed(turns):
        for index, handle in turn.handles.items():
            for name in [name for name in wanted if name in turn.texts[index]]:
                sources[name] = handle
                wanted.discard(name)
    for ranked in ranked_facts:
        fact = ranked.fact
        source = sources.get(fact.text) if fact.kind == "id" else fact.handle
        yield RankedFact(AuditedFact(fact.kind, fact.text, fact.seq, source), ranked.value)
