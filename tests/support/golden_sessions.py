"""Sessions of every format with edits of every kind, and all that can be read of them: what a golden database holds.

`python -m tests.support.golden_sessions FOLDER NAME` makes FOLDER/NAME.db.gz with the version of contextstash that
runs it, and FOLDER/NAME.json (what is read of its sessions). Later versions must read the same; so a golden database
is made once for a version, before its stored form changes.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.service.stash import Stash
from contextstash_storage.records import Cursor, Usage
from contextstash_storage.sqlite import open_sqlite

SESSIONS = ("chat", "responses", "thoughtful", "followed", "merged")

ROOMY = {"window": 1_000_000}
"""A window in which every view fits: what is sent is then the history with its edits, and nothing else."""

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def output(number: int, lines: int = 30) -> str:
    """A tool output with something to find."""
    body = [f"{line:3}: file_{number}_{line}.py \u2713 \U0001f642" for line in range(lines)]
    return "\n".join([*body, f"ERROR in module_{number}: expected {number} found {number + 1}"])


def chat_turn(number: int) -> list[dict[str, Any]]:
    """Of the chat format: a question, a call, its output, an answer."""
    given = {"name": "Bash", "arguments": json.dumps({"command": f"make part-{number}"})}
    call = {"id": f"call_{number}", "type": "function", "function": given}
    return [
        {"role": "user", "content": f"Please build part {number}. It must never use the network."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": output(number)},
        {"role": "assistant", "content": f"Part {number} is built, see src/part_{number}.py."},
    ]


def responses_turn(number: int) -> list[dict[str, Any]]:
    """The same in the Responses format."""
    call_id, arguments = f"call_{number}", json.dumps({"command": f"make part-{number}"})
    asked = {"type": "input_text", "text": f"Please build part {number}."}
    said = {"type": "output_text", "text": f"Part {number} is built.", "annotations": []}
    return [
        {"type": "message", "role": "user", "content": [asked]},
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "Z0FBQUFB"},
        {"type": "function_call", "call_id": call_id, "name": "shell", "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": output(number)},
        {"type": "message", "role": "assistant", "content": [said], "id": f"msg_{number}"},
    ]


def thoughtful_turn(number: int) -> list[dict[str, Any]]:
    """Of Anthropic's format, with thinking that is tied to what stands before it."""
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"make part-{number}"}}
    given = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output(number)}
    return [
        {"role": "user", "content": f"Please build part {number}."},
        {"role": "assistant", "content": [_thought(2 * number), call]},
        {"role": "user", "content": [given]},
        {"role": "assistant", "content": [_thought(2 * number + 1), {"type": "text", "text": f"Built {number}."}]},
    ]


def _thought(number: int) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"Thought {number}. " * 10, "signature": f"c2ln{number}"}


async def make_sessions(path: Path) -> None:
    """Fill the database at `path`."""
    stash = Stash(await open_sqlite(path), settings={"automatic": False})
    try:
        await _chat(stash)
        await _responses(stash)
        await _thoughtful(stash)
        await _followed(stash)
        await _merged(stash)
    finally:
        await stash.close()


async def _chat(stash: Stash) -> None:
    """Archives by count with their digest messages, outputs cut, a summary."""
    system = {"role": "system", "content": "You build parts."}
    await stash.record_messages([system], session_id="chat", format="openai-chat", model="gpt-5", title="Parts")
    own = {"preset": "rolling", "automatic": True, "tool_digest": "heuristic", "output_cut": "telling"}
    await stash.configure_session("chat", settings=own)
    for number in range(16):
        usage = {"prompt_tokens": 900 * (number + 1), "completion_tokens": 30}
        await stash.record_messages(chat_turn(number), session_id="chat", usage=usage)
        await stash.idle()
    await stash.record_messages(chat_turn(16), session_id="chat", limits={"chars": 400})
    await stash.limit_output(output(99, 400), session_id="chat", limits={"chars": 1_000})


async def _responses(stash: Stash) -> None:
    """Archives, outputs cut, a summary undone and made again, an archive undone."""
    session: dict[str, Any] = {"session_id": "responses", "format": "openai-responses", "model": "gpt-5"}
    messages = [item for number in range(6) for item in responses_turn(number)]
    await stash.record_messages(messages, limits={"lines": 20}, **session)
    pruned = await stash.prune_tool_outputs("responses", keep_last=2)
    made = await stash.compact_session("responses", instructions="Name the parts.")
    await stash.restore_outputs([made.summary_id or "", pruned.archived[0].handle], session_id="responses")
    await stash.compact_session("responses", summary="Parts 0 to 3 are built. " * 3)


async def _thoughtful(stash: Stash) -> None:
    """Thinking stripped behind archives, and a restore of one of them."""
    messages = [message for number in range(6) for message in thoughtful_turn(number)]
    await stash.record_messages(messages, session_id="thoughtful", format="anthropic", model="claude-fable-5-1")
    pruned = await stash.prune_tool_outputs("thoughtful", keep_last=3)
    more = [message for number in (6, 7) for message in thoughtful_turn(number)]
    await stash.record_messages(more, session_id="thoughtful")
    await stash.restore_outputs([pruned.archived[-1].handle], session_id="thoughtful")


async def _merged(stash: Stash) -> None:
    """Summaries of several levels."""
    own = {"window": 6_000, "output_reserve": 500, "summaries_share": 0.02, "compact_keep_tokens": 100}
    for number in range(24):
        turn = chat_turn(number)
        await stash.record_messages(turn, session_id="merged", format="openai-chat", model="gpt-5")
        await stash.configure_session("merged", settings=own)
        if number % 4 == 3:
            await stash.compact_session("merged")


async def _followed(stash: Stash) -> None:
    """What a client did to its own window: left a branch, dropped results, compacted in part and whole."""
    source = "client.jsonl"
    session = TranscriptSession("followed", "anthropic", agent="pi", model="claude-sonnet-4-5", source=source)
    written = 0

    async def record(*messages: TranscriptMessage) -> None:
        nonlocal written
        written += len(messages)
        await stash.record_transcript(session, messages, Cursor(source=source, offset=written))

    def said(key: str, role: str = "user", **about: Any) -> TranscriptMessage:
        body = {"role": role, "content": [{"type": "text", "text": f"{key} " * 40}]}
        return TranscriptMessage(body=body, key=key, created_at=BEGIN + timedelta(seconds=written), **about)

    for number in range(4):
        turn = [TranscriptMessage(body, key=f"{number}.{at}") for at, body in enumerate(thoughtful_turn(number))]
        await record(*turn)
    await record(said("dropped", cleared_call_ids=("toolu_0", "toolu_1")), said("reply", "assistant"))
    await record(said("summary in part", covers_before=True, covers_before_key="2.0"), said("on"))
    await record(said("another branch", rewind_to_key="reply"), said("there", "assistant"))
    await record(said("back", rewind_to_key="on"), said("gone on", "assistant", usage=Usage(prompt_tokens=4_000)))
    await record(said("summary of all", covers_before=True), said("after it"))
    await record(said("left", "assistant"), said("elsewhere", rewind_to_key="after it"))


async def read_sessions(stash: Stash) -> dict[str, Any]:
    """All that can be read of the golden sessions, by session."""
    return {session_id: await _read(stash, session_id) for session_id in SESSIONS}


async def _read(stash: Stash, session_id: str) -> dict[str, Any]:
    session = await stash.read_session(session_id)
    await stash.configure_session(session_id, settings=ROOMY)
    sent = await stash.get_context(session_id)
    calls = (await stash.list_calls(session_id, limit=1_000)).calls
    events = await stash.read_events(session_id, limit=1_000)
    beside = await stash.read_side_by_side(session_id, limit=500)
    access = stash._access
    return {
        "counters": session.counters.model_dump(mode="json"),
        "edits": [edit.kind for edit in await access.store.read_edits(session_id)],
        "view": sent.messages,
        "shown": [(message.visible, [block.state for block in message.blocks]) for message in beside.messages],
        "history": [_hash(line.message) for line in (await stash.read_messages(session_id, limit=500)).messages],
        "summary": await _summary(stash, session_id),
        "outputs": await _outputs(stash, session_id),
        "events": [event.model_dump(mode="json") for event in events],
        "calls": [call.model_dump(mode="json") for call in calls],
        "requests": [_hash(await stash.read_request(session_id, call.call_id)) for call in calls],
        "found": [
            hit.handle for hit in (await stash.search_history("ERROR", session_id=session_id, unseen_first=False)).hits
        ],
    }


async def _summary(stash: Stash, session_id: str) -> dict[str, Any] | None:
    if not (await stash._access.snapshot(session_id)).overlay.summaries:
        return None
    return (await stash.get_summary(session_id)).model_dump(mode="json")


async def _outputs(stash: Stash, session_id: str) -> dict[str, str]:
    access = stash._access
    found = await access.store.read_outputs(session_id)
    session = await stash.read_session(session_id)
    return {output.handle: _hash(await access.output_text(session, output)) for output in found}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


async def main(folder: Path, name: str) -> None:
    """Make the two files."""
    path = folder / f"{name}.db"
    await make_sessions(path)
    packed = gzip.compress(path.read_bytes(), mtime=0)
    stash = Stash(await open_sqlite(path), settings={"automatic": False})
    read = await read_sessions(stash)
    await stash.close()
    path.unlink()
    (folder / f"{name}.db.gz").write_bytes(packed)
    (folder / f"{name}.json").write_text(json.dumps(read) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
