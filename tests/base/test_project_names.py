"""How the project of a session is shown."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from contextstash.base.project_names import project_name


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_worktree_is_shown_with_the_name_of_its_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path / "app", check=True, capture_output=True)

    (tmp_path / "app").mkdir()
    git("init")
    git("commit", "--allow-empty", "-m", "Begin")
    git("worktree", "add", str(tmp_path / "fix-login"))
    assert project_name(str(tmp_path / "fix-login")) == "app (fix-login)"
    assert project_name(str(tmp_path / "app")) == "app"


def test_a_worktree_of_claude_code_keeps_its_name_when_it_is_gone(tmp_path: Path) -> None:
    assert project_name(str(tmp_path / "app" / ".claude" / "worktrees" / "quiet-fox")) == "app (quiet-fox)"


@pytest.mark.parametrize("link", ["gitdir: ../.git/modules/lib", "", "x" * 9_000, "gitdir: /.git/worktrees/a"])
def test_a_folder_that_only_looks_like_one_is_shown_by_its_own_name(tmp_path: Path, link: str) -> None:
    (tmp_path / ".git").write_text(link)
    assert project_name(str(tmp_path)) == tmp_path.name


def test_a_worktree_in_the_usual_folder_keeps_its_name_when_it_is_gone() -> None:
    assert project_name("/gone/app/.worktrees/3") == "app (3)"
    assert project_name("/gone/app/.worktrees/alex/fix-login") == "app (alex/fix-login)"


def test_a_root_is_shown_as_it_is() -> None:
    assert project_name("/") == "/"


def test_a_folder_that_cannot_exist_is_shown_by_its_name() -> None:
    """A transcript may name any folder; a NUL in it kept `sessions` and the first page from being shown."""
    assert project_name("/tmp/a\0b") == "a\0b"
