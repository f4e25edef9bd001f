"""`contextstash completion`: commands, sessions and handles completed by the shell."""

from __future__ import annotations

import pytest

from tests.support.orchard import Orchard


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_and_finds_sessions_and_handles(orchard: Orchard, shell: str) -> None:
    assert "_CONTEXTSTASH_COMPLETE" in orchard.run("completion", shell).stdout
    handle = orchard.json("prune", orchard.session, "--keep-last", "2")["archived"][0]["handle"]
    for begun, whole in ((orchard.session[:4], orchard.session), (handle[:6], handle)):
        asked = {
            "_CONTEXTSTASH_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": f"contextstash show {begun}",
            "COMP_CWORD": begun if shell == "fish" else "2",
        }
        assert whole in orchard.run(environment=asked).stdout
