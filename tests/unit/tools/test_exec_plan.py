"""The plan of a command: which programs, which hashes, and a digest over what decides."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from homarus.tools.exec.evaluate import evaluate_plan
from homarus.tools.exec.plan import SimpleCommand
from tests.unit.tools.exec_builders import open_plan

PATH = "/usr/local/bin:/usr/bin:/bin"


def add_program(path: Path, text: str = "#!/bin/sh\n:\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


async def only(folder: Path, command: str, **options: Any) -> SimpleCommand:
    async with open_plan(folder, command, **options) as plan:
        (found,) = plan.commands()
        return found


async def test_bare_name_is_looked_up_in_absolute_folders_alone(tmp_path: Path) -> None:
    add_program(tmp_path / "ls")
    found = await only(tmp_path, "ls", env={"PATH": f".:relative:{PATH}"})
    assert found.executable.is_looked_up and not found.executable.in_workspace
    assert found.executable.path in ("/usr/bin/ls", "/bin/ls")


async def test_program_of_the_workspace_is_never_trusted_by_name(tmp_path: Path) -> None:
    add_program(tmp_path / "bin/tool")
    found = await only(tmp_path, "tool", env={"PATH": f"{tmp_path}/bin:{PATH}"})
    assert found.executable.in_workspace and not found.executable.is_looked_up
    found = await only(tmp_path, "./bin/tool")
    assert found.executable.in_workspace and not found.executable.is_looked_up


async def test_folder_that_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    add_program(shared / "tool")
    shared.chmod(0o777)
    (tmp_path / "ws").mkdir()
    found = await only(tmp_path / "ws", "tool", env={"PATH": str(shared)})
    assert not found.executable.is_looked_up
    shared.chmod(0o755)
    found = await only(tmp_path / "ws", "tool", env={"PATH": str(shared)})
    assert found.executable.is_looked_up


async def test_link_is_followed_to_the_real_program(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr/bin/touch")
    found = await only(tmp_path, "./link x")
    assert found.executable.real_path == os.path.realpath("/usr/bin/touch")
    assert found.executable.in_workspace


async def test_missing_program_makes_the_command_not_understood(tmp_path: Path) -> None:
    async with open_plan(tmp_path, "no-such-program-1 && ls") as plan:
        assert plan.chain is None and "there is no program no-such-program-1" in plan.reason


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3 x.py a", "x.py"),
        ("python3 -W ignore x.py", "x.py"),
        ("python3 -- x.py", "x.py"),
        ("sh x.py", "x.py"),
        ("bash -o errexit x.py", "x.py"),
        ("perl -w x.py", "x.py"),
        ("make -f x.py", "x.py"),
        ("python3 -", None),
        ("ls x.py", None),
    ],
)
async def test_script_of_an_interpreter_is_hashed(
    tmp_path: Path, command: str, script: str | None
) -> None:
    (tmp_path / "x.py").write_text("1")
    found = (await only(tmp_path, command)).executable.script
    assert (found and Path(found.path).name) == script


async def test_digest_is_of_everything_that_decides_what_runs(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("1")
    (tmp_path / "sub").mkdir()

    async def digest(command: str = "python3 x.py", folder: Path = tmp_path, **more: Any) -> str:
        async with open_plan(folder, command, **more) as plan:
            return plan.digest

    first = await digest()
    assert first == await digest() == await digest(env=None)
    env = {"PATH": PATH, "LANG": "x"}
    others = [
        await digest("python3 x.py "),
        await digest("python3 x.py b"),
        await digest(env=env),
        await digest(stdin="x"),
        await digest(pty=True),
        await digest(background=True),
        await digest(timeout_s=1.0),
        await digest("ls", tmp_path / "sub"),
        await digest("ls"),
    ]
    (tmp_path / "x.py").write_text("2")
    others.append(await digest())
    assert len({first, *others}) == len(others) + 1


async def test_git_is_hardened_in_what_is_executed(tmp_path: Path) -> None:
    found = await only(tmp_path, "git diff --stat")
    assert found.words == ("git", "diff", "--stat")
    text = " ".join(found.argv)
    for each in ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.ext.allow=never"):
        assert f"-c {each}" in text
    assert text.endswith("--no-pager diff --no-ext-diff --no-textconv --stat")
    async with open_plan(tmp_path, "timeout 5 git status") as plan:
        (command,) = plan.commands()
        assert plan.env["GIT_CONFIG_NOSYSTEM"] == "1"
        assert command.argv[:3] == ("timeout", "5", "/usr/bin/git")
        assert "core.hooksPath=/dev/null" in command.argv


async def test_shell_with_a_parsed_command_is_replaced_by_it(tmp_path: Path) -> None:
    async with open_plan(tmp_path, "bash -lc 'ls -l | wc -l'") as plan:
        assert [each.words for each in plan.commands()] == [("ls", "-l"), ("wc", "-l")]
    for kept in ("bash -c 'ls > x'", "bash -c ls x", "bash -x -c ls", "bash -c 'cd x && ls'"):
        async with open_plan(tmp_path, kept) as plan:
            assert [each.words[0] for each in plan.commands()] == ["bash"]


async def test_plan_closes_every_descriptor(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("1")
    before = len(list(Path("/proc/self/fd").iterdir()))
    async with open_plan(tmp_path, "timeout 5 python3 x.py | head -n 1 && no-such-program-1"):
        pass
    async with open_plan(tmp_path, "timeout 5 python3 x.py | head -n 1"):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_plan_and_evaluation_of_known_programs_are_cheap(tmp_path: Path) -> None:
    best = 1.0
    for _ in range(20):
        started = time.process_time()
        async with open_plan(tmp_path, "ls -la | head -n 5") as plan:
            evaluate_plan(plan, [])
        best = min(best, time.process_time() - started)
    assert best < 0.001  # half of it on an idle machine
