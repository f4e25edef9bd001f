"""What a format can do: read provider-native messages, and write them back changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from contextstash_storage.records import Block, Native, Role, Usage


@dataclass(frozen=True, slots=True)
class Reading:
    """What a native message says. `texts[i]` is the readable text of `blocks[i]`; blocks have no tokens yet
    (a counter adds them). `group` is the provider's id of the reply that the message is a part of."""

    role: Role
    blocks: tuple[Block, ...]
    texts: tuple[str, ...]
    usage: Usage | None = None
    model: str | None = None
    group: str | None = None


class Format(Protocol):
    """One provider's wire format. All methods are pure and never change what they are given."""

    name: str

    def matches(self, native: Native) -> float:
        """How surely this is a message of this format, 0 to 1. Never raises."""
        ...

    def read(self, native: Native) -> Reading:
        """Raises BadMessageError, saying which field is wrong and what is expected there."""
        ...

    def replace(self, native: Native, texts: Mapping[int, str]) -> Native:
        """A copy in which the content of the tool results at these block indexes is that text.
        All else, ids and error marks included, stays as it is."""
        ...

    def without_thinking(self, native: Native) -> Native | None:
        """A copy without the model's own thinking, if the provider lets it be left out; None if nothing else is
        in the message."""
        ...

    def user_message(self, text: str) -> Native: ...

    def system_message(self, text: str) -> Native | None:
        """A system message for the head of the list; None if the provider takes it apart from the list."""
        ...

    def limit_breakpoints(self, natives: Sequence[Native], most: int, changed: int | None) -> Sequence[Native]:
        """The natives with at most `most` cache breakpoints, those that pay best. `changed` is the place of the first
        that is not shown as it was recorded. All as they are if the provider marks none in messages."""
        ...

    def assemble(self, natives: Sequence[Native]) -> list[Native]:
        """Natives as they may be sent: neighbours merged if the provider demands it, reply-only
        fields (usage, ids of replies, …) left out. System messages that the provider doesn't take in the list
        are left out too."""
        ...
