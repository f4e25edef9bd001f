"""Judges whether a sentence is a whole statement: no fragment, no thought aloud, nothing that the author takes back."""

from __future__ import annotations

import re

MIN_WORDS = 3
"""Fewer words outside of code, such as "Option 2", state nothing."""

_STARTS = re.compile(r"[^\W_a-z]|[`“\"'(.~/]|[a-z][\w-]*[._/(:A-Z]")
"""How a statement begins: with a capital letter, a digit, a quotation, or the name of something in the code. A letter
of a script without capitals is one, too."""

_ENDS = re.compile(
    r"(?:[,;:–—-]|…|\.\.\.|\b(?:and|or|but|the|an?|of|to|in|with|for|e\.g\.|i\.e\.|etc\.))$", re.IGNORECASE
)
_CONTINUES = re.compile(
    r"(?:but|and|or|so|nor|yet|though|although|because|which|that|if|unless|whether|alternatively|otherwise|also|then|plus"
    r"|aber|oder|und|mais|ou|et|pero|y|e|但是|但|不过|而且)\b[, ]",
    re.IGNORECASE,
)
"""How a sentence begins that has no meaning without the one before it."""

_TURNS_BACK = re.compile(
    r"(?:(?:oh|ah|hmm+|hm|no|oops|hold on|wait|actually|scratch that|never ?mind|on second thoughts?|correction"
    r"|my mistake|i was wrong|that(?:[’']s| is| was) (?:wrong|not right|incorrect))\b"
    r"|(?:but|and|no|oh|so)[, ]+(?:wait|actually|hold on|no)\b|等等|不对|其实)",
    re.IGNORECASE,
)
"""How a sentence begins that takes back the one before it."""

_THOUGHT = re.compile(
    r"\b(?:maybe|perhaps|possibly|presumably|i (?:think|guess|wonder|suspect|believe|assume)|not sure|i[’']m not sure"
    r"|might|(?:may|could) (?:already|be|have|need|also|not|still)|probably|likely (?:causes?|because|due|means)"
    r"|what if|let me"
    r"|should(?:n['’]t)?|ought to|suggests?|seems?|appears? to|looks like|(?:is|are) likely"
    r"|let[’']s|hmm+|wait|vielleicht|wahrscheinlich|peut-être|quizás?|tal vez)\b|也许|可能|或许|たぶん|かもしれ",
    re.IGNORECASE,
)
_MUSING = re.compile(r"\b(?:what if|i wonder|hmm+|here[’']s a thought)\b", re.IGNORECASE)
_PROPOSAL = re.compile(
    r"(?:option|approach|alternative|possibility|idea|step|phase|variant) (?:\d+|[a-z])\b"
    r"|(?:i[’']d|i would|i could|i can|we could|we should|we can|you (?:could|should|may|might|can|need)"
    r"|would you|should (?:i|we)"
    r"|i recommend|i suggest)\b",
    re.IGNORECASE,
)
"""What is only considered: it is no finding, and a decision is the user's."""

_FULL_STOP = re.compile(r"[.!。！][)\]\"'”’`*]*$")
_DONE = re.compile(r"(?:[A-Z]\w+ed|Found|Made|Wrote|Built|Kept|Set|Split|Ran)\b")
_SUBJECT = re.compile(
    r"(?:the|an?|all|both|each|every|no|only|there|our|its|this|that|these|those)\b|[`“\"(]|\S*[_./(]\S*", re.IGNORECASE
)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|will|must|now|no longer)\b|n['’]t\b", re.IGNORECASE
)
_OTHER_LETTER = re.compile(r"(?![A-Za-z])[^\W\d_]")
"""Of a language in which the words above say nothing."""

_GLOSSARY = re.compile(r"(?:`[^`]+`|\S+)(?: [\w/]+){0,2}(?: [-–—→=]+>? |: )")
"""An entry of a list of names, such as "`read_all()` - reads the rest"."""

_RULED = re.compile(r"[─━═│┃█▀-▟]{2,}|[-=_*~]{4,}|^[^\w`]*[★☆✻●■▶]")
_CODE = re.compile(r"`[^`]*`|\S*[/_(){}=<>]\S*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_PAIRS = ("()", "[]", "{}", "“”")


def is_statement(sentence: str) -> bool:
    """Whether a sentence, taken alone, states something that its author holds true."""
    return not (
        not _STARTS.match(sentence)
        or _ENDS.search(sentence)
        or _CONTINUES.match(sentence)
        or takes_back(sentence)
        or _THOUGHT.search(_CODE.sub("", sentence))
        or is_proposal(sentence)
        or _RULED.search(sentence)
        or not _is_balanced(sentence)
        or not _has_words(sentence)
    )


def is_whole(sentence: str) -> bool:
    """Whether a sentence is a whole one, and no item of a list that only its heading makes one: it ends with a full
    stop, says what was done, or has a subject and a finite verb."""
    if "…" in sentence:
        return False
    done = _DONE.match(sentence) and _CODE.search(sentence)  # without a name, such a line is a heading
    if _FULL_STOP.search(sentence) or done or _OTHER_LETTER.search(sentence):
        return True
    return not _GLOSSARY.match(sentence) and bool(_SUBJECT.match(sentence) and _FINITE.search(_CODE.sub("", sentence)))


def is_proposal(sentence: str) -> bool:
    """Whether a sentence says what its author could or would do."""
    return bool(_PROPOSAL.match(sentence))


def takes_back(sentence: str) -> bool:
    """Whether a sentence takes back the one before it, such as "Wait, no."."""
    return bool(_TURNS_BACK.match(sentence))


def asks_itself(question: str) -> bool:
    """Whether a question is a thought aloud of its author, such as "But what if it is a file?", and no question to the
    reader."""
    return bool(_CONTINUES.match(question) or takes_back(question) or _MUSING.search(question))


def _is_balanced(sentence: str) -> bool:
    bare = re.sub(r"`[^`]*`", "", sentence)
    return "`" not in bare and all(bare.count(pair[0]) == bare.count(pair[1]) for pair in _PAIRS)


def _has_words(sentence: str) -> bool:
    """Whether it consists of more than code. Scripts without spaces between words have few of them."""
    words = _WORD.findall(_CODE.sub(" ", sentence))
    return len(words) >= MIN_WORDS or any(not word.isascii() for word in words)
