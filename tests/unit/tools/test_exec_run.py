"""A plan is run exactly: without a shell, by descriptors, and not at all if a file changed."""

import os
import sys
from pathlib import Path

import pytest

from homarus.tools.exec.run import run_plan
from tests.unit.tools.exec_builders import open_plan, run_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="exec needs a POSIX system")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="programs are run by descriptor")


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("printf 'b\\na\\n' | sort | head -n 1", "a\n", 0),
        ("false && echo no || echo yes; echo end", "yes\nend\n", 0),
        ("true || echo no && echo yes", "yes\n", 0),
        ("echo one; false", "one\n", 1),
        ("true | false", "", 1),
        ("false | true", "", 0),
        ("yes | head -n 1", "y\n", 0),
        ("echo '$HOME' \"a  b\" c\\ d", "$HOME a  b c d\n", 0),
    ],
)
async def test_plan_chain_ends_as_in_a_shell(
    tmp_path: Path, command: str, output: str, code: int
) -> None:
    async with open_plan(tmp_path, command) as plan:
        assert plan.chain is not None
        result = await run_plan(plan)
    assert (result.output, result.exit_code) == (output, code)


async def test_plan_without_chain_is_run_verbatim_by_the_shell(tmp_path: Path) -> None:
    async with open_plan(tmp_path, "x=3; echo $((x + 1)) > out && cat out") as plan:
        assert plan.chain is None
        result = await run_plan(plan)
    assert (result.output, result.exit_code) == ("4\n", 0)


async def test_plan_environment_is_complete_and_nothing_else(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "ARG_A": "b c"}
    result = await run_text(tmp_path, "env", env=env)
    assert sorted(result.output.splitlines()) == ["ARG_A=b c", "PATH=/usr/bin:/bin"]


async def test_plan_input_is_that_of_the_plan(tmp_path: Path) -> None:
    assert (await run_text(tmp_path, "cat", stdin="hello")).output == "hello"
    assert (await run_text(tmp_path, "cat")).output == ""


async def test_plan_folder_moved_away_is_still_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "mine").touch()
    async with open_plan(folder, "ls") as plan:
        folder.rename(tmp_path / "moved")
        (tmp_path / "sub").mkdir()
        assert (await run_plan(plan)).output == "mine\n"


@on_linux
async def test_program_replaced_after_the_plan_runs_as_hashed(tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_bytes(Path("/bin/echo").read_bytes())
    program.chmod(0o755)
    async with open_plan(tmp_path, "./prog hashed") as plan:
        write_program(tmp_path / "evil", "#!/bin/sh\necho evil\n").replace(program)
        result = await run_plan(plan)
    assert (result.output, result.refusal) == ("hashed\n", "")


@pytest.mark.parametrize("change", ["write", "replace", "remove"])
@pytest.mark.parametrize(
    "command", ["./tool.sh", "sh tool.sh", "timeout 5 ./tool.sh", "echo before; ./tool.sh"]
)
async def test_script_changed_after_the_plan_is_refused(
    tmp_path: Path, command: str, change: str
) -> None:
    script = write_program(tmp_path / "tool.sh", "#!/bin/sh\necho good $0\n")
    async with open_plan(tmp_path, command) as plan:
        if change == "write":
            script.write_text("#!/bin/sh\necho evil\n")
        elif change == "replace":
            write_program(tmp_path / "new", "#!/bin/sh\necho good $0\n").replace(script)
        else:
            script.unlink()
        result = await run_plan(plan)
    assert "tool.sh" in result.refusal and not result.is_success
    assert result.output == ("before\n" if "before" in command else "")


@on_linux
async def test_program_overwritten_in_place_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_bytes(Path("/bin/echo").read_bytes())
    program.chmod(0o755)
    async with open_plan(tmp_path, "./prog x") as plan:
        program.write_bytes(Path("/bin/true").read_bytes())
        result = await run_plan(plan)
    assert "was changed" in result.refusal and result.output == ""


async def test_script_changed_by_the_command_before_it_is_refused(tmp_path: Path) -> None:
    write_program(tmp_path / "run.sh", "#!/bin/sh\necho ran\n")
    write_program(tmp_path / "change.sh", "#!/bin/sh\necho echo evil >> run.sh\n")
    result = await run_text(tmp_path, "./change.sh && ./run.sh")
    assert "run.sh" in result.refusal and result.output == ""


async def test_script_knows_its_own_path(tmp_path: Path) -> None:
    write_program(tmp_path / "where.sh", "#!/bin/sh\necho $0\n")
    assert (await run_text(tmp_path, "./where.sh")).output.strip().endswith("/where.sh")


async def test_program_touched_without_change_still_runs(tmp_path: Path) -> None:
    write_program(tmp_path / "tool.sh", "#!/bin/sh\necho good\n")
    async with open_plan(tmp_path, "./tool.sh") as plan:
        os.utime(tmp_path / "tool.sh")
        assert (await run_plan(plan)).output == "good\n"


async def test_chain_that_is_ended_starts_no_further_command(tmp_path: Path) -> None:
    for timeout_s in (0.3, 3.0, 30.0):  # a busy machine may start nothing in the first one
        result = await run_text(tmp_path, "touch began; sleep 100; touch ran", timeout_s=timeout_s)
        if (tmp_path / "began").exists():
            break
    assert result.timed_out and result.exit_code == 143
    assert not (tmp_path / "ran").exists()


async def test_command_inherits_no_descriptor_of_the_plan(tmp_path: Path) -> None:
    result = await run_text(tmp_path, "ls /dev/fd | cat")
    assert set(result.output.split()) <= {"0", "1", "2", "3"}


async def test_pty_command_has_a_terminal_of_its_own(tmp_path: Path) -> None:
    result = await run_text(
        tmp_path, "sh -c 'test -t 0 && test -t 1 && stty size; : < /dev/tty'", pty=True
    )
    assert (result.output, result.exit_code) == ("30 120\n", 0)


@pytest.mark.slow
async def test_pty_timeout_ends_a_shell_with_jobs(tmp_path: Path) -> None:
    command = "sh -c 'set -m; sleep 1000 & trap \"\" HUP TERM; cat'"
    result = await run_text(tmp_path, command, pty=True, timeout_s=0.5)
    assert result.timed_out
