"""Every file and folder that the program creates is for its owner alone, whatever the umask is."""

import ast
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import homarus
from tests.e2e.program import Home

SOURCE = Path(homarus.__file__).parent
CREATES_OTHERS = {"copy", "copy2", "copyfile", "copytree", "extractall", "makedirs"}


def string(call: ast.Call, position: int, name: str) -> str:
    values = [*call.args[position : position + 1]]
    values += [each.value for each in call.keywords if each.arg == name]
    return next((str(each.value) for each in values if isinstance(each, ast.Constant)), "")


def has(call: ast.Call, position: int, name: str) -> bool:
    return len(call.args) > position or any(each.arg == name for each in call.keywords)


def creates_with_the_umask(call: ast.Call) -> bool:
    """Whether a call creates a file or folder whose mode depends on the umask."""
    function = call.func
    if isinstance(function, ast.Name):
        is_open = function.id == "open" and set("wax+") & set(string(call, 1, "mode"))
        return bool(is_open) and not has(call, 7, "opener")
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    match function.attr:
        case "open" if owner == "os":
            return "O_CREAT" in ast.unparse(call) and not has(call, 2, "mode")
        case "open":
            is_opened = any(each.arg == "fileobj" for each in call.keywords)  # an archive's file
            return not is_opened and bool(set("wax+") & set(string(call, 0, "mode")))
        case "write_text" | "write_bytes" | "touch":
            return True
        case "mkdir" if owner != "os":
            is_deep = any(each.arg == "parents" for each in call.keywords)
            return is_deep or not has(call, 0, "mode")
        case "mkdir":
            return not has(call, 1, "mode")
        case other:
            return other in CREATES_OTHERS


def bare_creations(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and creates_with_the_umask(node):
            yield f"{file.relative_to(SOURCE)}: {ast.unparse(node)}"


# A folder of the walk through a workspace, which passes the mode on; a file of the kernel.
ALLOWED = {
    "tools/rooted_fs.py: current.mkdir(name)",
    "agent/internal_hooks/handler_main.py: open('/proc/self/oom_score_adj', 'w', encoding='ascii')",
}


def test_source_creates_nothing_without_a_mode() -> None:
    files = [file for file in SOURCE.rglob("*.py") if "testing" not in file.parts]
    assert len(files) > 200
    assert {each for file in files for each in bare_creations(file)} - ALLOWED == set()


@pytest.mark.parametrize(
    "bare",
    [
        "open('x', 'w')",
        "path.open('xb')",
        "path.write_text('x')",
        "path.mkdir()",
        "path.mkdir(0o700, parents=True)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "os.mkdir('x')",
        "path.touch()",
    ],
)
def test_check_of_the_source_finds_a_bare_creation(bare: str) -> None:
    assert creates_with_the_umask(ast.parse(bare, mode="eval").body)  # type: ignore[arg-type]  # a call


def run(home: Home, *args: str, text: str = "") -> None:
    command = [sys.executable, "-m", "homarus", *args]
    subprocess.run(
        command, input=text, text=True, env=home.env, cwd=home.path, timeout=60, umask=0, check=True
    )


def test_program_with_umask_zero_creates_nothing_for_others(home: Home, model_url: str) -> None:
    existing = {home.state, home.workspace, home.workspace / "memory"}
    for folder in (home.state, home.workspace, home.workspace / "memory"):
        folder.mkdir(0o755, parents=True)
    home.use_model(model_url)
    existing.add(home.state / "openclaw.json")
    run(home, "setup")
    write = 'MOCK:tool:write:{"path":"%s","content":"x"}§'
    lines = (write % "MEMORY.md", write % "new/deep.md", write % "memory/a.md", "/export")
    run(home, "chat", text="\n".join(lines))
    run(home, "config", "set", "logging.level", "debug")
    created = [path for path in home.path.rglob("*") if path not in existing]
    names = {str(path.relative_to(home.state)) for path in created if path.is_file()}
    assert {"workspace/MEMORY.md", "workspace/new/deep.md", "workspace/AGENTS.md"} <= names
    assert any(name.startswith("workspace/exports/") for name in names)
    assert any(name.startswith("agents/main/sessions/") for name in names)
    open_to_others = [
        f"{path} {stat.filemode(path.stat().st_mode)}"
        for path in created
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]
    assert open_to_others == []
