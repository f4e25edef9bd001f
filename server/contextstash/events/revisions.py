"""What a request says of what was said before it: that it is withdrawn, or doubted."""

from __future__ import annotations

import re

_TAKES_BACK = re.compile(
    r"\W*(?:(?:oh|no|sorry|wait|actually|hmm+|please)[,. ]+){0,2}"
    r"(?:(?:ignore|disregard|forget)(?: about)? (?:the|my|that) (?:last|previous) (?:message|request|one|instruction)"
    r"|(?:ignore|disregard|forget) what i (?:just )?said|never ?mind|scratch that|forget (?:it|that)(?=[^\w ]|$))\b",
    re.IGNORECASE,
)


_OBJECTS = re.compile(
    r"\W*(?:(?:hm+|well|sorry|wait|ok|okay|oh|ah)\b[,. …]*){0,2}(?:no\b(?![ ,]+(?:problem|worries|need|rush))|nope\b"
    r"|(?:wrong|incorrect)(?= *(?:[.,:;!]|$))|not (?:true|correct|right|quite)\b|are you sure\b"
    r"|but (?:why|you said|is(?:n['’]?t)? (?:it|this|that)|(?:this|that) (?:is|can|does))(?!\w)|i['’]?m questioning\b"
    r"|that(?:['’]s| is| was| isn['’]t) (?:wrong|incorrect|not)\b|i (?:don['’]?t|do not) (?:think|agree)\b"
    r"|you(?:['’]re| are) (?:wrong|mistaken)|you (?:also )?said\b|why would\b|nein\b|falsch\b|das stimmt nicht"
    r"|c['’]est faux|不对|错了|違)",
    re.IGNORECASE,
)
_CONCEDES = re.compile(
    r"\W*(?:you(?:['’]re| are) (?:absolutely |completely )?right\b|i was wrong\b|my mistake\b|i stand corrected"
    r"|du hast recht|vous avez raison|tienes razón)",
    re.IGNORECASE,
)


def objects(request: str) -> bool:
    """Whether a request begins with the words of somebody who doubts what was said before it."""
    return bool(_OBJECTS.match(request[:200]))


def concedes(text: str) -> bool:
    """Whether the agent begins with saying that the user is right, against what it said before."""
    return bool(_CONCEDES.match(text[:200]))


def takes_back_last(text: str) -> bool:
    """Whether a request withdraws the one before it, such as "ignore my last message"."""
    return bool(_TAKES_BACK.match(text[:200]))
