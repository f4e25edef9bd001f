"""Codex's rollouts: rollbacks, usage that comes late, and which one is the current."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.codex import agent_rollouts, current_sessions
from contextstash.clients.follow import ingest
from contextstash.stash import Stash
from contextstash_storage.records import Call
from tests.support.client_files import write_lines
from tests.support.stashes import stash_at, view

SESSION = "019d6d29-8cf7-7fe3-adc9-000000000001"

Json = dict[str, Any]


def line(kind: str, **payload: Any) -> Json:
    return {"timestamp": "2026-05-01T10:00:00.000Z", "type": kind, "payload": payload}


def meta(session: str = SESSION, **more: Any) -> Json:
    return line("session_meta", id=session, cwd="/srv/orchard", source="cli", **more)


def message(role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def usage(prompt: int) -> Json:
    last = {"input_tokens": prompt, "cached_input_tokens": 10, "output_tokens": 5, "total_tokens": prompt + 5}
    return line("event_msg", type="token_count", info={"last_token_usage": last})


def rolled_back(turns: int) -> Json:
    return line("event_msg", type="thread_rolled_back", num_turns=turns)


CONTEXT = message("user", "<environment_context>\n  <cwd>/srv/orchard</cwd>\n</environment_context>")
TALK = [meta(), message("developer", "Rules"), CONTEXT, message("user", "One"), message("assistant", "First")]
TALK += [
    CONTEXT,
    message("user", "Two"),
    message("assistant", "Second"),
    message("user", "Three"),
    message("assistant", "Third"),
]


AGAIN = message("user", "Again")
AT_LAST = message("user", "At last")


@pytest.mark.parametrize(
    ("after", "kept", "gone"),
    [
        ([rolled_back(2), AGAIN], "Rules One First Again", "Two Second Three Third"),
        # Of more turns than there are: what came before the first stays.
        ([rolled_back(9), AGAIN], "Rules environment_context Again", "One Two Three"),
        ([rolled_back(1), AGAIN, rolled_back(2), AT_LAST], "One First At last", "Two Three Again"),
    ],
)
async def test_a_rollback_takes_back_the_turns_it_names(
    tmp_path: Path, after: list[Json], kept: str, gone: str
) -> None:
    async with stash_at(tmp_path / "stash.db") as stash:
        await ingest(stash, write_lines(tmp_path / "rollout-1.jsonl", [*TALK, *after]))
        shown = str(await view(stash, SESSION))
    assert [word for word in kept.split() if word not in shown] == []
    assert [word for word in gone.split() if word in shown] == []


async def test_a_rollout_read_line_by_line_reports_what_it_does_as_a_whole(tmp_path: Path) -> None:
    records = [meta(), message("user", "One"), message("assistant", "First"), usage(900), message("user", "Two")]
    records += [message("assistant", "Second"), usage(950)]
    reported = []
    for size in (1, len(records)):
        path = tmp_path / f"rollout-{size}.jsonl"
        async with stash_at(tmp_path / f"{size}.db") as stash:
            for end in range(size, len(records) + 1, size):
                await ingest(stash, write_lines(path, records[:end]))
            counters = (await stash.read_session(SESSION)).counters
            calls = [(call.request_seq, call.prompt_tokens) for call in await stash.store.read_log(SESSION, Call)]
            reported.append((counters.reported, counters.reported_view, counters.reported_seq, calls))
    assert reported[0] == reported[1]
    assert len(reported[0][3]) == 2


WINDOW = 258_400
"""What Codex 0.1xx writes for a model that has 1,050,000 tokens elsewhere."""


async def test_the_window_is_the_one_that_codex_says_it_uses(stash: Stash, tmp_path: Path) -> None:
    turn = line("turn_context", model="gpt-5.4", cwd="/srv/orchard")
    rollout = write_lines(tmp_path / "rollout-1.jsonl", [meta(), turn, *TALK[1:]])
    await ingest(stash, rollout)
    before = await stash.estimate_context(SESSION)
    started = line("event_msg", type="task_started", model_context_window=WINDOW)
    write_lines(rollout, [meta(), turn, *TALK[1:], started, message("user", "Four")])
    await ingest(stash, rollout)
    assert before.window > (await stash.estimate_context(SESSION)).window == WINDOW
    await stash.configure_session(SESSION, settings={"window": 100_000})
    assert (await stash.estimate_context(SESSION)).window == 100_000


def test_the_current_rollout_is_the_projects_own_with_its_sub_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": SESSION, "depth": 1}}}
    heads = {
        "01/rollout-own": meta(),
        "02/rollout-agent": {**meta("other-1"), "payload": {**meta("other-1")["payload"], "source": spawned}},
        "02/rollout-elsewhere": line("session_meta", id="other-2", cwd="/srv/other", source="cli"),
        "02/rollout-older": meta("other-3"),
    }
    times = {"01/rollout-own": 45, "02/rollout-agent": 40, "02/rollout-elsewhere": 50, "02/rollout-older": 10}
    for name, head in heads.items():
        path = write_lines(tmp_path / "sessions" / "05" / f"{name}.jsonl", [head])
        os.utime(path, (times[name], times[name]))
    folder = tmp_path / "sessions"
    [[own, agent]] = current_sessions(folder, Path("/srv/orchard"), {})
    assert (own.stem, agent.stem, agent_rollouts(own)) == ("rollout-own", "rollout-agent", [agent])
    assert current_sessions(folder, Path("/srv/nowhere"), {}) == []


async def test_only_what_the_person_typed_is_taken_for_the_task(stash: Stash, tmp_path: Path) -> None:
    kinds = {"content_item_kinds": ["hooks.stop"]}
    hooked = message("user", "The hook says: never stop before the lint passes.")
    hooked["payload"]["internal_chat_message_metadata_passthrough"] = kinds
    records = [
        meta(),
        message("user", "<environment_context>\n<cwd>/srv</cwd>\n</environment_context>"),
        message("user", "<skill>\n<name>fmt</name>\nAlways use three bullet points.\n</skill>"),
        hooked,
        message("user", '<hook_prompt hook_run_id="1">You must never stop here.</hook_prompt>'),
        message("user", "Report row 77."),
        message("assistant", "Row 77 is known."),
    ]
    path = write_lines(tmp_path / f"rollout-{SESSION}.jsonl", records)
    await ingest(stash, path)
    [line] = (await stash.list_sessions()).sessions
    text = await stash.hand_off(SESSION) or ""
    assert line.title == "Report row 77."
    assert "Report row 77." in text
    for added in ("bullet points", "never stop"):
        assert added not in text


@pytest.mark.parametrize("step", [1, 100], ids=["line by line", "at once"])
async def test_the_summary_of_codex_is_not_handed_off_as_the_agents_last_words(
    stash: Stash, tmp_path: Path, step: int
) -> None:
    """Codex has the model write it, records the reply like any other, and compacts with its text."""
    records = [meta(), CONTEXT, message("user", "Report row 77."), message("assistant", "Reading the rows first.")]
    records += [message("assistant", "CODEX SUMMARY"), line("compacted", message="Another model wrote:\nCODEX SUMMARY")]
    for end in range(step, len(records) + step, step):
        await ingest(stash, write_lines(tmp_path / f"rollout-{SESSION}.jsonl", records[:end]))
    text = await stash.hand_off(SESSION) or ""
    assert "Reading the rows first." in text
    assert "CODEX SUMMARY" not in text
