"""The house's rules for its own source: sizes, names, docstrings, dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("server", "storage") for path in (ROOT / folder).rglob("*.py"))
CHECKED = SOURCES + sorted(path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py"))

MAX_LINES_OF_A_FILE = 600
LISTS = {
    "server/contextstash/results.py",
    "server/contextstash/stash.py",
    "storage/contextstash_storage/postgres.py",
    "storage/contextstash_storage/records.py",
    "storage/contextstash_storage/sqlite.py",
    "storage/contextstash_storage/store.py",
}
"""Records and façades: lists that a reader looks a name up in, whatever their length. A cap would split them."""

MAX_LINES_OF_A_FUNCTION = 50

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers", "base_utils"}
LOCK_FILES = {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "package-lock.json"}

MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/")
REGISTRY_HOSTS = re.compile("|".join(("pypi" + r"\.org", "pythonhosted" + r"\.org", "registry" + r"\.npmjs")))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def committed_files() -> list[Path]:
    """The repository's files, those not added yet included; what git ignores is left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("path", CHECKED, ids=name_of)
def test_a_file_is_short_and_so_are_its_functions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES_OF_A_FILE or name_of(path) in LISTS
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES_OF_A_FUNCTION} == {}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_says_in_its_first_line_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    assert docstring, "no docstring"
    assert text.startswith('"""' + docstring.splitlines()[0])


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name_of(path) for path in CHECKED if path.stem in VAGUE_NAMES or path.parent.name in VAGUE_NAMES] == []


def test_no_lock_file_is_committed() -> None:
    assert [name_of(path) for path in committed_files() if path.name in LOCK_FILES] == []


def test_no_file_names_a_machine_s_paths_or_a_registry_s_host() -> None:
    offending = []
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        offending += [
            f"{name_of(path)}: {match.group()}"
            for pattern in (MACHINE_PATHS, REGISTRY_HOSTS)
            for match in pattern.finditer(text)
        ]
    assert offending == []


def test_constraints_pin_every_dependency_and_name_no_index() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.match(r"[A-Za-z0-9._-]+==\S+", line) for line in pins)
    pinned = {line.split("==")[0] for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [name for extra in project["optional-dependencies"].values() for name in extra]
    assert {re.split(r"[<>=\[;]", name)[0].lower().replace(".", "-") for name in wanted} <= pinned


IMPORTED = r'(?:^\s*(?:import|from) |"(?=backports\.))(\w+)'
"""A module that a file imports; that of Zstandard is imported by its name in a text."""


def test_each_dependency_has_its_reason_on_its_line_and_is_imported() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = text.split("\ndependencies = [\n")[1].split("\n]\n")[0].splitlines()
    assert [line for line in lines if " # " not in line] == []
    imported = set()
    for folder in ("server", "storage"):
        for path in (ROOT / folder).rglob("*.py"):
            imported |= set(re.findall(IMPORTED, path.read_text(encoding="utf-8"), re.MULTILINE))
    providers: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            providers.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set()).add(module)
    for line in lines:
        name = re.sub(r"[-_.]+", "-", re.match(r'\s*"([A-Za-z0-9._-]+)', line)[1]).lower()  # type: ignore[index]
        assert providers.get(name, set()) & imported, f"{name} is not imported"
