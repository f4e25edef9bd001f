"""News of a session: what a reader who knows a part of it reads in each turn, as of one moment."""

from __future__ import annotations

from contextstash_storage.records import KnownPart, NewMessage, Request
from contextstash_storage.store import SessionStore
from tests.support.stored_sessions import SESSION, answers, archiving, calls, record


def looped(messages: int) -> list[NewMessage]:
    """Calls, each with its result."""
    return [
        calls(f"c{number}") if number % 2 == 0 else answers(f"c{number - 1}", handle=f"out_{number}")
        for number in range(messages)
    ]


def request(messages: int) -> Request:
    return Request(messages=messages, edits=0, appended=1, budget=9, counted=1, tokens=1)


async def test_news_are_what_lies_beyond_the_known_part(store: SessionStore) -> None:
    await record(store, *looped(12))
    await store.append_edits(SESSION, [archiving(1), archiving(3), archiving(5)], expected=0)
    await store.append_request(SESSION, request(1))
    newest = await store.append_request(SESSION, request(2))
    news = await store.read_news(SESSION, KnownPart(first=8, edits=1))
    assert news.session == await store.get_session(SESSION)
    assert news.request == newest
    assert list(news.edits) == await store.read_edits(SESSION, after=1)
    assert list(news.messages) == await store.read_messages(SESSION, first=8)
    assert list(news.outputs) == await store.read_outputs(SESSION, first=8)
    assert news.outputs


async def test_many_new_messages_are_left_to_who_needs_them(store: SessionStore) -> None:
    await record(store, *looped(30))
    read = [(await store.read_news(SESSION, KnownPart(first=9, most=most))).messages for most in (20, 19)]
    assert [[message.seq for message in messages] for messages in read] == [[*range(9, 30)], [9]]


async def test_who_knows_nothing_gets_no_message_and_all_edits(store: SessionStore) -> None:
    await record(store, *looped(4))
    await store.append_edits(SESSION, [archiving(1)], expected=0)
    news = await store.read_news(SESSION, KnownPart())
    assert (news.messages, news.outputs, news.request, len(news.edits)) == ((), (), None, 1)
    assert (await store.read_news(SESSION, KnownPart(first=4, edits=1))).messages == ()
