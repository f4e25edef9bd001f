"""A batch of messages to append, and the records that come of it. Pure, and the same for every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from contextstash_storage.errors import BadInputError
from contextstash_storage.preparation.messages import Prepared
from contextstash_storage.records import (
    Appended,
    Call,
    Counters,
    Cursor,
    Message,
    NewMessage,
    SentRequest,
    Session,
    Usage,
)
from contextstash_storage.store import Count, EditsAfter, EditsBefore


@dataclass(frozen=True, slots=True)
class Batch:
    """One call's messages, and how they are appended."""

    owner: str
    session_id: str
    messages: Sequence[Prepared]
    count: Count
    first_seq: int | None = None
    batch_id: str | None = None
    before: EditsBefore | None = None
    cursor: Cursor | None = None
    edits: EditsAfter | None = None

    @property
    def is_identified(self) -> bool:
        """Whether something identifies the batch, or each of its messages."""
        return self.first_seq is not None or self.batch_id is not None or self.before is not None or self.has_keys

    @property
    def has_keys(self) -> bool:
        return any(prepared.message.key is not None for prepared in self.messages)

    def check_markers(self) -> None:
        """Raise BadInputError if more than one thing identifies the messages."""
        if self.has_keys and (self.first_seq is not None or self.batch_id is not None):
            raise BadInputError("These messages have keys, which identify them: pass neither first_seq nor batch_id.")

    def appended(
        self, session: Session, stored: tuple[Message, ...], first_seq: int | None, *, repeats: bool
    ) -> Appended:
        """What an append did that stored these messages."""
        return Appended(
            messages=stored,
            duplicates=len(self.messages) - len(stored),
            session=session,
            first_seq=None if self.has_keys or not self.messages else first_seq,
            repeats=repeats,
        )


def with_counters(session: Session, counters: Counters) -> Session:
    """The session with these counters."""
    return session if counters is session.counters else session.model_copy(update={"counters": counters})


def stored_message(message: NewMessage, session_id: str, seq: int, created: datetime) -> Message:
    """A message as it is read after it was stored, without its body."""
    return Message(
        session_id=session_id,
        seq=seq,
        role=message.role,
        kind=message.kind,
        blocks=message.blocks,
        usage=message.usage,
        group=message.group,
        key=message.key,
        created_at=created,
        agent_visible=message.agent_visible,
        user_visible=message.user_visible,
    )


def with_usage(call: Call, usage: Usage) -> Call:
    """A call with a later report of its usage."""
    return call.model_copy(update=usage.model_dump())


def reported_call(message: NewMessage, session: Session, reply_start: int, sent: SentRequest | None) -> Call:
    """The model call that a message reports on: of the request `sent`, else of what stood before its reply."""
    assert message.usage is not None
    return Call(
        purpose="agent",
        model=message.model or session.model,
        request_seq=reply_start - 1 if sent is None else sent.messages - 1,
        request_edits=session.counters.edits if sent is None else sent.edits,
        created_at=message.created_at,
        **message.usage.model_dump(),
    )
