"""What the user replied: to the assistant's questions, and in dialogs of a client's tools, in the user's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from contextstash.events.calls import ASKING_TOOLS, PLAN_TOOLS, Call, is_dialog
from contextstash.events.kinds import Said
from contextstash.events.pasted_text import first_lines
from contextstash.events.sentences import ELLIPSIS, own_sentences
from contextstash.safety.imitations import defused
from contextstash.safety.sanitize import one_line

MAX_REPLY_WORDS = 5
"""A user message of at most this many words counts as a reply to the assistant's text before it, which is quoted
with it; with more, long replies would be quoted with a text that they do not need."""


def _is_reply(text: str) -> bool:
    return len(text) <= 60 and len(text.split()) <= MAX_REPLY_WORDS


MAX_ANSWER_LENGTH = 200
"""Characters of a message that may answer the question before it; a longer one says what it is about."""

MAX_ASKED_LENGTH = 400
"""Characters of what is quoted of the assistant's text: a proposal in two or three sentences."""

MIN_QUESTION_WORDS = 8
"""A question with fewer words, such as "Should I do that?", says nothing without the sentence before it."""

_CHOICE = re.compile(
    r"\W*(?:(?:ok(?:ay)?|yes|sure|please)\W+)?(?:(?:let['’]?s|i['’]?d|i would|we|i)\s+)?"
    r"(?:(?:try|do|go (?:with|for)|use|take|pick|choose|prefer|like|implement)\s+)?"
    r"(?:the\s+)?(?:(?:option|variant|number|approach)\s+|#)?"
    r"([A-Za-z]|\d{1,2}|first|second|third|fourth)\b[.,:;)=]?(?=\s|\W*\Z)",
    re.IGNORECASE,
)
_ORDINALS = {"first": "1", "second": "2", "third": "3", "fourth": "4"}


def answered(text: str, before: str) -> str:
    """What a request answers, in whole sentences of the assistant, which had said `before`: its question with what that
    is about, of a choice the option, else what it said last; empty if the request does not depend on it."""
    chosen = _chosen_option(text, before)
    if not before or not (chosen or _depends(text)):
        return ""
    said = [sentence.replace(ELLIPSIS, "[quotation]") for sentence in own_sentences(before)]
    question = next((place for place in reversed(range(len(said))) if said[place].endswith(("?", "？"))), None)
    if question is not None:
        about = _ending_with(said[: question + 1], 3 if len(said[question].split()) < MIN_QUESTION_WORDS else 1)
    elif _is_reply(text) or _REPLY.match(text):
        about = _ending_with(said, len(said))  # a proposal, of as many sentences as fit
    else:
        return chosen
    return one_line(" ".join(part for part in (about, chosen) if part), 2 * MAX_ASKED_LENGTH)


_REPLY = re.compile(
    r"\W*(?:y(?:es|eah|ep|up)|no(?:pe)?|ok(?:ay)?|sure|please do|go (?:ahead|for it|on)|do (?:it|that|so)|sounds good"
    r"|good|great|perfect|correct|right|exactly|agreed|fine|absolutely|both|neither|all|none|the (?:first|second"
    r"|third|last|former|latter)|ja|nein|oui|non|s[ií]|да|нет|gerne|klar)\b|\W*(?:好|是|不|对|可以|はい|いいえ|네|아니)",
    re.IGNORECASE,
)
_POINTS = re.compile(
    r"\b(?:that|this|it|these|those|them|so|both|either|das|dies\w*|cela|ça|eso|esto)\b", re.IGNORECASE
)
MAX_POINTING_LENGTH = 80
"""Characters of a message that says with a word such as "that" what it is about. A longer one names it."""


def _depends(text: str) -> bool:
    """Whether a request says what it means only together with what the assistant said before it."""
    if len(text) > MAX_ANSWER_LENGTH:
        return False
    if text.endswith(("?", "？")):
        return bool(_REPLY.match(text)) or (len(text) <= MAX_POINTING_LENGTH and bool(_POINTS.search(text)))
    return bool(_REPLY.match(text)) or _is_reply(text) or bool(_POINTS.search(text[:MAX_POINTING_LENGTH]))


def _chosen_option(text: str, before: str) -> str:
    """The paragraph of the assistant's text with the option that the request names, such as "B" or "the second"."""
    choice = _CHOICE.match(text) if len(text) <= MAX_ANSWER_LENGTH else None
    if not choice:
        return ""
    name = _ORDINALS.get(choice[1].lower(), choice[1])
    head = rf"^[^\w\n]*(?:(?:option|variant|approach) )?{re.escape(name)}[^\w\n]*[.):—–-]+[^\w\n].{{3,}}"
    found = re.search(rf"{head}{_NOT_NEXT}", before, re.IGNORECASE | re.MULTILINE)
    plain = _CELL.sub(": ", found.group().strip(" |").replace("**", "")) if found else ""
    return f"{name} is: {one_line(plain, MAX_ASKED_LENGTH)}" if plain else ""


_NOT_NEXT = r"(?:\n(?![^\w\n]*\w+ ?\d?[.):]).+)*"
"""The lines below an option up to the next one."""

_CELL = re.compile(r"\s*\|\s*")
"""Between two cells of a table in Markdown."""


def _ending_with(said: Sequence[str], most: int) -> str:
    """The last sentences, at most so many, as far as they fit."""
    shown = ""
    for sentence in reversed(said[-most:]):
        if len(shown) + len(sentence) >= MAX_ASKED_LENGTH:
            break
        shown = f"{sentence} {shown}".strip()
    return shown


_ANSWERED = re.compile(
    r"\A\s*(?:User has|Your questions have been) answered[^:]{0,20}:\s*(.{1,20000}?)(?:\. You can now continue|\Z)",
    re.S,
)
_SAID = re.compile(
    r"(?:the user (?:said|provided the following)|feedback|reason)[^:\n]{0,60}:\s*(.+)",
    re.DOTALL | re.IGNORECASE,
)
_CLIENT_NOTE = re.compile(r"(?:\A|\n)\s*Note: The user['’]s next message may contain .*\Z", re.DOTALL)
_CLARIFIES = re.compile(r"\s*The user wants to clarify these questions\b")
_PARTLY = re.compile(r"^- (\"[^\n]+\")\n\s*Answer: ([^\n]+)", re.MULTILINE)
"""Claude Code's own text if the user leaves its questions open, and in it the answers that were given."""

_APPROVED = re.compile(r"\A(?:(?!\bnot\b|n['’]t\b|reject|denied|declin)[^\n]){0,120}?\bapproved\b", re.IGNORECASE)
_PLAN_BELOW = re.compile(r"^## Approved Plan[^\n]*:\n", re.MULTILINE)
"""Where Claude Code repeats the plan, with the user's changes."""

APPROVED = "The user approved the agent's plan: "

MAX_PLAN_LENGTH = 1_200
"""Characters of an approved plan that are shown, about 300 tokens: its aim and first steps. A plan is the agent's text;
with more, it takes the room of the user's words."""

MAX_DIALOG = 20_000
"""Characters of a dialog's output that are searched for the user's words; a person types less."""


def decisions_of(call: Call) -> Iterator[Said]:
    """The user's decisions in a dialog of a tool: answers, refusals, approved plans. The user's own words are whole; of
    a plan, the first lines are shown."""
    if call.output is None:
        return
    text = call.output.text[:MAX_DIALOG]
    if call.refused:
        yield _decided(call, _refusal(call, text))
    elif call.tool in ASKING_TOOLS and (answered := _ANSWERED.search(text)):
        yield _decided(call, f"The user answered: {defused(answered.group(1).strip())}")
    elif call.tool.lower() in PLAN_TOOLS and not call.is_error and _APPROVED.match(text):
        yield from (_decided(call, line) for line in _approval(call, call.output.text))


def _decided(call: Call, text: str) -> Said:
    return Said(call.seq, text, dialog=True)


REFUSED = "The user refused "


def waits_for_words(decision: Said) -> bool:
    """Whether the user refused a call and said nothing: the client waits for words."""
    return decision.text.startswith(REFUSED) and not decision.text.endswith("”")


def _refusal(call: Call, text: str) -> str:
    words = _own_words(text)
    if _CLARIFIES.match(words):
        words = ", ".join(f"{question}={answer}" for question, answer in _PARTLY.findall(words))
    argument = call.argument.rpartition("/")[2] if words and call.command is None else call.argument
    made = call.tool if is_dialog(call.tool) else f"{call.tool} {one_line(argument, 40 if words else 100)}"
    return f"{REFUSED}{one_line(made, 140)}" + (f": “{words}”" if words else "")


def _approval(call: Call, text: str) -> Iterator[str]:
    below = _PLAN_BELOW.search(text)
    if words := _own_words(text[: below.start() if below else MAX_DIALOG]):
        yield f"The user said when approving the plan: “{words}”"
    if plan := approved_plan(call):
        yield APPROVED + first_lines(plan, MAX_PLAN_LENGTH, f"the plan approved in message {call.seq}")


def approved_plan(call: Call) -> str:
    """The whole of a plan that the user approved in this call; empty if there is none."""
    text = call.output.text if call.output else ""
    if call.tool.lower() not in PLAN_TOOLS or call.is_error or call.refused or not _APPROVED.match(text):
        return ""
    below = _PLAN_BELOW.search(text)
    return defused(text[below.end() :] if below else str(call.arguments.get("plan") or "")).strip()


def _own_words(text: str) -> str:
    """What the user typed in a dialog, without the client's text around it."""
    said = _SAID.search(text)
    return defused(_CLIENT_NOTE.sub("", said.group(1)).strip()) if said else ""
