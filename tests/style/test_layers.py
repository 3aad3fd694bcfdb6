"""The layers of the packages, as declared in pyproject.toml."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.style.rules import ROOT, SRC


def lint_imports(cwd: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_imports_point_down_the_layers() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_that_points_up_is_detected(tmp_path: Path) -> None:
    for name, source in {"core": "import homarus.cli\n", "cli": ""}.items():
        package = tmp_path / "homarus" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source, encoding="utf-8")
    (tmp_path / "homarus" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.importlinter]\nroot_package = "homarus"\n'
        '[[tool.importlinter.contracts]]\nname = "down"\ntype = "layers"\n'
        'containers = ["homarus"]\nlayers = ["cli", "core"]\n',
        encoding="utf-8",
    )
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "homarus.core" in done.stdout


def test_layer_contract_lists_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(one for one in contracts if one["type"] == "layers")
    placed = {name.strip(" ()") for line in layers["layers"] for name in line.split("|")}
    packages = {p.parent.name for p in SRC.glob("*/__init__.py")}
    assert layers["exhaustive"] is True
    assert packages <= placed
