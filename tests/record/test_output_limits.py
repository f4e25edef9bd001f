"""Outputs over a limit, in messages and in none: truncated in the first view already, and nothing of them is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.records import Native
from contextstash_storage.sqlite import open_sqlite
from tests.support.stashes import SESSION, all_handles, as_bytes, history, stash_at, user, view, whole_output


def called(call_id: str, text: str, tool: str = "Bash", command: str = "make test") -> list[Native]:
    """A tool call and its result as Anthropic writes them."""
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def session(*outputs: str) -> list[Native]:
    messages: list[Native] = [{"role": "user", "content": "Run the tests."}]
    for number, text in enumerate(outputs):
        messages += called(f"toolu_{number:08}", text)
    return messages


async def shown_outputs(stash: Stash) -> list[Any]:
    """What the model sees of each tool result."""
    natives = await view(stash)
    contents = [native["content"] for native in natives if isinstance(native["content"], list)]
    return [block["content"] for content in contents for block in content if block["type"] == "tool_result"]


def numbered(characters: int) -> str:
    return "".join(f"{number:07d}\n" for number in range(characters // 8 + 1))[:characters]


@pytest.mark.parametrize(
    ("preset", "text", "said"),
    [
        ("staged", "x" * 50_001, "101 bytes cut here; whole output: "),
        ("rolling", numbered(204_801), "204,801 characters"),
        ("default", numbered(200_000), "cut here; whole output: "),
    ],
)
async def test_an_output_over_it_is_shown_cut_and_is_retrieved_whole(
    tmp_path: Path, preset: str, text: str, said: str
) -> None:
    messages = session(text)
    messages[-1]["content"][0]["is_error"] = preset == "staged"
    async with stash_at(tmp_path / "stash.db", preset=preset, window=1_000_000) as stash:
        await stash.record_messages(messages, session_id=SESSION)
        [shown] = await shown_outputs(stash)
        [handle] = await all_handles(stash)
        assert said in shown
        assert handle in shown
        assert await whole_output(stash, handle) == text
        assert as_bytes(await history(stash)) == as_bytes(messages)
        assert (await view(stash))[-1]["content"][0]["is_error"] is (preset == "staged")


async def test_our_own_retrievals_are_never_cut_unless_other_commands_follow(tmp_path: Path) -> None:
    own = "contextstash show out_k3f9x2ab"
    messages: list[Native] = [{"role": "user", "content": "Read it."}]
    messages += called("toolu_00000001", "x" * 9_000, "get_archived_output")
    messages += called("toolu_00000002", "x" * 9_000, "mcp__contextstash__get_archived_output")
    messages += called("toolu_00000003", "x" * 9_000, command=own)
    messages += called("toolu_00000004", "y" * 9_000, command=f"{own}; make test")
    async with stash_at(tmp_path / "stash.db", preset="byte-budget") as stash:
        await stash.record_messages(messages, session_id=SESSION)
        *ours, last = await shown_outputs(stash)
        assert ours == ["x" * 9_000] * 3
        assert len(last) < 4_200


LIMITS = {"chars": 500, "cut": "head_tail"}


def text_of(words: str) -> str:
    return "".join(f"{words} in line {number}\n" for number in range(200))


async def test_the_same_output_is_kept_once_and_has_one_handle(stash: Stash) -> None:
    outputs = [
        await stash.limit_output(text_of("figs"), argument="ls", session_id=SESSION, limits=LIMITS) for _ in range(3)
    ]
    other = await stash.limit_output(text_of("figs"), argument="ls -l", session_id=SESSION, limits=LIMITS)
    assert len({output.handle for output in outputs}) == 1
    assert other.handle != outputs[0].handle
    assert (await stash.read_session(f"{SESSION}.outputs")).counters.messages == 4


async def test_a_secret_in_an_archived_output_is_masked_and_in_no_index(stash: Stash) -> None:
    secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    text = f"export TOKEN={secret}\n{text_of('kiwis')}"
    await stash.limit_output(text, tool="Bash", argument=f"make; TOKEN={secret}", limits=LIMITS)
    [output] = await stash.store.read_outputs("outputs")
    assert "masked" in output.argument
    assert not (await stash.search_history(secret, scope="everywhere")).hits


@pytest.mark.parametrize(
    "text", ["\udcff\udc80 binary \0 " * 500, "漢字😀\n" * 500, "\r\n" * 900], ids=["bytes", "wide", "blank"]
)
async def test_any_text_is_archived_exactly_and_durably_before_the_answer(
    tmp_path: Path, stash: Stash, text: str
) -> None:
    limited = await stash.limit_output(text, limits={"bytes": 400})
    other = Stash(await open_sqlite(tmp_path / "s.db"))
    assert await whole_output(other, limited.handle or "", None) == text
    await other.close()


@pytest.mark.parametrize("name", ["outputs", f"{SESSION}.outputs"])
async def test_no_conversation_can_have_the_id_of_an_archive(stash: Stash, name: str) -> None:
    """It would be deleted with the other session, and its format would keep outputs from being archived."""
    said = [{"role": "user", "content": [{"type": "text", "text": "zebrafish"}]}]
    with pytest.raises(BadInputError, match="kept for archived outputs"):
        await stash.record_messages(said, session_id=name, format="anthropic")
    limited = await stash.limit_output(text_of("pears"), session_id=SESSION, limits=LIMITS)
    assert await whole_output(stash, limited.handle or "") == text_of("pears")


TEXT = "\n".join(f"{number}: compiling module {number}" for number in range(3_000)) + "\nfatal: no room on the disk"


async def test_they_are_found_everywhere_are_not_listed_and_are_deleted_with_their_session(stash: Stash) -> None:
    await stash.record_messages([user(40)], session_id=SESSION)
    kept = await stash.limit_output(TEXT, tool="bash", argument="make", session_id=SESSION, limits={"tokens": 500})
    assert kept.handle
    assert await whole_output(stash, kept.handle) == TEXT
    for scope in ("session", "outputs", "everywhere"):
        hits = (await stash.search_history("disk fatal", session_id=SESSION, scope=scope)).hits
        assert [hit.handle for hit in hits][:1] == [kept.handle]
    assert (await stash.search_history("disk fatal", session_id=SESSION, scope="messages")).hits == []
    assert [line.session_id for line in (await stash.list_sessions()).sessions] == [SESSION]
    await stash.delete_session(SESSION)
    with pytest.raises(HandleNotFoundError):
        await stash.get_archived_output(kept.handle)
