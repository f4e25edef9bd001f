"""What the user asked for and laid down, in their own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contextstash.context.actions import Action
from contextstash.context.oneline import clip, one_line
from contextstash.context.sentences import sentences
from contextstash.context.shell_text import without_reminders
from contextstash.context.turns import Turn

_NOISE_TAGS = (
    "environment_context|user_instructions|permissions instructions"
    "|collaboration_mode|turn_aborted"
    "|local-command-[a-z]+|command-[a-z]+|bash-[a-z]+|ide_[a-z_]+|system_warning|session-start-hook"
    "|skills_instructions|apps_instructions|plugins_instructions|subagent_notification|task-notification"
    "|model_switch|user-prompt-submit-hook"
)
_NOISE = re.compile(rf"\A\s*<({_NOISE_TAGS})\b[^>\n]{{0,200}}>", re.IGNORECASE)
_HOST_TEXT = re.compile(
    r"\A\s*(?:\[Request interrupted[^\]]*\]|Caveat: The messages below were generated|#"
    r" AGENTS\.md instructions"
    r"|Stop hook feedback|<subagent_notification|\[contextstash)",
    re.IGNORECASE,
)
_CARRIED_OVER = re.compile(
    r"\A\s*(?:This session is being continued from a previous conversation"
    r"|Another language model started to solve this problem|\[?Previous conversation summary)",
    re.IGNORECASE,
)
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(.{1,4000}?)</command-args>", re.DOTALL)

REPLY_WORDS = 5
"""A user message of at most so many words is read as a reply to what the assistant said before it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wrote; `asked` is what the assistant had said just before, empty for none."""

    seq: int
    text: str
    asked: str = ""

    @property
    def is_reply(self) -> bool:
        return bool(self.asked) and len(self.text) <= 60 and len(self.text.split()) <= REPLY_WORDS


def own_words(text: str) -> str:
    """A user message's text without what the host put into it; empty where nothing else is in it."""
    text = without_reminders(text)
    arguments = _COMMAND_ARGUMENTS.search(text[:20_000])
    while noise := _NOISE.match(text):
        end = text.find(f"</{noise.group(1)}>")
        if end < 0:
            text = ""
        text = text[end + len(noise.group(1)) + 3 :]
    if _HOST_TEXT.match(text):
        text = ""
    return text.strip() or (arguments.group(1).strip() if arguments else "")


def is_carried_over(text: str) -> bool:
    """Whether a host put the summary of an earlier window here as if the user had written it."""
    return bool(_CARRIED_OVER.match(text))


def requests_of(turns: Iterable[Turn]) -> tuple[list[Request], list[str]]:
    """The user's messages in order, and the summaries that a host carried over from earlier windows."""
    requests: list[Request] = []
    carried: list[str] = []
    said = ""
    for turn in turns:
        texts = [text for block, text in zip(turn.blocks, turn.texts, strict=True) if block.type == "text"]
        if turn.role == "assistant":
            said = next((text for text in reversed(texts) if text.strip()), said)
            continue
        if turn.role != "user":
            continue
        for text in map(own_words, texts):
            if is_carried_over(text):
                carried.append(text)
            elif text:
                requests.append(Request(turn.seq, text, said))
                said = ""
    return requests, carried


_LAID_DOWN = re.compile(
    r"\b(?:must(?:n't)?|never|always|don['’]?t|do not|should(?:n['’]?t)?|shall|prefer(?:s|red|ably)?|only"
    r"|instead|avoid|make sure|ensure|without|required?|requirement|constraint|forbidden|not"
    r" allowed|no longer|keep|use"
    r"|leave|I (?:want|need|would like|['’]d like)|we (?:want|need|use|should)|let['’]?s|rather"
    r"|stick (?:to|with)|exactly|muss|müssen|darf|dürfen|nie(?:mals)?|immer|soll(?:te|ten)?"
    r"|nicht|bitte|ohne|nur|lieber"
    r"|jamais|toujours|doit|doivent|il faut|sans|éviter|préfér\w+|uniquement"
    r"|nunca|siempre|debe[ns]?|deberías?|sin|evita\w*|prefier\w+|solo|sempre|deve|devono|mai|senza"
    r"|никогда|всегда|нельзя|должн\w+|нужно|надо|только|без)\b"
    r"|必须|不要|不能|应该|禁止|务必|只能|请|必ず|しないで|ください|べき|禁止|반드시|하지 ?마|해야|항상|절대",
    re.IGNORECASE,
)
_STRONG = re.compile(
    r"\b(?:must|never|always|don['’]?t|do not|forbidden|not allowed|avoid|prefer|only|instead"
    r"|make sure|required"
    r"|nie|niemals|immer|nicht|muss|jamais|toujours|nunca|siempre|sempre|mai|никогда|всегда|нельзя)\b"
    r"|必须|不要|不能|禁止|务必|必ず|しないで|반드시|절대",
    re.IGNORECASE,
)
LONGEST_RULE = 400

OWN_TEXT = 2_000
"""A longer message holds pasted text, of which only what sounds like a rule counts."""


def laid_down(request: Request) -> list[tuple[str, bool]]:
    """The user's sentences that decide or constrain something, verbatim, and whether each does so
    strongly."""
    pasted = len(request.text) > OWN_TEXT
    found = []
    for sentence in sentences(request.text):
        if 8 <= len(sentence) <= LONGEST_RULE and not sentence.endswith(("?", ":")) and _LAID_DOWN.search(sentence):
            strong = bool(_STRONG.search(sentence))
            if strong or not pasted:
                found.append((sentence, strong))
    return found


def reply_line(request: Request) -> str:
    """A short reply together with the question that it answers."""
    said = sentences(request.asked) or [request.asked]
    asked = [sentence for sentence in said if sentence.endswith(("?", "？"))]
    reply = f"the user answered “{one_line(request.text, 80)}”"
    return f"Asked “{one_line(asked[-1], 220)}” {reply}" if asked else f"To “{one_line(said[-1], 220)}” {reply}"


_ANSWERED = re.compile(r"User has answered your questions?:\s*(.{1,1500}?)(?:\. You can now continue|\Z)", re.DOTALL)
_SAID = re.compile(
    r"(?:the user (?:said|provided the following)|feedback|reason)[^:\n]{0,60}:\s*(.{1,800})",
    re.DOTALL | re.IGNORECASE,
)
_PLAN_TOOLS = frozenset({"exitplanmode", "exit_plan_mode"})


def answers_to_tools(actions: Sequence[Action]) -> list[tuple[int, str]]:
    """Decisions that the user took in a tool's dialog, with their message: answers, refusals, approved
    plans."""
    found = []
    for action in actions:
        if action.output is None:
            continue
        text = action.output.text
        if action.refused:
            said = _SAID.search(text)
            what = one_line(action.argument, 100)
            why = f": “{one_line(said.group(1), 300)}”" if said else ""
            found.append((action.seq, f"The user refused {action.tool} {what}{why}"))
        elif answered := _ANSWERED.search(text[:4_000]):
            found.append((action.seq, f"The user answered: {one_line(answered.group(1), 500)}"))
        elif action.tool.lower() in _PLAN_TOOLS and not action.is_error:
            plan = action.arguments.get("plan")
            found.append((action.seq, f"The user approved the plan: {clip(str(plan), 1_200)}" if plan else ""))
    return [(seq, line) for seq, line in found if line]
