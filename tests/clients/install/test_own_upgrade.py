"""How an installation is upgraded, by how it was installed."""

from __future__ import annotations

from pathlib import Path

from contextstash.clients.installation import Installation, this_installation

PACKAGE = Path("/somewhere/site-packages/contextstash")


def test_a_checkout_is_pulled_and_set_up_again(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "Makefile").touch()
    checkout = Installation(PACKAGE, tmp_path / ".venv", str(tmp_path), editable=True)
    assert checkout.upgrade == [f"git -C {tmp_path} pull", f"make -C {tmp_path} setup"]
    assert checkout.described == f"the checkout {tmp_path}"


def test_pipx_uv_and_pip_install_again_from_where_it_came(tmp_path: Path) -> None:
    source = "git+https://example.org/contextstash"
    python = tmp_path / "pyvenv.cfg.d" / "bin" / "python"
    commands = {
        "pipx_metadata.json": "pipx reinstall contextstash",
        "uv-receipt.toml": "uv tool upgrade --reinstall contextstash",
        "pyvenv.cfg": f"{python} -m pip install --upgrade --force-reinstall {source}",
    }
    for receipt, command in commands.items():
        environment = tmp_path / f"{receipt}.d"
        environment.mkdir()
        (environment / receipt).touch()
        assert Installation(PACKAGE, environment, source).upgrade == [command]


def test_a_name_on_the_index_that_is_not_ours_is_never_advised() -> None:
    assert Installation(PACKAGE, Path("/opt/u/env"), None).upgrade == []


def test_the_installation_that_runs_is_described() -> None:
    assert str(this_installation().package).endswith("contextstash")
