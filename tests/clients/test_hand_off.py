"""After a compaction by the real Claude Code, its next request holds the whole hand-off, in parts.

Runs if `claude` is on the PATH. Of what one hook adds beyond 10,000 characters it would show a preview.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contextstash.clients.client import client, hooks_of
from tests.support.command_line import CommandLine
from tests.support.compacting_provider import compacting_provider
from tests.support.real_clients import SECONDS, run_claude

KINDS = [
    f"{place}_{what}" for place in ("library", "branch", "school", "region") for what in ("loans", "fines", "copies")
]
"""Files that the model reads; the client compacts after nine or ten, by the usage that is reported."""

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


def functions(kind: str) -> list[str]:
    """The functions of a file, in words, as most code is: digits take more tokens."""
    words = (
        "reader",
        "author",
        "shelf",
        "catalogue",
        "reservation",
        "reminder",
        "receipt",
        "volume",
        "journal",
        "desk",
    )
    return [
        f"def count_{kind}_by_{one}_and_{other}(ledger):\n"
        f"    return ledger.select({one}=ledger.current.{one}).group({other}=ledger.previous.{other}).total()\n"
        for one in words
        for other in words
        if one != other
    ]


def test_claude_code_takes_a_hand_off_whole_after_a_compaction(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for kind in KINDS:
        (project / f"{kind}.py").write_text("\n".join(functions(kind)))
    home = CommandLine(tmp_path)
    # The hooks alone, as in a client without mods.
    assert home.run("install", "claude-code", "--scope", "project", "--hooks", "--yes").returncode == 0
    calls = [("Read", {"file_path": str(project / f"{kind}.py")}) for kind in KINDS]
    with compacting_provider(calls) as provider:
        said = run_claude(tmp_path, provider.url, "Sum up the fines. Never round them.", "--allowedTools", "Read")
        assert provider.summarized, said[-2_000:]
        texts = provider.after_compaction()
    added = "\n".join(text for text in texts if "hand-off" in text)
    parts = re.findall(r"\[contextstash: part (\d) of (\d) of a hand-off", added)
    assert parts == [("1", "2"), ("2", "2")]
    limit = hooks_of(client("claude-code")).context_limit
    assert limit is not None
    assert len(added) > limit
    assert "Never round them." in added
    assert "persisted-output" not in added
    # The whole of it: the last function of what is fenced is closed, and the end of the second part is there.
    assert added.count("```") % 2 == 0
    assert added.count("def count_") > 60
