"""Masks of secrets: the one place at which recorded text becomes text that is shown or found.

Text leaves the store in two ways. As it was recorded, for the model and the provider: views, requests, restored and
retrieved outputs. That is never masked, since a model that edits a file writes back what it was shown. And as derived
text, for the search index, titles, summaries, hand-offs, digests, pages and exports: each of these takes a message's
texts from here, in one of two forms.

    derived(settings, …)         when a message is recorded: what is stored beside its body, of unchanged length
    shown_texts(settings, …)     when it is read: what a summary, a hand-off or a page is made from
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import Any

from contextstash.messages.base import main_argument
from contextstash.safety.secret_masks import masked, masked_value, may_hold_secrets, shown
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import Block, Native

PROMPT_ROLES = ("user",)
"""Roles of messages in which `<private>` is a person's word; a tool's output may hold it as any other text."""


def derived(
    settings: ContextSettings, role: str, blocks: tuple[Block, ...], texts: tuple[str, ...]
) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """The blocks, and the text of each, from which everything is made that is stored of a message but its body. Texts
    keep their lengths, by which the index finds its blocks."""
    arguments = (block.argument for block in blocks if block.argument)
    # Asked once for all of them: most messages are short, and hold none.
    if settings.secrets == "off" or not may_hold_secrets("\n".join((*texts, *arguments))):
        return blocks, texts
    masks = tuple(
        text if block.type == "opaque" else masked(text, private=role in PROMPT_ROLES and block.type == "text")
        for block, text in zip(blocks, texts, strict=False)
    )
    return tuple(map(_without_secret, blocks, texts)), masks


def _without_secret(block: Block, text: str) -> Block:
    """The block with the main argument of its call without secrets: those that it shows itself, such as a password
    behind a word of a list, and those that the whole text of the call shows, as the argument is cut, and may end with
    the beginning of one."""
    if not block.argument:
        return block
    hidden = masked(text)
    argument = masked((main_argument(hidden) if hidden != text else None) or block.argument)
    return block if argument == block.argument else block.model_copy(update={"argument": argument})


def stored_body(settings: ContextSettings, body: Native) -> Native:
    """The body that is kept: the message as it is, or without its secrets if the user wants these dropped."""
    return masked_value(body, bound=True) if settings.secrets == "drop" else body


def shown_texts(settings: ContextSettings, role: str, blocks: Sequence[Block], texts: Sequence[str]) -> tuple[str, ...]:
    """The texts of a message for a reader."""
    if settings.secrets == "off":
        return tuple(texts)
    types = [block.type for block in blocks] if len(blocks) == len(texts) else ["text"] * len(texts)
    return tuple(
        shown(text, private=role in PROMPT_ROLES and kind == "text") for kind, text in zip(types, texts, strict=True)
    )


def shown_text(settings: ContextSettings, text: str) -> str:
    """One text for a reader: a title, a client's summary, a part of an output."""
    return text if settings.secrets == "off" else shown(text)


def shown_excerpt(settings: ContextSettings, excerpt: str, whole: str) -> str:
    """The head and the tail of a text for a reader, with a notice between them. What is secret in the whole text is
    masked in them too: of a key that was cut in two, a part alone hardly tells that it is one."""
    if settings.secrets == "off" or not may_hold_secrets(whole):
        return excerpt
    head = _alike(excerpt, whole)
    tail = _alike(excerpt[:head:-1], whole[::-1])
    hidden = masked(whole)  # of the same length
    end = len(excerpt) - tail
    return shown(f"{hidden[:head]}{excerpt[head:end]}{hidden[len(hidden) - tail :]}")


def _alike(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    return sum(1 for _ in takewhile(bool, map(eq, one, other)))


def shown_value(settings: ContextSettings, value: Any) -> Any:
    """A JSON value for a reader, of the same shape."""
    return value if settings.secrets == "off" else masked_value(value)
