"""Decides whether a text contains a fact: verbatim, by an unambiguous tail of a path, or in other words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contextstash.context.extraction.files.session_files import base_of
from contextstash.context.extraction.summary.audit_facts import AuditedFact

MIN_WORD_SHARE = 0.6
"""The share of a fact's content words that must occur in one passage of the text, for the text to contain it."""

PASSAGE_LINES = 2
"""Lines of a passage: a bullet point and the line that continues it."""

MAX_SHORT_RULE_WORDS = 3
"""A constraint with at most this many content words is only found in a passage that also has a word of a rule: so few
words occur together by chance."""

_PATH_TOKEN = re.compile(r"[\w.@+~/-]+")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_RULE_WORDS = re.compile(
    r"\b(?:not?|never|n['’]t|don['’]?t|without|avoid|must|only|always|required?|forbidden|instead|rather|constraint"
    r"|should|shall|cannot|can['’]?t|rule|prefer\w*|exactly|ensure|make sure|asked|wants?|insist\w*|nicht|kein\w*|nie"
    r"|immer|nur|ohne|jamais|toujours|sans|nunca|siempre|sin|sempre|mai|senza|не|никогда|всегда|только|без)\b"
    r"|不|必|禁|只|ない|ず|마|절대|항상",
    re.IGNORECASE,
)
_STOP_WORDS = """
    the a an and or but if of to in on at by for from with as is are was were be been being it its this that these
    those i you we they he she my your our their me us them do does did done have has had will would can could may
    might so then than there here what which who when where how why all any some just also very too please let
    about into out up down over not no never always must should shall don only sure make use using used want need
    like get got der die das und oder ist sind ein eine einen zu im von mit für auf nicht le la les et ou un une
    des de du est el los las y en que es por con para il lo gli e di"""
_ERROR_WORDS = "error errors exit failed failure first code bash tests test passed command line file"
_STOP, _OF_ANY_ERROR = frozenset(_STOP_WORDS.split()), frozenset(_ERROR_WORDS.split())


@dataclass(frozen=True)
class FactIndex:
    """A text, indexed to look up which facts it contains. `paths` are all paths that a short name could refer to."""

    text: str
    paths: Sequence[str]
    _folded: str = field(init=False)
    _named: dict[str, list[str]] = field(init=False)
    _known: dict[str, list[str]] = field(init=False)
    _passages: list[tuple[str, frozenset[str]]] = field(init=False)

    def __post_init__(self) -> None:
        lines = [line for line in self.text.split("\n") if line.strip()]
        windows = ["\n".join(lines[start : start + PASSAGE_LINES]) for start in range(len(lines))]
        object.__setattr__(self, "_folded", self.text.casefold())
        object.__setattr__(self, "_named", _by_last_part(_paths_named(self.text, lines)))
        object.__setattr__(self, "_known", _by_last_part(self.paths))
        object.__setattr__(self, "_passages", [(window, frozenset(_terms(window))) for window in windows])

    def contains(self, fact: AuditedFact) -> bool:
        """Whether the text contains the fact."""
        if fact.kind == "path":
            return self._has_path(fact.text)
        if fact.kind == "id":
            return self._has_id(fact.text)
        if fact.kind == "error":
            return self._has_error(fact.text)
        return self._has_words(fact.text, is_rule=fact.kind == "constraint")

    def _has_path(self, path: str) -> bool:
        """In full, as the end of a longer path, or by a tail that no other known path has."""
        if not _PATH_TOKEN.fullmatch(path):
            return path in self.text
        path = _plain(path)
        for named in self._named.get(_last_part(path), ()):
            if _ends_in(named, path) or (_ends_in(path, named) and self._is_unambiguous(named, path)):
                return True
        return False

    def _is_unambiguous(self, tail: str, path: str) -> bool:
        meant = [known for known in self._known.get(_last_part(path), ()) if _ends_in(known, tail)]
        return all(_ends_in(path, other) or _ends_in(other, path) for other in meant)

    def _has_id(self, name: str) -> bool:
        """As a whole word; a long hash also by its first seven digits, as git abbreviates it."""
        name = name.casefold()
        if re.fullmatch(r"[0-9a-f]{8,40}", name):
            return bool(re.search(rf"(?<![^\W_]){name[:7]}", self._folded))
        return bool(re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", self._folded))

    def _has_error(self, text: str) -> bool:
        """Its message verbatim, or most of the message's specific words in one passage."""
        # By the lengths below, 60 characters identify a message, 12 or fewer do not.
        _, _, error_message = text.partition("`: ")
        error_message = re.sub(r"^exit \d+: ", "", error_message or text).rstrip("…")
        core = error_message.casefold()[:60].strip()
        if len(core) > 12 and core in self._folded:
            return True
        terms = [term for term in _terms(error_message) if term not in _OF_ANY_ERROR]
        return self._in_one_passage(terms[:14], rule=False)

    def _has_words(self, text: str, *, is_rule: bool) -> bool:
        if text.casefold().rstrip(".!… ") in self._folded:
            return True
        terms = list(_terms(text))
        return self._in_one_passage(terms, rule=is_rule and len(terms) <= MAX_SHORT_RULE_WORDS)

    def _in_one_passage(self, terms: Sequence[str], *, rule: bool) -> bool:
        wanted = frozenset(terms)
        if not wanted:
            return False
        return any(
            len(wanted & words) >= MIN_WORD_SHARE * len(wanted) and (not rule or _RULE_WORDS.search(passage))
            for passage, words in self._passages
        )


def _paths_named(text: str, lines: Iterable[str]) -> list[str]:
    tokens = {token.strip("./-") if not token.startswith(("/", "~")) else token.rstrip("./-")
              for token in _PATH_TOKEN.findall(text)}  # fmt: skip
    bases = {base for line in lines if (base := base_of(line.removeprefix("- ")))}
    return [*tokens, *(f"{base}/{token}" for base in bases for token in tokens if not token.startswith(("/", "~")))]


def _plain(path: str) -> str:
    return path.removeprefix("./").rstrip("/")


def _last_part(path: str) -> str:
    return path.rsplit("/", 1)[-1].lstrip(".")


def _by_last_part(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(map(_plain, paths)):
        found.setdefault(_last_part(path), []).append(path)
    return found


def _ends_in(path: str, tail: str) -> bool:
    return path == tail or path.endswith(f"/{tail.lstrip('/')}") or path.lstrip("./~") == tail


def _terms(text: str) -> dict[str, None]:
    """The content words in order, in lower case and without common endings; for scripts without spaces, pairs of
    characters."""
    text = text.casefold()
    found: dict[str, None] = {}
    for run in _WIDE.findall(text):
        found.update(dict.fromkeys(run[place : place + 2] for place in range(max(1, len(run) - 1))))
    for word in _WORD.findall(_WIDE.sub(" ", text)):
        if word not in _STOP and (len(word) > 2 or word.isdigit()):
            found[_stem(word)] = None
    return found


def _stem(word: str) -> str:
    for ending in ("ingly", "edly", "ing", "ies", "ed", "es", "ly", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
