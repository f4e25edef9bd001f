"""The directions in which imports may point, and what the pure parts keep away from."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SERVER = ROOT / "server" / "contextstash"
STORAGE = ROOT / "storage" / "contextstash_storage"

RECORDS = tuple(f"contextstash_storage.{name}" for name in ("records", "errors"))

DRIVERS = ("sqlite3", "sqlcipher3", "aiosqlite", "psycopg")
"""What the stores speak to their databases with."""

PURE = ("safety", "outputs", "messages", "events", "handoff", "view", "window")
"""The rooms that decide: no input or output, no clock, no chance, no waiting."""

GROUND = ("contextstash_storage.errors", *RECORDS)

MAY_IMPORT_OF_OURS = {
    **{room: tuple(f"contextstash.{name}" for name in PURE) + GROUND for room in PURE},
    "writers": (*(f"contextstash.{name}" for name in ("writers", *PURE)), *GROUND),
}
"""For each pure layer, all of ours that it may import."""

USE_CASES = ("session", "record", "reduce", "request", "queries", "transfer")

MUST_NOT_IMPORT = {
    **dict.fromkeys(USE_CASES, ("mcp", "clients", "cli", "demo", "gateway", "pages", "proxy")),
    "clients": ("mcp", "cli", "demo", "gateway"),
    "mcp": ("cli", "demo", "gateway", "pages"),
    "proxy": ("cli", "demo", "gateway", "mcp", "pages"),
    "pages": ("cli", "demo", "gateway", "clients", "mcp"),
    "gateway": ("cli", "demo", "clients"),
    "library": ("mcp", "cli", "demo", "gateway", "pages", "adapters"),
    "adapters": ("mcp", "cli", "demo", "gateway", "pages", "clients", *USE_CASES, *PURE),
    "demo": ("mcp", "cli", "gateway"),
}
"""For each other layer, the parts of the server that must not be known to it."""

IMPURE = {
    "aiosqlite", "anyio", "asyncio", "glob", "http", "io", "logging", "multiprocessing", "os", "pathlib",
    "random", "secrets", "shutil", "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile",
    "threading", "time", "uuid",
}  # fmt: skip
"""Modules that read the outside world, wait, or give another answer each time."""

IMPURE_CALLS = {"open", "print", "input", "now", "today", "utcnow", "exec", "eval"}

ONLY_IN = {
    "mcp": ("server/contextstash/mcp", "server/contextstash/gateway.py"),
    "uvicorn": ("server/contextstash/web.py",),
    "jinja2": ("server/contextstash/pages/app",),
    "click": ("server/contextstash/cli",),
    "aiosqlite": ("storage",),
    "sqlcipher3": ("storage/contextstash_storage/database_file",),
    "sqlite3": ("storage", "server/contextstash/clients/opencode.py"),
    "tiktoken": ("server/contextstash/tokenizer",),
    "genai_prices": ("server/contextstash/window/models",),
}
"""Where each dependency may be known."""


class Import(NamedTuple):
    file: str
    line: int
    module: str


def modules(folder: Path) -> list[Path]:
    """The modules of a room, which may be a single one."""
    alone = folder.with_suffix(".py")
    return [alone] if alone.is_file() else sorted(folder.rglob("*.py"))


def imports(path: Path) -> list[Import]:
    """Every import of a file, also those inside functions; `from a import b` counts as `a` and `a.b`."""
    found = []
    name = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [Import(name, node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno} imports relatively"
            found += [Import(name, node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def is_ours(module: str) -> bool:
    return is_within(module, ("contextstash", "contextstash_storage"))


def test_there_is_something_to_check() -> None:
    assert modules(SERVER)
    assert modules(STORAGE)


@pytest.mark.parametrize("layer", MAY_IMPORT_OF_OURS)
def test_a_pure_layer_imports_only_pure_layers(layer: str) -> None:
    allowed = MAY_IMPORT_OF_OURS[layer]
    everything = [found for path in modules(SERVER / layer) for found in imports(path)]
    assert [found for found in everything if is_ours(found.module) and not is_within(found.module, allowed)] == []


@pytest.mark.parametrize("layer", MUST_NOT_IMPORT)
def test_a_layer_does_not_know_those_above_it(layer: str) -> None:
    above = tuple(f"contextstash.{name}" for name in MUST_NOT_IMPORT[layer])
    everything = [found for path in modules(SERVER / layer) for found in imports(path)]
    assert [found for found in everything if is_within(found.module, above)] == []


def test_the_service_knows_the_store_by_its_protocol_alone() -> None:
    records = ("contextstash_storage.notes", "contextstash_storage.search")
    allowed = (*RECORDS, "contextstash_storage.store", *records)
    everything = [found for room in USE_CASES for path in modules(SERVER / room) for found in imports(path)]
    stores = [found for found in everything if is_within(found.module, ("contextstash_storage",))]
    assert [found for found in stores if not is_within(found.module, allowed)] == []


def test_use_cases_that_only_read_are_known_to_no_use_case_that_writes() -> None:
    writing = [path for room in USE_CASES if room not in ("queries", "transfer") for path in modules(SERVER / room)]
    everything = [found for path in writing for found in imports(path)]
    assert [found for found in everything if is_within(found.module, ("contextstash.queries",))] == []


def test_storage_knows_nothing_of_the_server() -> None:
    everything = [found for path in modules(STORAGE) for found in imports(path)]
    assert [found for found in everything if is_within(found.module, ("contextstash",))] == []


def test_what_both_stores_share_knows_neither_of_them() -> None:
    stores = (
        "contextstash_storage.sqlite",
        "contextstash_storage.database_file",
        "contextstash_storage.postgres",
        *DRIVERS,
    )
    stores_own = ("sqlite", "database_file", "postgres")
    # `databases` opens the one that is named.
    others = [path for path in modules(STORAGE) if path.stem not in (*stores_own, "databases")]
    assert [found for path in others for found in imports(path) if is_within(found.module, stores)] == []


def test_the_store_in_postgresql_imports_nothing_that_imports_sqlite() -> None:
    seen: set[Path] = set()
    waiting = modules(STORAGE / "postgres")
    drivers = []
    while waiting:
        path = waiting.pop()
        seen.add(path)
        drivers += [found for found in imports(path) if is_within(found.module, ("sqlite3", "sqlcipher3", "aiosqlite"))]
        waiting += [each for found in imports(path) for each in _files_of(found.module) if each not in seen]
    assert drivers == []


def _files_of(module: str) -> list[Path]:
    """The files that an import of a module of the storage reads."""
    if not is_within(module, ("contextstash_storage",)):
        return []
    parts = module.split(".")[1:]
    names = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    files = [STORAGE / f"{name}{ending}" for name in names for ending in (".py", "/__init__.py")]
    return [file for file in files if file.is_file()]


@pytest.mark.parametrize("layer", PURE)
def test_a_pure_layer_imports_no_clock_no_chance_no_input_or_output(layer: str) -> None:
    everything = [found for path in modules(SERVER / layer) for found in imports(path)]
    assert [found for found in everything if found.module.split(".")[0] in IMPURE] == []


@pytest.mark.parametrize("layer", PURE)
def test_a_pure_layer_calls_nothing_that_looks_outside_and_waits_for_nothing(layer: str) -> None:
    impure = []
    for path in modules(SERVER / layer):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                impure.append(f"{path.name}:{node.lineno} waits")
            if isinstance(node, ast.Call) and called_name(node) in IMPURE_CALLS:
                impure.append(f"{path.name}:{node.lineno} calls {called_name(node)}")
    assert impure == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count too: they hide a circle, they do not open it."""
    files = {module_name(path, root): path for root in (SERVER, STORAGE) for path in modules(root)}
    known = {name: {target(found.module, files) for found in imports(path)} for name, path in files.items()}
    known = {name: imported & files.keys() for name, imported in known.items()}
    while leaves := {name for name, imported in known.items() if not imported - {name}}:
        known = {name: imported - leaves for name, imported in known.items() if name not in leaves}
    assert known == {}


def test_no_room_imports_itself_by_way_of_others() -> None:
    """In each package, the rooms and modules directly in it stand in an order: one imports only those before it."""
    files = {module_name(path, root): path for root in (SERVER, STORAGE) for path in modules(root)}
    known = [(name, target(found.module, files)) for name, path in files.items() for found in imports(path)]
    circles = {}
    for package in {name.rpartition(".")[0] for name in files} - {""}:
        pairs = [(part_of(package, one), part_of(package, other)) for one, other in known]
        children = {one: {other for here, other in pairs if here == one} - {"", one} for one, _ in pairs if one}
        while leaves := {one for one, others in children.items() if not others & children.keys()}:
            children = {one: others for one, others in children.items() if one not in leaves}
        if children:
            circles[package] = children
    assert circles == {}


def part_of(package: str, module: str) -> str:
    """The room or module directly in the package that holds a module; empty if it is outside."""
    inside = module.startswith(f"{package}.")
    return module.removeprefix(f"{package}.").partition(".")[0] if inside else ""


def target(imported: str, files: Mapping[str, Path]) -> str:
    """The module that is imported, or that something is imported from."""
    return imported if imported in files else imported.rpartition(".")[0]


def module_name(path: Path, root: Path) -> str:
    """`contextstash.cli.app`, of a package the package."""
    return ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")


def called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


@pytest.mark.parametrize("dependency", ONLY_IN)
def test_a_dependency_is_known_in_one_place(dependency: str) -> None:
    everything = [found for folder in (SERVER, STORAGE) for path in modules(folder) for found in imports(path)]
    uses = [found for found in everything if found.module.split(".")[0] == dependency]
    assert [found for found in uses if not found.file.startswith(ONLY_IN[dependency])] == []
