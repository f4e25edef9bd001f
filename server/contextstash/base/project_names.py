"""The name under which a project's folder is shown."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePath

from contextstash.base.files import read_regular
from contextstash_storage.errors import BadInputError

MAX_LINK_BYTES = 4_096
"""Of the file `.git` in a worktree, which holds one path."""


@lru_cache(maxsize=1_000)
def project_name(folder: str) -> str:
    """How a project is shown: by its folder's name, and a worktree by its repository's too: `app (fix-login)`."""
    path = PurePath(folder)
    name, parent = path.name or folder, path.parent
    repository = parent.parent.parent if parent.parts[-2:] == (".claude", "worktrees") else None  # Claude Code's place
    if ".worktrees" in path.parts[1:-1]:  # the place that many choose; the branch's name may have slashes
        place = path.parts.index(".worktrees")
        repository, name = PurePath(*path.parts[:place]), "/".join(path.parts[place + 1 :])
    with suppress(OSError, BadInputError):
        link = read_regular(Path(folder, ".git"), MAX_LINK_BYTES).decode("utf-8", "replace").strip()
        git = PurePath(link.removeprefix("gitdir:").strip()).parent
        repository = git.parent.parent if git.parts[-2:] == (".git", "worktrees") else repository
    return f"{repository.name} ({name})" if repository is not None and repository.name else name
