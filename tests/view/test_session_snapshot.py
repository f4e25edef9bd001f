"""A snapshot's outputs in use, by their tools and main arguments; and a summary as the view shows it."""

from __future__ import annotations

import pytest

from contextstash.view.session_snapshot import outputs_in_use, paths_changed, paths_read, summary_text
from contextstash_storage.records import Output


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
