"""The work under way: the requests on which the agent has not ended its turn, and the skill that it loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contextstash.context.extraction.turns import Turn
from contextstash.context.extraction.user.requests_and_rules import SKILL, Request, reply_lines
from contextstash.context.extraction.user.valid_decisions import takes_back_last
from contextstash.context.text.pasted_text import first_lines
from contextstash.context.text.sanitize import one_line

UNDER_WAY, LOADED = "In progress: ", "Loaded: "

MAX_REPEATED = 120
"""Characters of a request that is repeated where it says what is under way: a line."""

MAX_COMMAND_TEXT = 1_200
"""Characters of a command's or skill's text that is being carried out, in whole lines: about 300 tokens, a quarter of a
summary in a window of 10,000. A longer text has its steps at the beginning."""

MAX_REQUESTS = 4
"""Requests that are named with the newest one as under way. With more, the agent never says that it ends a turn."""


def under_way(
    turns: Sequence[Turn],
    requests: Sequence[Request],
    decided: Sequence[tuple[int, str]],
    *,
    words_kept: bool,
    before: Sequence[str],
    task: Sequence[str],
) -> str:
    """What the agent works on at the end of the turns, a line or a command's text; empty if it ended its turn.

    `decided` are the user's decisions in dialogs, each with its message. If the user's words stand next to the summary
    (`words_kept`), it only says where they are. `before` and `task` are what an earlier summary says of the open items
    and of the task.
    """
    told_before = next((line for line in before if line.startswith(UNDER_WAY)), "")
    requests = [request for request in requests if not request.command.startswith(SKILL)]
    last = requests[-1].seq if requests else -1
    seq, decision = max(((seq, line) for seq, line in decided if seq > last), default=(last, ""))
    own = next((turn for turn in reversed(turns) if turn.role == "assistant"), None)
    # The client's own commands, such as /exit, may stand behind the answer.
    if own and own.ends_work and (own.seq > seq or own is turns[-1]):
        return ""
    if seq < 0:
        return told_before
    if decision:
        told = f"the decision in message {seq}, above" if words_kept else one_line(decision, 160)
        return f"{UNDER_WAY}{told}"
    newest = requests[-1]
    if newest.command and newest.text not in newest.command:
        return f"{UNDER_WAY}{_command_text(newest)}"
    if words_kept:
        return f"{UNDER_WAY}{_where(_unfinished(turns, requests, told_before), newest)}"
    spoke = any("text" in (block.type for block in turn.blocks) for turn in turns if _is_own(turn, newest.seq))
    if newest.is_reply and not spoke and (reply := reply_lines(newest)):
        return f"{UNDER_WAY}{reply[-1]}"
    wanted = [request.text for request in requests if not request.is_reply] or list(task)
    return f"{UNDER_WAY}{one_line(wanted[-1], 160)}" if wanted else ""


def _is_own(turn: Turn, after: int) -> bool:
    return turn.role == "assistant" and turn.seq > after


_SEQS = re.compile(r"the requests? in messages? ((?:\d{1,12}(?:, | and )?)+)")


def _unfinished(turns: Sequence[Turn], requests: Sequence[Request], before: str) -> list[int]:
    """The messages of the requests before the newest one on which the agent had not ended its turn: what the user says
    in between, also to interrupt, does not end the work on them. `before` tells those before the turns."""
    told = _SEQS.search(before)
    found = list[int]()
    later = requests[-1]
    for request in reversed(requests[:-1]):
        if takes_back_last(later.text) or _ended(turns, request.seq, later.seq):
            return found[-MAX_REQUESTS:]
        found.insert(0, request.seq)
        later = request
    if told and not _ended(turns, -1, later.seq):
        found[:0] = [seq for seq in map(int, re.findall(r"\d+", told[1])) if seq < turns[0].seq]
    return found[-MAX_REQUESTS:]


def _ended(turns: Sequence[Turn], first: int, last: int) -> bool:
    """Whether the agent ended its turn between two messages."""
    said = [turn for turn in turns if first < turn.seq < last and turn.role == "assistant"]
    return bool(said) and said[-1].ends_work


def _where(others: Sequence[int], newest: Request) -> str:
    if others:
        return f"the requests in messages {', '.join(map(str, others))} and {newest.seq}, in the words above"
    said = f": {newest.text}" if len(newest.text) <= MAX_REPEATED and "\n" not in newest.text else ""
    return f"the request in message {newest.seq}, in the words above{said}"


def loaded_skill(turns: Sequence[Turn], requests: Sequence[Request], first_seq: int) -> str:
    """The skill that the agent loaded last, if it has not ended its turn since. Its text is told once, if it is of
    message `first_seq` or later: the agent may have loaded it hundreds of messages before."""
    newest = requests[-1] if requests else None
    if newest is None or not newest.command.startswith(SKILL):
        return ""
    if any(turn.seq > newest.seq and turn.ends_work for turn in turns):
        return ""
    told = _command_text(newest) if newest.seq >= first_seq else f"{newest.command}, message {newest.seq}"
    return f"{LOADED}{told}"


def _command_text(request: Request) -> str:
    text = first_lines(request.text, MAX_COMMAND_TEXT, f"the text of the command in message {request.seq}")
    return f"{one_line(request.command, 80)}, message {request.seq}:\n{text}"
