"""The user block: what the user said, word for word, in messages that are only appended to.

Each compaction adds one text with the user's words in the messages that it newly covers, and with marks for earlier
ones: those that the agent answered, and those that the user withdrew. A text that was shown is not rewritten, so that a
provider's prompt cache still holds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.events.sentences import shortened
from contextstash.events.turns import Said
from contextstash.events.words import PROGRAM, UserWords, is_plan, user_rules, words_since
from contextstash.handoff.fill import Count, item_tokens, write_item
from contextstash.outputs.limits import shared_limit
from contextstash.safety.sanitize import USER_BLOCK, USER_BLOCK_OPENING, one_line, unforged

RULE_PREFIX = "rule:"
"""How a pin begins that is a rule, and neither a handle nor a path."""

MIN_ENTRY_TOKENS = 60
"""An entry is not shortened to fewer tokens than this, about two sentences; it is left out instead."""

_HEADER = re.compile(rf"{re.escape(USER_BLOCK_OPENING)} \d{{1,12}} to (\d{{1,12}})")
_RULE = re.compile(r"^- \(pinned rule\) (.+)$", re.MULTILINE)
_UNPINNED = re.compile(r"^- \(no longer pinned\) (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the texts of a user block in the view tell: the words up to message `last_seq`, -1 if none, and these pinned
    rules."""

    last_seq: int = -1
    rules: tuple[str, ...] = ()


def shown_by(texts: Iterable[str]) -> Shown:
    """What the texts of a block tell, oldest first."""
    last, rules = -1, list[str]()
    for text in texts:
        header = _HEADER.match(text)
        last = max(last, int(header[1])) if header else last
        rules = [rule for rule in [*rules, *_RULE.findall(text)] if rule not in _UNPINNED.findall(text)]
    return Shown(last, tuple(rules))


def user_block(
    words: UserWords,
    last_seq: int,
    shown: Shown,
    *,
    rules: Sequence[str] = (),
    first_tokens: int,
    tokens: int,
    count: Count,
) -> str:
    """The next text of the block, for the `words` up to message `last_seq`; empty if there is nothing to say.

    `shown` is what earlier texts tell; if it is nothing, the text takes their place. `rules` are the pinned rules in
    force. The first request of a session takes at most `first_tokens`, all other entries together `tokens`.
    """
    new, begin = words_since(words, shown.last_seq), shown.last_seq + 1
    lines = rules_block(rules, shown.rules).split("\n")[1:]
    first = first_tokens if len(new.own.entries) == len(words.own.entries) else 0
    return words_text(new, (begin, max(begin, last_seq)), lines, first_tokens=first, tokens=tokens, count=count)


def words_text(
    words: UserWords, span: tuple[int, int], lines: Sequence[str], *, first_tokens: int, tokens: int, count: Count
) -> str:
    """The user's words in the messages `span` behind these lines, with their marks; empty if there is nothing to say.
    The first of them, the session's first request, takes at most `first_tokens` if that is above 0, all others together
    `tokens`. An entry that is too long keeps its instructions whole: what is left out is pasted text first, and a line
    says where it is."""
    items, words = word_items(words, first_tokens, tokens, count)
    lines = [*lines, *map(write_item, items)]
    if not lines and not words.answered and not words.withdrawn and not words.interrupted:
        return ""
    is_short = any("[left out: " in line for line in lines)
    short = " search_history finds the whole of what is shortened." if is_short else ""
    head = f"{USER_BLOCK_OPENING} {span[0]} to {span[1]}; the number is the message.{short}]"
    return "\n".join([head, *lines, *_marks(words)])


def rules_block(rules: Sequence[str], shown: Sequence[str]) -> str:
    """A text with the pinned rules that are not `shown` yet, and those of them that no longer hold; empty if there is
    nothing to say."""
    lines = [f"- (pinned rule) {rule}" for rule in rules if rule not in shown]
    lines += [f"- (no longer pinned) {rule}" for rule in shown if rule not in rules]
    return "\n".join([f"{USER_BLOCK} rules that hold until they are unpinned]", *lines]) if lines else ""


def pinned_rules(pins: Iterable[str]) -> list[str]:
    """The rules among a session's pins, each in one line."""
    return [one_line(pin[len(RULE_PREFIX) :], MAX_RULE) for pin in dict.fromkeys(pins) if pin.startswith(RULE_PREFIX)]


MAX_RULE = 1_000
"""Characters of a pinned rule: a longer text is a document, which can be pinned as a file."""


def word_items(words: UserWords, first_tokens: int, tokens: int, count: Count) -> tuple[list[str], UserWords]:
    """The entries, each as an item, and the words without those that are left out. If they do not all fit, the longest
    are shortened to one length, that on which the agent works last."""
    first = first_tokens > 0
    words, left_out = _bounded(_newest_plan(words), first, tokens, count)
    written = {entry: _written(entry) for entry in words.entries}
    costs = {entry: item_tokens(text, count) for entry, text in written.items()}
    limits = _limits(words, costs, first_tokens, tokens)
    items = []
    for entry in words.entries:
        text = written[entry]
        if costs[entry] > limits[entry]:
            note = f"message {entry.seq}"
            kept = user_rules(entry.text)
            text = _written(replace(entry, text=shortened(entry.text, limits[entry], count, kept, note)))
        items.append(text)
    return [*items[:first], *left_out, *items[first:]], words


def _limits(words: UserWords, costs: Mapping[Said, int], first_tokens: int, tokens: int) -> dict[Said, int]:
    """The tokens that each entry may take."""
    # The first request, or what the user put in its place.
    asked = (entry for entry in words.entries if first_tokens and _stands(words, entry) and not entry.source)
    main = next(asked, None)
    files = [entry for entry in words.entries if entry.source] if main else []
    others = [entry for entry in words.entries if entry is not main and entry not in files]
    standing = {entry: costs[entry] for entry in others if _stands(words, entry)}
    gone = [costs[entry] for entry in others if entry not in standing]
    room = tokens - sum(min(MIN_ENTRY_TOKENS, cost) for cost in gone)
    # Half of the room for the request under way, if it needs that: the others are answered.
    now = words.open if words.open in others else None
    own = max(shared_limit(standing.values(), room), room // 2) if now else 0
    taken = min(own, standing.pop(now, 0)) if now else 0
    level = max(MIN_ENTRY_TOKENS, shared_limit(standing.values(), room - taken))
    rest = shared_limit(gone, tokens - taken - sum(min(level, cost) for cost in standing.values()))
    limits = {entry: level if entry in standing else rest for entry in others}
    if now:
        limits[now] = max(level, own)
    if main:  # rules of files have the room that it leaves
        limits |= dict.fromkeys(files, (first_tokens - costs[main]) // max(1, len(files)))
    limits = {entry: max(MIN_ENTRY_TOKENS, limit) for entry, limit in limits.items()}
    return limits | ({main: first_tokens} if main else {})


def _stands(words: UserWords, entry: Said) -> bool:
    return bool(entry.source) or entry.seq not in words.withdrawn


def _newest_plan(words: UserWords) -> UserWords:
    """The words in which of all approved plans but the newest only the first line is left."""
    plans = [entry for entry in words.entries if is_plan(entry)]
    note = f"[left out: the rest of it; the plan in ({plans[-1].seq}) replaces it]" if plans else ""
    entries = list(words.entries)
    for place, entry in enumerate(entries):
        if entry in plans[:-1]:
            first = entry.text.split("\n", 1)[0].split(" [left out: ", 1)[0]
            entries[place] = replace(entry, text=f"{first} {note}")
    return replace(words, entries=tuple(entries))


def _bounded(words: UserWords, first: bool, tokens: int, count: Count) -> tuple[UserWords, list[str]]:
    """The words that fit if each entry is shortened to MIN_ENTRY_TOKENS, and a line about those that are left out:
    withdrawn ones and commands first, then answers and requests without a rule, the oldest of each first."""

    def worth(entry: Said) -> int:
        if entry.command or not _stands(words, entry):
            return 0
        if entry.source not in ("", PROGRAM) or user_rules(entry.text):
            return 3
        return 1 if entry.asked or entry.source else 2

    head, rest = words.entries[:first], words.entries[first:]
    costs = {entry.seq: min(MIN_ENTRY_TOKENS, item_tokens(_written(entry), count)) for entry in rest}
    over = sum(costs.values()) - tokens
    gone: set[int] = set()
    for entry in sorted(rest, key=lambda entry: (worth(entry), entry.seq)):
        if over <= 0:
            break
        gone.add(entry.seq)
        over -= costs[entry.seq]
    places = gone.union(words.forgotten)
    if not places:
        return words, []
    line = f"[left out: {len(places)} messages of the user, {min(places)} to {max(places)}]"

    entries = (*head, *(entry for entry in rest if entry.seq not in gone))
    found = (words.answered, words.withdrawn, words.interrupted)
    answered, withdrawn, interrupted = ({seq: at for seq, at in each.items() if seq not in places} for each in found)
    return UserWords(entries, answered, withdrawn, interrupted), [line]


MAX_COMMAND = 1_000
"""Characters of a command with its arguments, which the user typed: a longer text is a document."""


def _written(entry: Said) -> str:
    """The entry; of a command only its name and arguments: the user did not write its text, which the
    summary has as long as it is carried out."""
    asked = f"\n[the assistant had said: {unforged(entry.asked)}]" if entry.asked else ""
    asked += "\n[the user interrupted the work on this]" * entry.stopped
    command = f"[command {one_line(entry.command, MAX_COMMAND)}, for one turn] " if entry.command else ""
    text = "" if entry.command else unforged(entry.text.strip())
    if entry.source:
        command = f"[rules of {one_line(entry.source, 300)}, which the client put here]\n"
    return f"({entry.seq}) {command}{text}{asked}".rstrip()


def _marks(words: UserWords) -> Iterator[str]:
    for label, how, found in (
        ("Answered by the agent", "at {}", words.answered),
        ("Withdrawn or changed by the user", "by ({})", words.withdrawn),
        ("The user interrupted the work on", "at {}", words.interrupted),
    ):
        told = ", ".join(f"({seq}) {how.format(at)}" for seq, at in sorted(found.items()))
        yield from [f"{label}: {told}."] if told else []
