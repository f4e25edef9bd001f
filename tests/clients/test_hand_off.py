"""After a compaction by the real Claude Code, its next request holds the whole hand-off, in parts.

Runs if `claude` is on the PATH. Of what one hook adds beyond 10,000 characters it would show a preview.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.client import client
from tests.support.provider import Asked, Said, provider
from tests.support.real_clients import SECONDS, install_hooks_alone, run_claude

KINDS = [
    f"{place}_{what}" for place in ("library", "branch", "school", "region") for what in ("loans", "fines", "copies")
]
"""Files that the model reads; the client compacts after nine or ten, by the usage that is reported."""

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


FIXED_TOKENS, RESULT_TOKENS = 20_000, 5_000
"""The usage that is reported: of a request without results, and of each result. The client compacts by these."""

SUMMARY = "<summary>The files part0.py and the following were read.</summary>"


@dataclass
class ReadingModel:
    """Reads these files until the client compacts, and then ends; `after` are the texts of the first request after the
    compaction, one for each block."""

    paths: Sequence[Path]
    made: int = 0
    summarized: bool = False
    after: list[str] = field(default_factory=list)

    def say(self, asked: Asked) -> Said:
        """The next call, the summary, or the end."""
        read = len(asked.outputs)
        tokens = FIXED_TOKENS + RESULT_TOKENS * read
        if any("detailed summary of" in text for text in texts_of(asked.items[-1:])):
            self.summarized = True
            return Said(SUMMARY, number=read, input_tokens=tokens)
        if self.summarized and not self.after and SUMMARY[9:40] in asked.text:
            self.after = texts_of(asked.items)
        offered = {tool.get("name") for tool in asked.body.get("tools") or ()}
        if self.summarized or self.made >= len(self.paths) or "Read" not in offered:
            return Said("Done.", number=read, input_tokens=tokens)
        self.made += 1
        call = ("Read", {"file_path": str(self.paths[self.made - 1])})
        return Said("", call, number=self.made, input_tokens=tokens)


def texts_of(messages: Sequence[dict[str, Any]]) -> list[str]:
    contents = [message["content"] for message in messages]
    blocks = [[{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents]
    return [block["text"] for listed in blocks for block in listed if block.get("type") == "text"]


def functions(kind: str) -> list[str]:
    """The functions of a file, in words, as most code is: digits take more tokens."""
    words = ["reader", "author", "shelf", "catalogue", "hold", "reminder", "receipt", "volume", "journal", "desk"]
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
    install_hooks_alone(tmp_path)
    model = ReadingModel([project / f"{kind}.py" for kind in KINDS])
    with provider(model.say) as url:
        said = run_claude(tmp_path, url, "Sum up the fines. Never round them.", "--allowedTools", "Read")
    assert model.summarized, said[-2_000:]
    # The client puts them behind each other in the order in which its hooks end.
    found = re.split(r"(?=\[contextstash: part \d)", "\n".join(text for text in model.after if "hand-off" in text))
    added = "\n".join(sorted(found[1:]))
    parts = re.findall(r"\[contextstash: part (\d) of (\d) of a hand-off", added)
    assert parts == [("1", "2"), ("2", "2")]
    hooks = client("claude-code").hooks
    assert hooks is not None
    assert len(added) > (hooks.context_limit or 0)
    assert "Never round them." in added
    assert "persisted-output" not in added
    # The whole of it: what is fenced is closed, each function in it is whole, and the last section goes on to its end.
    assert added.count("```") % 2 == 0
    assert added.count("def count_") == added.count(".total()") > 40
    assert re.search(r"## Outputs kept, newest first\n(- out_\w+: Read .+ \([\d,]+ tokens\)\s*)+$", added)
