"""The interface of a format: it reads provider-native messages, and writes them back with changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextstash_storage.records import Block, Native, Role, Usage


@dataclass(frozen=True, slots=True)
class Reading:
    """The contents of a native message. `texts[i]` is the readable text of `blocks[i]`. The blocks have no token counts
    yet: a counter adds them. `group` is the provider's id of the reply that the message belongs to."""

    role: Role
    blocks: tuple[Block, ...]
    texts: tuple[str, ...]
    usage: Usage | None = None
    model: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool in no provider's form: its name, description, and the JSON schema of its arguments."""

    name: str
    description: str
    arguments: Mapping[str, Any]


class Format(ABC):
    """One provider's wire format. All methods are pure and never change their arguments."""

    name: str

    @abstractmethod
    def matches(self, native: Native) -> float:
        """The confidence, from 0 to 1, that this is a message of this format. Never raises."""

    @abstractmethod
    def read(self, native: Native) -> Reading:
        """The contents of the message. Raises BadMessageError, which names the wrong field and what it should be."""

    @abstractmethod
    def replace(self, native: Native, texts: Mapping[int, str]) -> Native:
        """A copy with the content of the tool results at these block indexes replaced by the texts; of a tool call its
        large texts are, and an image becomes a text. Everything else, including ids and error flags, is unchanged."""

    @abstractmethod
    def without_thinking(self, native: Native) -> Native | None:
        """A copy without the model's thinking, if the provider allows it to be omitted; None if the message contains
        nothing else."""

    @abstractmethod
    def user_message(self, text: str) -> Native: ...

    def system_message(self, text: str) -> Native | None:
        """A system message for the start of the list; None if the provider takes the system prompt in another field."""
        return None

    def limit_breakpoints(self, natives: Sequence[Native], most: int, changed: int | None) -> Sequence[Native]:
        """The natives with at most `most` cache breakpoints, the most useful ones. `changed` is the index of the first
        native that differs from the recorded one. Unchanged if the format has no breakpoints in messages."""
        return natives

    @abstractmethod
    def assemble(self, natives: Sequence[Native]) -> list[Native]:
        """The natives as a valid request: neighbours merged if the provider requires it; without fields that only
        replies have (usage, reply ids, …), and without system messages if the list may not contain any."""

    @abstractmethod
    def tool_definitions(self, tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
        """The tools as they are put among the tools of a request."""
