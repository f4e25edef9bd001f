"""The interface of a format: it reads provider-native messages, and writes them back with changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Block, Native, Role, Usage

Path = tuple[str | int, ...]
"""The way to a value: keys of objects and indexes of arrays, from outside to inside."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The contents of a native message. `texts[i]` is the readable text of `blocks[i]`, and `paths[i]` the way to the
    value that can be replaced by another text, empty if there is none. The blocks have no token counts yet: a counter
    adds them. `group` is the provider's id of the reply that the message belongs to."""

    role: Role
    blocks: tuple[Block, ...]
    texts: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool in no provider's form: its name, description, and the JSON schema of its arguments."""

    name: str
    description: str
    arguments: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Call:
    """A tool call in a part. `keys` are what a result may name it by, the best first; `native` is its JSON; `by_order`
    says that only their order distinguishes its result from others."""

    keys: tuple[str, ...]
    native: Mapping[str, Any]
    by_order: bool = False


@dataclass(slots=True, eq=False)
class Part:
    """A part of a message as it is sent: a content block, or a whole message in a format with one result a message.

    `source` is the message that it was in, `reply` the provider's id of the reply. `answers` are what it names its call
    by if it is a result, the best first. `thinks` says that something of the model has to follow it; `begins`, that a
    list may begin with it although the model wrote it."""

    native: Native
    by_model: bool
    source: Native = field(default_factory=dict)
    reply: str | None = None
    calls: tuple[Call, ...] = ()
    answers: tuple[str, ...] = ()
    thinks: bool = False
    begins: bool = False


class Format(ABC):
    """One provider's wire format. All methods are pure and never change their arguments."""

    name: str

    @abstractmethod
    def read(self, native: Native) -> Reading:
        """The contents of the message. Raises BadMessageError, which names the wrong field and what it should be."""

    @abstractmethod
    def is_own(self, native: Native) -> bool:
        """Whether a message that this format can read has something that no other format has."""

    def fits(self, native: Native) -> bool:
        """Whether this format can read the message."""
        try:
            self.read(native)
        except BadMessageError:
            return False
        return True

    def replace(self, native: Native, texts: Mapping[int, str]) -> Native:
        """A copy with the content of the tool results at these block indexes, including the media nested in them,
        replaced by the texts. Everything else, including ids and error flags, is unchanged. Raises BadInputError if
        the block at an index is not a tool result that a text can replace."""
        paths = self.read(native).paths if texts else ()
        changed = dict(native)
        for index, text in texts.items():
            path = paths[index] if index < len(paths) else ()
            if not path:
                raise BadInputError(f"Block {index} of this message is not a tool result that can be replaced.")
            changed = _replaced(changed, path, partial(self.in_place_of, native, text))
        return changed

    def in_place_of(self, native: Native, text: str, old: Any) -> Any:
        """The value that stands for the text in place of `old`, which a path of the message's reading leads to."""
        return [{"type": "text", "text": text}] if isinstance(old, list) else text

    @abstractmethod
    def without_thinking(self, native: Native) -> Native | None:
        """A copy without the model's thinking, if the provider allows it to be omitted; None if the message contains
        nothing else."""

    def user_message(self, text: str) -> Native:
        """A message of the user with this text alone."""
        return {"role": "user", "content": text}

    def system_message(self, text: str) -> Native | None:
        """A system message for the start of the list; None if the provider takes the system prompt in another field."""
        return None

    def limit_breakpoints(self, natives: Sequence[Native], most: int) -> Sequence[Native]:
        """The natives with at most `most` cache breakpoints, the newest ones. Unchanged if the format has no
        breakpoints in messages."""
        return natives

    @abstractmethod
    def sent_parts(self, native: Native) -> Sequence[Part]:
        """What of a message can be sent, by the rules for a single message. Its other parts are left out, or are text
        if a message of that role may not hold them."""

    @abstractmethod
    def missing(self, call: Call) -> Native | None:
        """The result of an interrupted call; None if nothing can stand for it, so that the call is left out."""

    @abstractmethod
    def orphan(self, part: Part) -> Sequence[Native]:
        """What is shown of a result without its call: its text, images and documents."""

    def fitted(self, result: Native, call: Call) -> Native:
        """The result in the form that this call requires."""
        return result

    def left_out(self, parts: Iterable[Part]) -> Collection[int]:
        """The places of parts that the provider refuses in a list of these."""
        return ()

    def joined(self, messages: Sequence[Sequence[Part]]) -> list[Native]:
        """The messages as they are sent, each of its parts."""
        return [part.native for parts in messages for part in parts]

    @abstractmethod
    def tool_definitions(self, tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
        """The tools as they are put among the tools of a request."""


def _replaced(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy with the value at a path changed; a key at its end may be missing."""
    if not path:
        return change(value)
    if isinstance(value, dict):
        return {**value, path[0]: _replaced(value.get(path[0]), path[1:], change)}
    return [_replaced(item, path[1:], change) if place == path[0] else item for place, item in enumerate(value)]
