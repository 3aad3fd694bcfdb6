"""The wheel is built with the control UI on a machine without Node."""

import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.peers.install import run
from tests.style.rules import ROOT

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

NODE = {"node", "nodejs", "npm", "npx", "corepack"}
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "node_modules", "static_ui*", "*cache*", "tests", "bench", "dist"
)


def test_wheel_is_built_with_the_node_of_a_package(tmp_path: Path) -> None:
    programs, sources = tmp_path / "bin", tmp_path / "sources"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name not in NODE and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    old = programs / "node"
    old.write_text("#!/bin/sh\necho v18.20.0\n")  # too old to be used
    old.chmod(0o755)
    shutil.copytree(ROOT, sources, ignore=NOT_COPIED, symlinks=True)
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(sources))
    run(*command, cwd=tmp_path, env={**os.environ, "PATH": str(programs), "HOMARUS_NO_UI": ""})
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "homarus/gateway/static_ui/index.html" in names
    assert any(name.startswith("homarus/gateway/static_ui/assets/ChatPage-") for name in names)
