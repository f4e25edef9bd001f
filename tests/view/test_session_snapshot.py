"""A snapshot's outputs in use, by their tools and main arguments; a summary as the view shows it; and running counters,
updated with each message, anchored on the usage that the provider reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.view.session_snapshot import (
    breakdown,
    count_message,
    estimate,
    outputs_in_use,
    paths_changed,
    paths_read,
    summary_text,
)
from contextstash.window.settings import ContextSettings
from contextstash_storage.records import Block, Counters, Declared, NewMessage, Output, Part, Role, Usage


def output_of(handle: str, tool: str, argument: str) -> Output:
    place = {"handle": handle, "seq": 0, "block": 0, "tokens": 1, "characters": 1, "lines": 1, "sha256": "0" * 64}
    return Output.model_validate({**place, "tool": tool, "argument": argument})


HEREDOC = "cd /testbed && python - <<'EOF' import orders; print(qs.only('id').count() > 3, orders/models.py) EOF"


@pytest.mark.parametrize(
    ("tool", "argument", "read", "changed"),
    [
        ("bash", "cd /testbed && sed -i s/a/b/ src/a.py", set(), {"/testbed/src/a.py"}),
        ("bash", "cd /testbed && cat src/a.py | head -20", {"/testbed/src/a.py"}, set()),
        ("bash", HEREDOC, set(), set()),
        ("bash", "cat > t.py <<'EOF' from orders.models import qs.only", set(), {"t.py"}),
        ("bash", "cat <<EOF > t.py from orders.models import x", set(), {"t.py"}),
        ("bash", "cd /testbed && git log src/ > /tmp/log.txt", set(), {"/tmp/log.txt"}),
        ("bash", "cd /testbed && ls -la", set(), set()),
        ("shell", "apply_patch *** Begin Patch *** Update File: src/a.py @@ x.y", set(), {"src/a.py"}),
        ("Edit", "/srv/an order.py", set(), {"/srv/an order.py"}),
        ("Read", "/srv/a.py", {"/srv/a.py"}, set()),
    ],
)
def test_a_call_names_the_files_that_it_reads_or_changes(
    tool: str, argument: str, read: set[str], changed: set[str]
) -> None:
    output = output_of("1", tool, argument)
    assert (paths_read(output), paths_changed(output)) == (read, changed)


def test_a_folder_in_common_does_not_make_a_file_one_under_edit() -> None:
    calls = [
        output_of("under edit", "bash", "cd /testbed && cat src/a.py"),
        output_of("other", "bash", "cd /testbed && cat src/b.py"),
        output_of("listing", "bash", "ls /testbed"),
        output_of("edit", "bash", "cd /testbed && sed -i s/a/b/ src/a.py"),
    ]
    assert outputs_in_use(calls) == {"under edit"}


def test_a_summary_in_the_view_says_what_it_replaces_up_to_when_and_how_to_retrieve_the_originals() -> None:
    older = "What a summary above says is open, failed or the last state is out of date."
    shown = summary_text("Done: the parser.", 0, 41)
    for part in ("42 earlier messages (0 to 41)", "search_history", "get_archived_output", "as of message 41."):
        assert part in shown
    assert shown.endswith("\n\nDone: the parser.")
    assert older not in shown
    assert older in summary_text("Done.", 42, 50, later=True)
    assert summary_text("[contextstash summary: all done]", 0, 1).count("[contextstash") == 1


SETTINGS = ContextSettings()
ROLES: tuple[Role, ...] = ("user", "assistant")


def turn(role: Role, tokens: int, prompt: int | None = None, group: str | None = None) -> NewMessage:
    usage = Usage(prompt_tokens=prompt, completion_tokens=tokens) if prompt is not None else None
    return NewMessage(body={}, role=role, blocks=(Block(type="text", tokens=tokens),), usage=usage, group=group)


def results(tokens: int) -> NewMessage:
    return NewMessage(body={}, role="tool", blocks=(Block(type="tool_result", tokens=tokens),))


def fold(*messages: NewMessage) -> Counters:
    counters = Counters()
    for seq, message in enumerate(messages):
        counters = count_message(counters, message, seq)
    return counters


def test_the_last_report_is_the_anchor_and_what_came_after_is_counted() -> None:
    unreported = estimate(fold(turn("user", 100), turn("assistant", 50)), SETTINGS, "o200k_base")
    assert unreported == (150, "counted with o200k_base; no usage reported yet")
    counters = fold(turn("user", 100), turn("assistant", 50, prompt=5_000), turn("user", 30))
    tokens, method = estimate(counters, SETTINGS, "o200k_base")
    assert tokens == 5_000 + 50 + 30
    assert "reported usage (5,050 tokens at message 1) + 30 counted since" in method


def test_a_reply_recorded_in_parts_is_one_report() -> None:
    whole = fold(turn("user", 100), turn("assistant", 50, prompt=5_000, group="msg_1"))
    parts = fold(
        turn("user", 100),
        turn("assistant", 20, prompt=5_000, group="msg_1"),
        turn("assistant", 30, prompt=5_000, group="msg_1"),
    )
    assert estimate(parts, SETTINGS, "c")[0] == estimate(whole, SETTINGS, "c")[0]


def test_what_leaves_the_view_was_larger_or_smaller_than_counted_by_as_much_as_the_whole() -> None:
    for true, known in ((22_000, True), (19_000, True), (40_000, False)):
        declared = Declared(system=1, tools=2, system_tokens=400, tools_tokens=600)
        counters = fold(turn("user", 100), results(19_890)).model_copy(update={"declared": declared})
        counters = count_message(counters, turn("assistant", 10, prompt=true - 10), 2)
        pruned = counters.model_copy(update={"parts": {Part.USER: 100, Part.TOOL_RESULTS: 4_890, Part.ASSISTANT: 10}})
        gone = 15_000 * (true - 1_000) / 20_000 if known else 15_000
        assert estimate(pruned, SETTINGS, "c")[0] == true - gone
        undeclared = pruned.model_copy(update={"declared": Declared(), "reported_declared": 0})
        assert estimate(undeclared, SETTINGS, "c")[0] == true - 15_000


@given(st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 5_000), st.none() | st.integers(1, 200_000))))
def test_the_parts_always_add_up_to_the_estimate(rows: list[tuple[Role, int, int | None]]) -> None:
    counters = fold(*(turn(role, tokens, prompt if role == "assistant" else None) for role, tokens, prompt in rows))
    tokens, _ = estimate(counters, SETTINGS, "c")
    parts = breakdown(counters, tokens)
    assert sum(parts.values()) == tokens
    assert all(count > 0 for count in parts.values())
    assert counters.messages == counters.view_messages == len(rows)
