"""Real clients compact where `--window` tells them, and the hand-off is in the next request.

Each runs if it is there. The provider is on loopback, counts requests by their bytes, and reports that as usage.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.real_clients import (
    Asked,
    CodingProvider,
    client_environment,
    coding_provider,
    ended,
    install_hooks_alone,
    program,
)

SECONDS = 240
"""A guess: a client starts in a few seconds, on a busy machine in a minute."""

RULE = "Never touch the public interface of the orchard."
WORK = f"Do the work. {RULE}"

HOOKS = ("PreCompact", "SessionStart", "SessionEnd", "SubagentStop")
"""All but the one that shortens outputs."""

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


def contextstash(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = client_environment(home, CODEX_API_KEY="none")
    done = ended([sys.executable, "-m", "contextstash", *arguments], home, environment, SECONDS)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done


def claude(
    home: Path,
    provider: CodingProvider,
    *options: str,
    model: str = "claude-sonnet-4-5",
) -> subprocess.CompletedProcess[str]:
    asked = ["--", "-p", "--dangerously-skip-permissions", "--model", model, WORK]
    return contextstash(home, "run", "--upstream", provider.url, *options, program("claude"), *asked)


def codex(
    home: Path,
    provider: CodingProvider,
    *options: str,
    model: str = "gpt-5.4",
    more: tuple[str, ...] = (WORK,),
) -> subprocess.CompletedProcess[str]:
    (home / ".codex").mkdir(exist_ok=True)
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]
    asked = ["--", "exec", *flags, "-m", model, *more]
    return contextstash(home, "run", "--upstream", provider.url, *options, program("codex"), *asked)


def sizes(provider: CodingProvider) -> list[int]:
    return [asked.tokens for asked in provider.asked if not asked.compacts]


def after_compactions(provider: CodingProvider) -> list[Asked]:
    """The first request of each new window."""
    pairs = zip(provider.asked, provider.asked[1:], strict=False)
    return [after for before, after in pairs if before.compacts and not after.compacts]


def test_claude_code_compacts_at_the_window_and_goes_on_with_the_hand_off(tmp_path: Path) -> None:
    install_hooks_alone(tmp_path, *HOOKS)
    with coding_provider("seq 1 4200", 12) as provider:
        claude(tmp_path, provider, "--window", "80k")
    assert 70_000 < max(sizes(provider)) <= 80_000
    first = after_compactions(provider)
    assert first
    assert all("hand-off of session" in asked.text and RULE in asked.text for asked in first)
    assert RULE in provider.turns()[-1].text


@pytest.mark.parametrize(
    ("start", "model"), [(claude, "claude-opus-5-5"), (codex, "gpt-6.2-sol")], ids=["claude-code", "codex"]
)
def test_what_was_sent_to_a_binding_model_stays(
    tmp_path: Path, start: Callable[..., subprocess.CompletedProcess[str]], model: str
) -> None:
    client = "claude-code" if start is claude else "codex"
    contextstash(tmp_path, "install", client, "--yes")
    with coding_provider("seq 1 3000", 12, thinks=True) as provider:
        start(tmp_path, provider, model=model)
    assert provider.thoughts
    sent = [asked.outputs for asked in provider.turns()]
    assert len(sent[-1]) == 12
    assert all(after[: len(before)] == before for before, after in pairwise(sent)), "what was sent was changed"


def test_a_sub_agent_that_is_compacted_gets_its_own_hand_off_not_the_main_agents(tmp_path: Path) -> None:
    install_hooks_alone(tmp_path, *HOOKS)
    with coding_provider("seq 1 4200", 2, sub_agent_steps=14) as provider:
        claude(tmp_path, provider, "--window", "67k")
    places = [place for place, asked in enumerate(provider.asked) if asked.compacts]
    assert len(places) == 1
    after = provider.asked[places[0] + 1]
    assert "x-claude-code-agent-id" in after.headers
    assert RULE not in after.text


def test_codex_goes_on_with_the_hand_off_after_its_compaction_and_when_it_is_resumed(tmp_path: Path) -> None:
    contextstash(tmp_path, "install", "codex", "--yes")
    with coding_provider("seq 1 4200", 12) as provider:
        codex(tmp_path, provider, "--no-prune", "--window", "40k")
        first, steps = after_compactions(provider), len(provider.asked)
        assert 30_000 < max(sizes(provider)) < 50_000
        codex(tmp_path, provider, "--no-prune", "--window", "40k", more=("resume", "--last", "Are you done?"))
    assert first
    assert all("hand-off of session" in asked.text and RULE in asked.text for asked in first)
    ended, resumed = provider.asked[steps - 1], provider.asked[steps:]
    assert resumed
    for asked in (ended, resumed[-1]):
        assert "hand-off of session" in asked.text
        assert RULE in asked.text
    assert "Are you done?" in resumed[-1].text
    contextstash(tmp_path, "uninstall", "codex", "--yes")
    left = [path for path in (tmp_path / ".codex").glob("*.*") if path.suffix in (".json", ".toml")]
    assert not [path for path in left if b"contextstash" in path.read_bytes()]
