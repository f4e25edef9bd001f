"""The user's words: requests, rules, replies and decisions in dialogs, in their own words without what clients add; and
what came of them: answered, withdrawn, interrupted. They are a part of the session's state (events/state.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from contextstash.events.calls import ASKING_TOOLS, PLAN_TOOLS, Call, is_dialog
from contextstash.events.sentences import ELLIPSIS, first_lines, own_sentences, sentences, without_pasted
from contextstash.events.turns import Said, Turn
from contextstash.outputs.digest import without_reminders
from contextstash.safety.sanitize import MARKER, OF_SESSION, USER_BLOCK_OPENING, defused, one_line

MAX_REPLY_WORDS, MAX_REPLY_LENGTH = 5, 60
"""A user message of at most this many words and characters counts as a reply to the assistant's text before it, which
is quoted with it; with more, long replies would be quoted with a text that they do not need."""

MAX_ANSWER_LENGTH, MAX_ASKED_LENGTH = 200, 300
"""Characters of a message that may answer the question before it, and of what is quoted of the assistant's text: a
proposal in two or three sentences."""

MIN_QUESTION_WORDS = 8
"""A question with fewer words, such as "Should I do that?", says nothing without the sentence before it."""

_TABLE = re.compile(r"(?:^[ \t]*\|[^\n]*(?:\n|\Z))+", re.MULTILINE)

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
    is about, of a choice the option, of several numbers all points, else what it said last; empty if the request does
    not depend on it."""
    if points := _points(text, before):
        return points
    if not before or len(text) > MAX_ANSWER_LENGTH:
        return ""
    chosen = _chosen_option(text, before)
    told = before if chosen else _TABLE.sub("[table]\n", before)
    said = [sentence.replace(ELLIPSIS, "[quotation]") for sentence in own_sentences(told, code=True)]
    question = next((place for place in reversed(range(len(said))) if said[place].endswith(("?", "？"))), None)
    if question is not None:
        about = _ending_with(said[: question + 1], 3 if len(said[question].split()) < MIN_QUESTION_WORDS else 1)
    elif _REPLY.match(text) or (len(text) <= MAX_REPLY_LENGTH and len(text.split()) <= MAX_REPLY_WORDS):
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


def _chosen_option(text: str, before: str) -> str:
    """The paragraph of the assistant's text with the option that the request names, such as "B" or "the second"."""
    choice = _CHOICE.match(text)
    if not choice:
        return ""
    name = _ORDINALS.get(choice[1].lower(), choice[1])
    head = rf"^[^\w\n]*(?:(?:option|variant|approach) )?{re.escape(name)}[^\w\n]*[.):—–-]+[^\w\n].{{3,}}"
    found = re.search(rf"{head}{_NOT_NEXT}", before, re.IGNORECASE | re.MULTILINE)
    plain = _CELL.sub(": ", found.group().strip(" |").replace("**", "")) if found else ""
    return f"{name} is: {one_line(plain, MAX_ASKED_LENGTH)}" if plain else ""


MAX_POINTS, MIN_POINT, MIN_POINTS = 1_500, 40, 2
"""Characters of the points that a request speaks of by their numbers, as of the request itself, and at least of each:
a table of 14 rows has some hundred of each, which say what "the rest" is; and how many points make a list."""

_NUMBERS = re.compile(r"(?<![\w.:/])(\d{1,2})(?![\w/%]|\.\d)")
_POINTS = re.compile(
    r"^[^\w\n]*(\d{1,2})(?:[.):*]+| *\|)[ \t]*(\S[^\n]*)|\((\d{1,2})\) ([^\n]+?)(?=\(\d{1,2}\) |\n|\Z)", re.MULTILINE
)
"""Items of a list, rows of a table and clauses that begin with their number."""


def _points(text: str, before: str) -> str:
    """All numbered points of the assistant's text, if the request speaks of several."""
    named = {*_NUMBERS.findall(text)} if len(text) <= MAX_POINTS else set[str]()
    if len(named) < MIN_POINTS:  # as of most requests: the assistant's text is not searched
        return ""
    points = {number or inner: said or clause for number, said, inner, clause in _POINTS.findall(before[-MAX_DIALOG:])}
    if len(named & points.keys()) < MIN_POINTS:
        return ""
    most = max(MAX_POINTS // len(points), MIN_POINT)
    return " / ".join(
        f"{number}. {one_line(_CELL.sub(': ', said).strip(' :'), most)}" for number, said in points.items()
    )


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
    text = call.output.text[:MAX_DIALOG] if call.output else ""
    told: list[str] = []
    if call.refused:
        words = _own_words(text)
        if _CLARIFIES.match(words):
            words = ", ".join(f"{question}={answer}" for question, answer in _PARTLY.findall(words))
        argument = call.argument.rpartition("/")[2] if words and call.command is None else call.argument
        made = call.tool if is_dialog(call.tool) else f"{call.tool} {one_line(argument, 40 if words else 100)}"
        told = [f"{REFUSED}{one_line(made, 140)}" + (f": “{words}”" if words else "")]
    elif call.tool in ASKING_TOOLS and (answers := _ANSWERED.search(text)):
        told = [f"The user answered: {defused(answers.group(1).strip())}"]
    elif call.tool.lower() in PLAN_TOOLS and not call.is_error and _APPROVED.match(text):
        below = _PLAN_BELOW.search(text)
        words = _own_words(text[: below.start()] if below else text)
        told = [f"The user said when approving the plan: “{words}”"] if words else []
        whole = call.output.text if call.output else ""
        if plan := defused(whole[below.end() :] if below else str(call.arguments.get("plan") or "")).strip():
            told.append(APPROVED + first_lines(plan, MAX_PLAN_LENGTH, f"the plan approved in message {call.seq}"))
    yield from (Said(call.seq, each, dialog=True) for each in told)


REFUSED = "The user refused "


def waits_for_words(decision: Said) -> bool:
    """Whether the user refused a call and said nothing: the client waits for words."""
    return decision.text.startswith(REFUSED) and not decision.text.endswith("”")


def _own_words(text: str) -> str:
    """What the user typed in a dialog, without the client's text around it."""
    said = _SAID.search(text)
    return defused(_CLIENT_NOTE.sub("", said.group(1)).strip()) if said else ""


_NOISE_TAGS = (
    "environment_context|user_instructions|permissions instructions"
    "|collaboration_mode|turn_aborted"
    "|local-command-[a-z]+|command-[a-z]+|bash-[a-z]+|ide_[a-z_]+|system_warning|session-start-hook"
    "|skills_instructions|apps_instructions|plugins_instructions|subagent_notification|task-notification"
    "|model_switch|user-prompt-submit-hook"
    "|hook_prompt|hook_context|skill|user_shell_command|teammate-message"
)
_NOISE = re.compile(rf"\A\s*<({_NOISE_TAGS})\b[^>\n]{{0,200}}>", re.IGNORECASE)
_STOPPED = r"\[Request interrupted by user[^\]\n]*\]\s*\Z"
_HOST_TEXT = re.compile(
    rf"\A\s*(?:{_STOPPED}|Caveat: The messages below were generated|# AGENTS\.md instructions\b[^\n]*\n"
    r"|Stop hook feedback:?\s*\n|<subagent_notification|\[contextstash(?!\])|Base directory for this skill:)",
    re.IGNORECASE,
)
"""How messages in the user's role begin that a host wrote: its own notes, skills, outputs of tools. The user may begin
with the same words, but goes on in the line."""

INTERRUPTION = re.compile(rf"\A\s*(?:{_STOPPED}|<turn_aborted>\nThe user interrupted)")


"""What Claude Code or Codex writes if the user stops the work."""

_RECORD = re.compile(r'\A\s*\{\s*"type"\s*:\s*"[\w.-]+"\s*,.*\}\s*\Z', re.DOTALL)
"""A host's attachment, such as a changed file or a reminder, that was recorded as a message: it is not typed."""

_ATTACHED = re.compile(r"^--- Content from referenced files ---$", re.MULTILINE)
"""Gemini CLI appends to a prompt the files that it names."""

_ADDED_START, _ADDED_END = "<hook_context>", "</hook_context>"
"""Gemini CLI adds to a prompt what hooks print."""

_HAND_OFF = re.compile(rf"\A\s*{re.escape(MARKER)}: {OF_SESSION}")
_ENTRY = re.compile(r"^- \((?:\d{1,12}|pinned rule)\) ")
"""How an entry of a user block begins; its further lines are indented (handoff/user_block.py)."""

CARRIED_OVER = re.compile(
    r"\A\s*(?:This session is being continued from a previous conversation"
    r"|Another language model started to solve this problem|\[?Previous conversation summary)",
    re.IGNORECASE,
)
"""How the summary of an earlier window begins, which a host sent in the user's role."""

_COMMAND = re.compile(r"\A\s*<command-", re.IGNORECASE)
_COMMAND_NAME = re.compile(r"<command-name>\s*(/?[\w:./-]{1,80})\s*</command-name>", re.IGNORECASE)
COMMAND_OUTPUT = re.compile(r"\A\s*<local-command-", re.IGNORECASE)
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(.{1,4000}?)</command-args>", re.DOTALL)


def without_host_text(text: str) -> str:
    """The text of a user message without what the host added; empty if there is nothing else."""
    text = _ATTACHED.split(without_reminders(text), maxsplit=1)[0]
    # Searched for, because a pattern would try each of a thousand opening tags.
    start, end = text.find(_ADDED_START), text.rfind(_ADDED_END)
    text = text[:start] + text[end + len(_ADDED_END) :] if 0 <= start < end else text
    arguments = _COMMAND_ARGUMENTS.search(text[:20_000]) if _COMMAND.match(text) else None
    while noise := _NOISE.match(text):
        # Up to the last end tag: an output inside may itself contain an end tag.
        if (end := text.rfind(f"</{noise.group(1)}>")) < 0:
            break  # the user's own: a host closes its tags
        text = text[end + len(noise.group(1)) + 3 :]
    if _HOST_TEXT.match(text) or _RECORD.match(text):
        text = ""
    return text.strip() or (arguments.group(1).strip() if arguments else "")


_AGENTS_MD = re.compile(r"\A\s*# (AGENTS\.md) instructions\b[^\n]*\n(.*)\Z", re.DOTALL)
_USER_INSTRUCTIONS = re.compile(r"\A\s*<(user_instructions)>(.*?)</user_instructions>", re.DOTALL)
_CLAUDE_MD = re.compile(
    r"^Contents of (\S[^\n]{0,300}?\.md)(?: \([^\n]*\))?:\n(.*?)"
    r"(?=^Contents of \S|^# \w+$|^ *IMPORTANT: this context may|^</system-reminder>|\Z)",
    re.DOTALL | re.MULTILINE,
)
_INSTRUCTIONS_TAG = re.compile(r"</?INSTRUCTIONS>")
"""How Codex and Claude Code put the rules of a project's files into the conversation."""


def client_rules(text: str) -> Iterator[tuple[str, str]]:
    """The rules that a client put into a message in the user's role, each with the file that they are from."""
    patterns = (_CLAUDE_MD,) if "# claudeMd" in text else (_AGENTS_MD, _USER_INSTRUCTIONS)
    for pattern in patterns:
        for name, rules in pattern.findall(text):
            if rules := _INSTRUCTIONS_TAG.sub("", rules).strip():
                yield name, rules


def words_handed_over(text: str) -> str:
    """The user's words and pinned rules in a hand-off with which another session begins (`contextstash continue`);
    empty if the message is none. They are the words of the user of this session too."""
    start = text.find(USER_BLOCK_OPENING)
    if start < 0 or not _HAND_OFF.match(text):
        return ""
    block = text[start:].split("\n\n## ", 1)[0]
    lines = [_ENTRY.sub("", line) for line in block.split("\n")[1:] if _ENTRY.match(line) or line.startswith("  ")]
    return "\n".join(line.removeprefix("  ") for line in lines).strip()


_SKILL_TEXT = re.compile(r"\A\s*Base directory for this skill:[^\n]*\n")


def command_text(command: str, text: str) -> str:
    """The text that the client puts behind a command or skill; empty if this is none."""
    if head := _SKILL_TEXT.match(text) if command else None:
        return text[head.end() :].strip()
    return without_host_text(text) if command.startswith("/") else ""


SKILL = "skill "
"""Before the name of a skill that the assistant loads; of a command that the user gives, there is only the name."""

_LOADING = frozenset({"Skill", "SlashCommand"})
"""Claude Code's tools whose effect is a text in the user's role."""


def not_loaded(turn: Turn) -> bool:
    """Whether the user refused to load a skill, or there is none of that name: no text of it follows."""
    return any(each.type == "tool_result" and each.tool in _LOADING and each.is_error for each in turn.blocks)


PROGRAM = "the program"
"""The source of an instruction that an agent's own loop puts between the messages: it holds from there on."""


def skill_of(turn: Turn) -> str:
    """The skill that the assistant loads in a message, as a command; empty if it loads none."""
    loads = (each for each in turn.blocks if each.type == "tool_call" and each.tool in _LOADING)
    return next((f"{SKILL}{each.argument or ''}".strip() for each in loads), "")


def command_of(text: str) -> str:
    """The client's command that a user message gives, with its arguments; empty if it gives none. The client's next
    message in the user's role is the command's text."""
    name = _COMMAND_NAME.search(text[:20_000]) if _COMMAND.match(text) else None
    arguments = _COMMAND_ARGUMENTS.search(text[:20_000]) if name else None
    return " ".join(each.group(1).strip() for each in (name, arguments) if each)


_RULE = re.compile(
    r"\b(?:must|never|always|don['’]?t|do not|forbidden|not allowed|avoid|prefer|only|instead"
    r"|make sure|required"
    r"|nie|niemals|immer|nicht|muss|jamais|toujours|nunca|siempre|sempre|mai|никогда|всегда|нельзя)\b"
    r"|必须|不要|不能|禁止|务必|必ず|しないで|반드시|절대",
    re.IGNORECASE,
)
MAX_RULE_LENGTH = 400
"""Characters of a sentence; a longer one is not a rule but a description."""


def user_rules(text: str) -> list[str]:
    """The user's sentences that command or forbid something, verbatim."""
    return [
        sentence
        for sentence in (sentences(without_pasted(text)) if _RULE.search(text) else ())
        if 8 <= len(sentence) <= MAX_RULE_LENGTH and sentence[-1] not in "?:" and _RULE.search(sentence)
    ]


REVISED_SHARE, MIN_REVISED_WORDS = 0.5, 2
"""A sentence that says that something changes revises a request of which it repeats at least this share of the words,
and so many words: one may be the project's name."""

_CHANGE = re.compile(
    r"\b(?:instead|no longer|not any ?more|any ?more|rather than|actually|after all|never ?mind|scratch that"
    r"|forget (?:it|that|about)|changed? (?:my|our) minds?|on second thoughts?|switch(?:ed)? (?:back )?(?:to|from)"
    r"|stattdessen|nicht mehr|doch|finalement|plutôt|en lugar|ya no|mejor)\b|改为|改用|不再|やっぱり|代わりに",
    re.IGNORECASE,
)
_NO_CONTENT = re.compile(
    r"(?:an?|and|any|are|as|at|be|but|by|can(?:not)?|do|does|don|for|from|has|have|i|in|is|it|its|let|me|must|my|need"
    r"|never|no|not|of|on|only|or|our|please|should|so|t|that|the|then|there|these|this|to|us(?:e|ing)|want|we|will|with"
    r"|you|your|always|instead|longer|more|all|after|actually|rather|than|keep|make|sure|s)"
)
_WORDS_OF = re.compile(r"[^\W_]\w*(?:[./-]\w+)*")
_TAKES_BACK = re.compile(
    r"\W*(?:(?:oh|no|sorry|wait|actually|hmm+|please)[,. ]+){0,2}"
    r"(?:(?:ignore|disregard|forget)(?: about)? (?:the|my|that) (?:last|previous) (?:message|request|one|instruction)"
    r"|(?:ignore|disregard|forget) what i (?:just )?said|never ?mind|scratch that|forget (?:it|that)(?=[^\w ]|$))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Newest:
    """The assistant's newest message; whether it has no call, so that the assistant waits for the user, and whether it,
    or those without a call before it, say anything."""

    seq: int = -1
    ends: bool = False
    told: bool = False


@dataclass(slots=True)
class UserWords:
    """What the user said, in order. `answered` maps an entry to the message with which the assistant ended its turn on
    it; `withdrawn` maps one to the later entry that takes it back, `interrupted` one to the message with which the user
    stopped the work on it. `forgotten` are the messages of those that are known no more."""

    entries: tuple[Said, ...] = ()
    answered: dict[int, int] = field(default_factory=dict)
    withdrawn: dict[int, int] = field(default_factory=dict)
    interrupted: dict[int, int] = field(default_factory=dict)
    forgotten: tuple[int, ...] = ()

    @property
    def own(self) -> UserWords:
        """The words without the rules of files, which the client puts into each window itself."""
        return replace(self, entries=tuple(entry for entry in self.entries if not entry.source))

    @property
    def last(self) -> Said | None:
        """The newest of the user's own words."""
        return next((entry for entry in reversed(self.entries) if not entry.source), None)

    @property
    def open(self) -> Said | None:
        """The same, if the assistant has not ended its turn on it."""
        last = self.last
        return None if last is None or last.seq in self.answered else last

    def add(self, entry: Said, newest: Newest) -> None:
        """Take up what the user says after the assistant's newest message: what that ended is answered. It withdraws
        the entry before it, if it says so, or those that it revises; an approved plan those before it."""
        before = self.open
        if before and newest.ends and newest.seq > before.seq and before.seq not in self.interrupted:
            self.answered[before.seq] = newest.seq
        for each in _taken_back(self.entries, entry):
            self.withdrawn.setdefault(each.seq, entry.seq)
        # The rules of files that a client puts before the first request stand behind it.
        self.entries = (*self.entries, entry) if self.last else (entry, *self.entries)

    def stop(self, seq: int) -> None:
        """The user stops the work in this message: on what was said in it so far, or else on the newest before."""
        own = [entry for entry in self.entries if not entry.source]
        if own and own[-1].seq == seq and not own[-1].dialog:
            self.entries = tuple(replace(each, stopped=True) if each is own[-1] else each for each in self.entries)
        elif older := [entry.seq for entry in own if entry.seq < seq]:
            self.interrupted[older[-1]] = seq


def words_since(words: UserWords, seq: int) -> UserWords:
    """The words behind message `seq`, with the marks that were not known there: an entry is answered once another one
    follows."""
    known = (*words.forgotten, *(entry.seq for entry in words.own.entries))
    last = max((each for each in known if each <= seq), default=-1)
    return UserWords(
        tuple(entry for entry in words.entries if entry.seq > seq),
        {each: at for each, at in words.answered.items() if each >= last},
        {each: by for each, by in words.withdrawn.items() if by > seq},
        {each: at for each, at in words.interrupted.items() if at > seq},
        tuple(each for each in words.forgotten if each > seq),
    )


def is_plan(entry: Said) -> bool:
    """Whether the user approved a plan of the agent."""
    return entry.text.startswith(APPROVED)


MAX_COMPARED = 100
"""Earlier requests, the newest, that one may revise: it bounds the work if there are thousands."""


def _taken_back(known: Sequence[Said], entry: Said) -> list[Said]:
    """The entries that this one, which follows them, withdraws."""
    text, near = entry.text, [each for each in known[-MAX_COMPARED:] if not each.source]
    if is_plan(entry):
        return [each for each in known if is_plan(each)]
    if entry.command:
        return []
    if _TAKES_BACK.match(text[:200]):
        return [*near[-1:]]
    # What stands below the first paragraph may be pasted, with words of an earlier request.
    first = without_pasted(text).strip().split("\n\n", 1)[0] if _CHANGE.search(text) else ""
    said = [_words(sentence) for sentence in sentences(first) if _CHANGE.search(sentence)]
    # A question decides nothing, and a reply and a command have few words of their own.
    old = [each for each in near if said and not (each.command or each.asked or each.text.endswith(("?", "？")))]
    least = {each: max(MIN_REVISED_WORDS, math.ceil(REVISED_SHARE * len(_words(each.text)))) for each in old}
    return [each for each in old if max(len(sentence & _words(each.text)) for sentence in said) >= least[each]]


@lru_cache(maxsize=4 * MAX_COMPARED)
def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORDS_OF.findall(text.casefold()) if not _NO_CONTENT.fullmatch(word))
