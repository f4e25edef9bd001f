"""Findings: the results and work of the assistant, in its own most informative sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.facts import find_facts
from contextstash.context.extraction.statements import is_proposal, is_statement, is_whole, takes_back
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.imitations import defused
from contextstash.context.text.sanitize import one_line
from contextstash.context.text.sentences import Passage, own_passages

MAX_LENGTH = 420
"""Characters of a sentence; a longer one is a pasted text or a list."""

MIN_VALUE = 1.1
"""A sentence of less value is left out: it must contain two names, or a name and a word such as "fixed", or be in the
text that ends a turn and contain one of these."""

_INFORMATIVE = re.compile(
    r"\b(?:root cause|because|turns? out|the (?:issue|problem|bug|fix|reason|cause|error) (?:is|was)|found"
    r"|confirmed|decided|instead of|fixed|added|removed|replaced|renamed|changed|updated|implemented|created"
    r"|moved|now (?:passes|works|uses|returns)|pass(?:es|ed)?|fail(?:s|ed)|does ?n['’]?t|never|already|only"
    r"|missing|means|so that|therefore|committed|pushed|merged)\b"
    r"|原因|问题|修复|发现|因为|已",
    re.IGNORECASE,
)
_NARRATION = re.compile(
    r"^(?:now,? |ok(?:ay)?,? |good[.,!]? |great[.,!]? |perfect[.,!]? |excellent[.,!]? )?"
    r"(?:let me|let['’]s|i['’]ll|i will|i['’]m going to|i am going to|now i['’]ll|now i need|i"
    r" need to|i should"
    r"|i want to|next,? i"
    r"|(?:now )?(?:checking|looking at|running|returning|moving|switching|continuing|starting|proceeding)\b"
    r"|i['’]ve got)\b",
    re.IGNORECASE,
)

_OF_THE_MOMENT = re.compile(
    r"\bi(?:['’]m| am) (?:\w+ly |now |also |just )?\w+ing\b|\b(?:so|and|next,?) (?:now )?i(?:['’]ll| will)\b",
    re.IGNORECASE,
)
"""What a sentence says if it tells what the agent does now or next."""

_LEAD = re.compile(
    r"^(?:(?:now|next|first|then|finally|also|good|great|perfect|excellent|ok(?:ay)?|alright|yes|so|and|step \d+|\d+"
    r"|[A-Z]\w* \d+)\b[ ,.:!—–-]*)+",
    re.IGNORECASE,
)
_VERBS = (
    r"(?:add|adjust|apply|avoid|build|change|check|clean up|commit|compare|confirm|consider|continue|convert|create"
    r"|debug|delete|disable|do not|don['’]t|drop|edit|enable|ensure|examine|explore|extend|extract|find|fix|give|handle"
    r"|implement|inspect|install|investigate|keep|leave|look|make|merge|mock|move|note|open|pass|prefer|push|read|rebase"
    r"|refactor|remember|remove|rename|replace|re-?run|return|review|rewrite|run|search|see|set|simplify|skip|split"
    r"|start|test|try|update|use|verify|wire|wrap|write)"
)
_INSTRUCTS = re.compile(
    rf"(?:{_VERBS}"
    r"(?= (?:an?|the|all|any|both|each|every|it|its|that|them|these|this|those|if|whether|how|what|where|why|which|at"
    r"|to|into|from|with|only|again|up|for|sure|our|my|your|tests?|imports?|missing|unused|new)\b| [`“\"]"
    r"| (?-i:[A-Za-z]*[a-z][A-Z])| \S*[_/.(]\S| line \d)"
    r"|need(?:s|ed)? to\b|time to\b|still (?:need|have) to\b|we(?:['’]ll| will| need to| have to)\b)",
    re.IGNORECASE,
)
"""How a sentence begins that says what to do, and not what is the case. Without what follows, the word may be a noun:
"Test suite passes"."""

_LABEL = re.compile(r"[^:`]{1,60}: +(?=[A-Z])")
_ANNOUNCES = re.compile(rf"(?:(?:now|next|then|finally)\b(?! that\b)|(?:[^:`]{{1,60}}: )?{_VERBS}\b)", re.IGNORECASE)
_HAPPENS = re.compile(
    r"\b(?:is|are|was|were|has|have|had|does|can|cannot|will|must|no longer|\w+ed|(?:pass|work|use|return|take|hold"
    r"|give|read|write|build|compile|fail|call|handle|show|support|run|contain|need|match|accept|reject|skip|print|start|stop)e?s)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
"""What a sentence such as "Now the tests for it." or "Good, the newest one only." lacks: it states nothing."""

_SUPPOSES = re.compile(
    r"\b(?:either|could|might|may|maybe|perhaps|possib\w+|likely|options?|hypothes\w+|candidates?|suspects?|wonder|whether"
    r"|if|approaches|alternatives|consider|ideas?|should)\b.{0,120}:\s*$|\?\s*$",
    re.IGNORECASE,
)
_LISTED = re.compile(r"\s*(?:[-*+•]|\(?[\dA-Za-z][.)])\s")


def without_suppositions(text: str) -> str:
    """The text without the lists behind a question or a line such as "then either:", whose items are only supposed."""
    kept: list[str] = []
    supposed = False
    for line in text.split("\n"):
        listed = bool(_LISTED.match(line))
        if line.strip() and not listed:
            supposed = bool(_SUPPOSES.search(line[-200:].rstrip().rstrip("*_")))  # the line may be bold
        if not (supposed and listed):
            kept.append(line)
    return "\n".join(kept)


_POINTS_BACK = re.compile(
    r"(?:it|they|he|she)(?:['’]\w+)?\b|(?:this|that|these|those)(?:['’]s)?"
    r" (?:are|were|have|had|do|did|will|would|can|could|should|may|might|must|only|just|already|now|way|\w+s)\b"
    r"|(?:that|this)['’]s\b"
    r"|(?:all (?:of (?:them|these)|two|three|four|five|six)|both|each|neither|none|the (?:former|latter|other))"
    r" (?:of them |of these )?(?:is|are|was|were|has|have|had|do|does|did|need|use|work|pass|fail|call)s?\b",
    re.IGNORECASE,
)
"""How a sentence begins that is about what the one before it named."""

_SAID = (
    r"(?:said|says|agree[sd]?|approve[sd]?|decide[sd]?|confirm(?:s|ed)?|answer(?:s|ed)?|repl(?:y|ies|ied)|respond(?:s|ed)?"
    r"|ask(?:s|ed)?|request(?:s|ed)?|want(?:s|ed)?|told|tells|allow(?:s|ed)?|permit(?:s|ted)?|accepted|authori[sz]e[sd]?"
    r"|chose|chosen|prefer(?:s|red)?|instruct(?:s|ed)?|consent(?:s|ed)?|insist(?:s|ed)?|gave|given|granted)\b"
)
_ADVERBS = r"(?:(?:has|had|have|also|already|then|just|explicitly|clearly|now|previously|earlier|later|again)\s+){0,3}"
_WORD = (
    r"(?:permission|approval|consent|decisions?|requests?|instructions?|wish(?:es)?|answers?|go-ahead|preferences?"
    r"|confirmation|agreement|words?)\b"
)
_OF_USER = re.compile(
    rf"\b(?:user|you)(?:['’]ve)?\s+{_ADVERBS}{_SAID}|\b(?:user['’]s|your)\s+(?:\w+\s+)?{_WORD}"
    r"|\buser\s+(?:approval|consent|decision|confirmation)\b"
    rf"|\b{_SAID}\s+(?:(?:on|to)\s+)?(?:by|with|from)\s+(?:the\s+)?(?:user|you)\b"
    r"|\bNutzer(?:in)?\s+(?:hat|will|wollte|sagte|möchte|erlaubt)\b|\bBenutzer(?:in)?\s+(?:hat|will|wollte|sagte|möchte)\b"
    r"|\butilisateur\s+(?:a|veut|demande|accepte)\b|\busuario\s+(?:ha|dijo|quiere|pidió|aceptó)\b"
    r"|用户(?:已经?|也|还)?(?:同意|批准|决定|确认|说|要求|允许|回答|选择)|ユーザー[はが]",
    re.IGNORECASE,
)
"""What the assistant says that the user said or decided: only the user's own words tell that."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A passage of the assistant in message `seq` that states something. `closing` is whether its text ends a turn,
    `did` whether it tells what was done, which stays true. One that does not `tell` enough to be shown may still
    contradict an earlier one."""

    text: str
    value: float
    seq: int = 0
    closing: bool = False
    tells: bool = True
    did: bool = False


def statements_of(turns: Iterable[Turn], skip: int = -1) -> list[Finding]:
    """The statements of the assistant in order, without quotations. Its last text before the user's next message has a
    higher value than remarks between tool calls, which that text or a commit ends: they tell nothing from then on.
    `skip` is a message whose text is shown elsewhere."""
    found: dict[str, Finding] = {}
    said_by = list(turns)
    texts = _assistant_texts(said_by)
    ended = max([*_commits(said_by), *(turn.seq for turn, _, closing in texts if closing)], default=-1)
    for turn, text, closing in texts:
        passages = [*own_passages(without_suppositions(text))] if turn.seq != skip else []
        if not closing and any(takes_back(each) for passage in passages for each in passage.sentences):
            continue  # the agent thinks aloud, and takes most of it back
        for number, passage in enumerate(passages):
            shown, value, did = _told(passage, closing)
            if value > 0:
                worth = value + 0.6 * (closing and number < 3)
                tells = closing or (turn.seq > ended and bool(find_facts(shown, 1).names()))
                finding = Finding(shown, worth, turn.seq, closing, tells and value >= MIN_VALUE, did)
                found.setdefault(shown.casefold(), finding)
    return [
        replace(finding, value=finding.value + 1.5 * place / len(found)) for place, finding in enumerate(found.values())
    ]


_DID = re.compile(
    r"(?:[^:—–]{1,80}[:—–] )?(?:\W*(?:I|we)(?:['’]ve| have)? )?(?:now |also |then )?"
    r"(?:added|fixed|removed|replaced|renamed|changed|updated"
    r"|implemented|created|moved|extracted|wired|introduced|rewrote|switched|converted|deleted|dropped|split|cleaned"
    r"|documented|covered|bumped|merged|pushed|opened|committed|made|refactored|simplified|restored|reverted|tightened)\b"
    r"|(?:`[^`]+`|\S+)(?: \w+){0,3} now \w+s\b",
    re.IGNORECASE,
)
"""How a sentence begins that reports what its author did."""


def _told(passage: Passage, closing: bool) -> tuple[str, float, bool]:
    """What a passage states, from the first sentence that says alone what it is about, up to one that only
    considers or announces something; its value, 0 if it states nothing; and whether it tells what was done."""
    kept: list[str] = []
    for place, sentence in enumerate(passage.sentences):
        if takes_back(sentence):
            kept = []
        elif not kept:
            leans = _ONLY_A_CONDITION.match(sentence) or (place and _LEANS.match(_LEAD.sub("", sentence)))
            kept += [sentence] if _value(sentence, closing) > 0 and not leans else []
        elif _is_aside(sentence) or len(" ".join([*kept, sentence])) > MAX_LENGTH:
            break
        else:
            kept.append(sentence)
    if not kept:
        return "", 0.0, False
    text = " ".join(kept)
    if kept[0] == passage.sentences[0] and _names_something(passage.title) and passage.title not in text:
        text = f"{passage.title}: {text}"
    return one_line(defused(text), len(text)), _worth(text, closing), any(map(_DID.match, kept))


MAX_TITLE = 100
"""Characters of a heading that says what the passage below it is about. A longer one is a sentence of its own."""


def _names_something(title: str) -> bool:
    return len(title) <= MAX_TITLE and bool(find_facts(title, 1).names() or len(title.split()) > 2)


_CONSIDERS = re.compile(r"(?:consider|perhaps|maybe|alternatively|otherwise|want me|let me know)\b", re.IGNORECASE)


def _is_aside(sentence: str) -> bool:
    """Whether a sentence behind a statement is none: what comes next, is asked or proposed."""
    said = _LEAD.sub("", sentence)
    return bool(
        sentence.endswith((":", "?", "？"))
        or _CONSIDERS.match(sentence)
        or _NARRATION.match(sentence)
        or _OF_THE_MOMENT.search(sentence)
        or _INSTRUCTS.match(said)
        or is_proposal(sentence)
        or _OF_USER.search(sentence)
    )


def _assistant_texts(turns: Iterable[Turn]) -> list[tuple[Turn, str, bool]]:
    """Each assistant text, and whether it ends a turn: the user's next message follows, and no call before that."""
    said: list[tuple[Turn, str, bool]] = []
    called = 0
    for turn in turns:
        texts = turn.said
        if turn.role == "assistant":
            said += [(turn, text, False) for text in texts if text.strip()]
        elif turn.role == "user" and texts:
            said[called:] = [(*entry[:2], True) for entry in said[called:]]
        if any(block.type in ("tool_call", "tool_result") for block in turn.blocks):
            called = len(said)
    return said


_COMMIT = re.compile(r"\bgit (?:-\S+ \S+ )?commit\b")


def _commits(turns: Iterable[Turn]) -> Iterator[int]:
    """The messages with which the assistant committed."""
    for turn in turns:
        calls = (text for block, text in zip(turn.blocks, turn.texts, strict=True) if block.type == "tool_call")
        if turn.role == "assistant" and any(map(_COMMIT.search, calls)):
            yield turn.seq


def _value(sentence: str, closing: bool) -> float:
    """0 if the sentence is to be left out. The summands only order the sentences."""
    if not 25 <= len(sentence) <= MAX_LENGTH or _NARRATION.match(sentence) or sentence.endswith((":", "?")):
        return 0.0
    if not is_statement(sentence) or not is_whole(sentence) or _OF_USER.search(sentence):
        return 0.0
    if _OF_THE_MOMENT.search(sentence):
        return 0.0
    said = _LEAD.sub("", sentence)
    if (_ANNOUNCES.match(sentence) or said[:1].islower()) and not _HAPPENS.search(said):
        return 0.0
    if _INSTRUCTS.match(_LABEL.sub("", said)) or _POINTS_BACK.match(said):
        return 0.0
    return _worth(sentence, closing)


def _worth(text: str, closing: bool) -> float:
    names = len(find_facts(text, 8).names())
    return 0.1 + 0.5 * min(4, names) + 1.0 * bool(_INFORMATIVE.search(text)) + 0.8 * closing


_LEANS = re.compile(
    r"(?:[^:—–]{1,40}[:—–] )?(?:the same|such|in (?:that|this|these|those)|then|here|this|these|those"
    r"|[A-Z]\w+ed (?:\w+ly )?(?:in|to|at|by|on|with|from|as|for)\b)\b",
    re.IGNORECASE,
)
_ONLY_A_CONDITION = re.compile(r"(?:when|while|as|once|after|before|since|where|until)\b[^,]*$", re.IGNORECASE)
"""How a sentence behind others begins if it is about what they named; and one that is only a part of a sentence."""


REPEATED_SHARE = 0.7
"""A later sentence with at least this share of the words of an earlier one takes its place: it says the same, or says
it differently. Two statements about one function share half of their words."""

_CHANGED = re.compile(
    r"\b(?:now|no longer|any ?more|instead|actually|turns? out|in fact|was wrong|incorrect|revert(?:ed|s)?|moved"
    r"|removed|replaced|renamed|nicht mehr|jetzt|stattdessen|maintenant|ahora)\b|不再|现在|其实",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:not|no|never|cannot|without|fail(?:s|ed|ing)?|broken|nicht|kein\w*)\b|n['’]t\b", re.IGNORECASE
)
_OUTCOME = re.compile(
    r"\b(?:pass(?:es|ed|ing)?|fail(?:s|ed|ing|ure|ures)?|clean|green|succeed(?:s|ed)?|builds?|compiles?)\b",
    re.IGNORECASE,
)
_DIAGNOSIS = re.compile(
    r"(?:so,? |but )?the (?:\w+ )?(?:issue|problem|bug|cause|reason|culprit) (?:here )?(?:is|was|lies|comes)\b",
    re.IGNORECASE,
)
_TERM = re.compile(r"[^\W_]\w*")
_CODE = re.compile(r"`([^`]+)`|\b(\w*(?:[a-z][A-Z]|_)\w*)")


@dataclass(frozen=True, slots=True)
class _Said:
    """What is compared of a sentence: its words, its names in code, whether it negates something, says that something
    changed, only says how a run ended, or what the cause of the trouble is: of causes the newest holds."""

    words: frozenset[str]
    names: frozenset[str]
    negates: bool
    changed: bool
    outcome: bool
    diagnoses: bool

    def replaces(self, earlier: _Said) -> bool:
        """Whether the earlier sentence does not hold beside this one, or says no more."""
        if self.diagnoses and earlier.diagnoses:
            return True
        if self.outcome or earlier.outcome:
            return self.outcome and earlier.outcome
        shared = len(self.words & earlier.words)
        if shared >= REPEATED_SHARE * len(earlier.words) and earlier.names <= self.names:
            return True
        if self.changed and self.names and self.names <= earlier.names:
            return True
        same = self.names == earlier.names and 2 * shared >= len(earlier.words | self.words)
        return same and self.negates != earlier.negates


def standing_findings(found: Sequence[str]) -> set[str]:
    """The findings, oldest first, without those that a later one repeats or contradicts."""
    said = [_read(text) for text in found]
    return {
        text for place, text in enumerate(found) if not any(later.replaces(said[place]) for later in said[place + 1 :])
    }


def _read(text: str) -> _Said:
    names = frozenset(name.rstrip("()") for pair in _CODE.findall(text) for name in pair if name)
    words = frozenset(word.casefold() for word in _TERM.findall(text) if len(word) > 2 or not word.isascii())
    outcome = not names and bool(_OUTCOME.search(text))
    diagnoses = bool(_DIAGNOSIS.match(text))
    return _Said(words, names, bool(_NEGATION.search(text)), bool(_CHANGED.search(text)), outcome, diagnoses)


MAX_TURNS = 2
"""Turns that the agent ended whose findings are told, besides those of the turn under way: older ones are of other
work, and seldom hold still. search_history finds them."""

_ABSENT = re.compile(
    r"\b(?:could(?: not|n['’]t) find|(?:do|did)(?:n['’]t| not) (?:see|find)|missing|lacks?|uncovered|untested"
    r"|there (?:is|are) (?:no|still no)|no (?:\w+ ){0,3}tests?|not (?:yet )?(?:\w+ )?(?:tested|covered|implemented))\b",
    re.IGNORECASE,
)
"""What a finding says that any later change may have mended."""


def reports_of(found: Iterable[Finding], changed: Iterable[int]) -> list[Finding]:
    """The findings that tell what was done in a turn in which something was changed, in the messages `changed`."""
    at = sorted(changed)
    reports: list[Finding] = []
    last, before = -1, -1
    for finding in found:
        if finding.closing and finding.seq != last:
            last, before = finding.seq, last
        if finding.closing and finding.did and finding.tells and any(before < seq < last for seq in at):
            reports.append(finding)
    return reports


def changes_of(actions: Iterable[Action], changed: Mapping[int, Sequence[str]]) -> list[tuple[int, str]]:
    """The messages of changes, with their texts and files: those of the agent, and the lines that a diff shows which no
    diff before showed."""
    changes: list[tuple[int, str]] = []
    shown: set[str] = set()
    for action in actions:
        if action.seq in changed:
            changes.append((action.seq, f"{action.written}\n{' '.join(changed[action.seq])}"))
        elif action.output and _SHOWS_DIFF.search(action.command or ""):
            lines = [line for line in action.output.text.split("\n") if line.startswith(("+", "-"))]
            new = "\n".join(line for line in lines if line not in shown)
            changes += [(action.seq, new)] if shown and new else []
            shown.update(lines)
    return changes


_SHOWS_DIFF = re.compile(r"\b(?:git (?:-\S+ \S+ )?(?:diff|show|log\b.* -p)|gh pr diff)\b")


def standing(found: Sequence[Finding], changes: Sequence[tuple[int, str]]) -> list[Finding]:
    """The findings that tell something and still hold, oldest first: none that a later one repeats or contradicts,
    or that tells what was before a change. `changes` are the messages of changes with their texts and files."""
    turns = sorted({finding.seq for finding in found if finding.closing})[-MAX_TURNS:]
    first = turns[0] if len(turns) == MAX_TURNS else -1
    last = standing_findings([finding.text for finding in found[-MAX_COMPARED:]])
    return [
        finding
        for finding in found
        if finding.tells and finding.seq >= first and finding.text in last and not _is_overtaken(finding, changes)
    ]


MAX_COMPARED = 120
"""Statements of which the later ones are searched for contradictions, the newest. Each is compared with each."""

_FILE = re.compile(r"(?<![\w.])[\w-]+\.[a-z]{1,4}\b(?!\()")


def _is_overtaken(finding: Finding, changes: Iterable[tuple[int, str]]) -> bool:
    """Whether a later change is about what a finding names in code, so that it tells what was before: if it is a remark
    between two calls about any of it, else about half. One that names nothing, such as that all is done, or that says
    what is missing, tells what was before any change."""
    names = _read(finding.text).names | {*_FILE.findall(finding.text)}
    least = 0 if _ABSENT.search(finding.text) else (len(names) + 1) // 2 if finding.closing else min(1, len(names))
    return any(at > finding.seq and sum(name in text for name in names) >= least for at, text in changes)
