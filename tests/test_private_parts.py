"""The parts of libraries that are not public and that we use all the same: each in one module, which is listed here.

If a library changes one, the tests of that module fail, and this list names what to look at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

PRIVATE_NAMES = {
    "server/contextstash/mcp/stdio.py": {"_lowlevel_server"},
    "storage/contextstash_storage/sqlite.py": {"_execute", "_thread"},
}
"""The private names of libraries that each module of ours uses."""

PUBLIC_IN_SPITE_OF_THE_NAME = {"_exit", "_replace"}
"""`os._exit` and `_replace` of named tuples: the Python documentation describes both."""


def our_modules() -> Iterator[tuple[str, ast.Module]]:
    for source in ("server/contextstash", "storage/contextstash_storage"):
        for path in sorted((ROOT / source).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_IN_SPITE_OF_THE_NAME


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module defines: functions, classes, variables, fields and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own_object(node.value):
            yield node.attr


def is_own_object(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def foreign_private_names(tree: ast.Module) -> set[str]:
    """The private names that a module uses and does not define, of its own base classes too."""
    own = set(defined_names(tree))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            used |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            used |= {part for alias in node.names for part in alias.name.split(".")}
    return {name for name in used if is_private(name) and name not in own}


def test_each_private_name_of_a_library_is_used_in_the_module_that_is_listed_for_it() -> None:
    found = {name: names for name, tree in our_modules() if (names := foreign_private_names(tree))}
    assert found == PRIVATE_NAMES, "Keep each private part in one module, and add a contract test for a new one here."
