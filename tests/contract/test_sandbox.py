"""The contract of sandbox backends: what commands can rely on in every one, and cannot do."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.core.errors import SandboxError
from homarus.tools.sandbox.base import Mount, SandboxLimits
from tests.contract.sandboxes import SandboxStage, containers, open_stage, sandbox_params
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")

HOSTILE = "a b'$(touch pwned);&| *--privileged"


@pytest.fixture(params=sandbox_params())
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> SandboxStage:
    return open_stage(request.param, tmp_path, tmp_path_factory.getbasetemp())


async def test_sandbox_files_stay_between_commands(stage: SandboxStage) -> None:
    spec = stage.spec()
    wrote = await stage.run("echo one > kept; mkdir -p /tmp/d; echo two > /tmp/d/kept; pwd", spec)
    assert (wrote.output.strip(), wrote.exit_code) == ("/workspace", 0)
    read = await stage.run("cat /workspace/kept /tmp/d/kept", spec)
    assert read.output.split() == ["one", "two"]
    kept = spec.workspace / "kept"
    assert kept.read_text() == "one\n"
    assert kept.stat().st_uid == os.geteuid()  # and so the gateway can edit and remove it
    assert (spec.tmp / "d" / "kept").stat().st_gid == os.getegid()


async def test_sandbox_shows_nothing_else_of_the_machine(
    stage: SandboxStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = stage.folder / "secret"
    secret.write_text("for the gateway only")
    monkeypatch.setenv("HOMARUS_TEST_TOKEN", "t0ken")
    command = (
        f"cat {secret}; ls -A /root /home {Path.home()}; env; ls /proc; readlink /proc/self/ns/*"
    )
    result = await stage.run(command)
    assert "for the gateway only" not in result.output
    assert "t0ken" not in result.output
    words = result.output.split()
    assert sum(word.isdigit() for word in words) < 12  # its own processes
    shared = {str(each.readlink()) for each in Path("/proc/self/ns").iterdir()} & set(words)
    assert {each.partition(":")[0] for each in shared} <= {"time", "time_for_children"}
    other = stage.spec("two")
    (other.workspace / "foreign").write_text("of another sandbox")
    seen = await stage.run(f"cat {other.workspace}/foreign ../two/workspace/foreign")
    assert "of another" not in seen.output


async def test_sandbox_system_folders_cannot_be_changed(stage: SandboxStage) -> None:
    places = "/ /usr /bin /etc /proc /proc/sys/kernel /sys /sys/kernel"
    command = f"for each in {places}; do echo x > $each/homarus-test && echo wrote $each; done"
    result = await stage.run(command)
    assert "wrote" not in result.output
    assert not Path("/usr/homarus-test").exists()


async def test_sandbox_home_is_a_folder_that_stays(stage: SandboxStage) -> None:
    spec = stage.spec()
    assert (await stage.run("echo kept > ~/file; echo $HOME", spec)).output == "/tmp/home\n"
    assert (await stage.run("cat ~/file; ls -A /workspace", spec)).output == "kept\n"


@pytest.mark.parametrize("code", [0, 7, 255])
async def test_sandbox_exit_code_is_that_of_the_command(stage: SandboxStage, code: int) -> None:
    # What is written to both streams stays in order.
    result = await stage.run(f"echo out; echo err >&2; echo more; exit {code}")
    assert (result.exit_code, result.output.split()) == (code, ["out", "err", "more"])


async def test_sandbox_signal_is_reported_as_by_a_shell(stage: SandboxStage) -> None:
    # The command is not process 1, for which signals would have no effect.
    assert (await stage.run("kill -TERM $$; echo on")).exit_code == 143


async def test_sandbox_command_reads_its_input(stage: SandboxStage) -> None:
    text = "line\n" * 5000 + "end"
    result = await stage.run("cat | wc -c; cat", stdin=text)
    assert result.output.split() == [str(len(text))]
    assert (await stage.run("cat; echo done")).output == "done\n"


async def test_sandbox_variables_are_data(stage: SandboxStage) -> None:
    odd = "a  b'\"\\$(touch /workspace/pwned)\n#x=1\n\ttab é \\n end "
    env = {"ODD": odd, "PLAIN": "x", "EMPTY": ""}
    result = await stage.run('printf "%s|" "$ODD" "$PLAIN" "${EMPTY-unset}"', env=env)
    assert result.output == f"{odd}|x||"
    spec = stage.spec(env={"OF_SPEC": "1", "BOTH": "spec"})
    shown = await stage.run('echo "$OF_SPEC $BOTH"', spec, env={"BOTH": "command"})
    assert shown.output == "1 command\n"
    assert not (spec.workspace / "pwned").exists()


async def test_sandbox_path_variable_acts_only_inside(stage: SandboxStage) -> None:
    spec = stage.spec()
    for name in ("sh", "bwrap", "podman", "runc", "id"):
        (spec.workspace / name).write_text("#!/bin/sh\necho injected > /workspace/pwned; id\n")
        (spec.workspace / name).chmod(0o755)
    env = {"PATH": f"/workspace:{spec.workspace}:/usr/bin:/bin", "LD_PRELOAD": "/workspace/no.so"}
    result = await stage.run("echo $PATH", spec, env=env)
    assert result.output.splitlines()[-1] == env["PATH"]
    assert not (spec.workspace / "pwned").exists()


async def test_sandbox_text_of_command_is_no_option(stage: SandboxStage) -> None:
    for text in ("--privileged", "-v /:/host"):
        result = await stage.run(text)
        assert result.exit_code in {2, 127}, text  # an error of the shell, not of the launcher
    result = await stage.run("printf '%s\\n' \"$0\" \"$#\" 'a\"b' 'c$d'")
    assert result.output.splitlines()[-3:] == ["0", 'a"b', "c$d"]


async def test_sandbox_hostile_folder_names_are_only_names(stage: SandboxStage) -> None:
    plain = stage.spec()
    workspace = stage.folder / HOSTILE / "workspace"
    shared = stage.folder / HOSTILE / "shared"
    for each in (workspace / HOSTILE, shared):
        each.mkdir(parents=True)
    (shared / "file").write_text("shared")
    spec = stage.spec(workspace=workspace, tmp=plain.tmp, mounts=(Mount(shared, "/shared"),))
    result = await stage.run("pwd; cat /shared/file", spec, workdir=f"/workspace/{HOSTILE}")
    assert result.output == f"/workspace/{HOSTILE}\nshared"
    found = list(stage.folder.rglob("pwned"))
    assert found == [] and not Path("pwned").exists()


async def test_sandbox_missing_folder_runs_nothing(stage: SandboxStage) -> None:
    result = await stage.run("echo ran", workdir="/workspace/missing")
    assert "ran" not in result.output.split()
    assert not result.is_success and "missing" in result.output


async def test_sandbox_terminal_is_a_terminal(stage: SandboxStage) -> None:
    # Ctrl-P Ctrl-Q would leave a container behind, where the engine listens to it.
    result = await stage.run("test -t 0 && test -t 1 && echo is terminal; stty size", pty=True)
    assert result.output.split() == ["is", "terminal", "30", "120"]
    assert (await stage.run("test -t 1")).exit_code == 1


@pytest.mark.slow
async def test_sandbox_timeout_ends_everything(stage: SandboxStage) -> None:
    mark = f"98765{os.getpid()}"
    command = f"echo up; (setsid sleep {mark} &); trap '' TERM; sleep {mark} & wait; sleep {mark}"
    spec = stage.spec(f"timeout-{os.getpid()}")
    for timeout_s in (3.0, 12.0, 45.0):  # a busy machine may start nothing in the first one
        result = await stage.run(command, spec, timeout_s=timeout_s)
        assert result.timed_out and not result.is_success
        if result.output:
            break
    assert result.output.split() == ["up"]
    await until(lambda: not running(mark), 0.02)
    if stage.backend.name == "oci":
        assert containers(f"label=homarus.sandbox={spec.name}") == []


async def test_sandbox_command_that_is_ended_leaves_nothing(stage: SandboxStage) -> None:
    mark = f"76543{os.getpid()}"
    command = f"(setsid sleep {mark} &); echo up; sleep {mark}"
    spec, is_oci = stage.spec(f"ended-{os.getpid()}"), stage.backend.name == "oci"
    async with stage.start(command, spec) as started:
        await until(lambda: "up" in started.output and len(running(mark)) == 2, 0.02)
        label = f"label=homarus.sandbox={spec.name}"
        ids = containers(label, field="ID") if is_oci else []
        assert len(ids) == is_oci
        result = await started.end()
    assert result.is_killed and not result.is_success
    await until(lambda: not running(mark), 0.02)
    if is_oci:
        assert containers(label) == []
        assert list(Path("/sys/fs/cgroup").glob(f"*/libpod_parent/libpod-{ids[0]}*")) == []


async def test_sandbox_destroy_ends_what_runs(stage: SandboxStage) -> None:
    mark = f"65432{os.getpid()}"
    spec = stage.spec("live")
    if stage.backend.name == "bubblewrap" and os.geteuid() != 0:
        pytest.skip("commands of bubblewrap are found again by their cgroups, which need root")
    async with stage.start(f"echo up; sleep {mark}", spec) as started:
        await until(lambda: "up" in started.output and running(mark), 0.02)
        await stage.backend.destroy("other")
        assert running(mark)
        await stage.backend.destroy(spec.name)
        await until(lambda: not running(mark), 0.02)
        assert not (await started.wait()).is_success


async def test_sandbox_background_process_ends_with_command(stage: SandboxStage) -> None:
    mark = f"87654{os.getpid()}"
    result = await stage.run(f"sleep {mark} > /dev/null 2>&1 & echo started")
    assert result.output == "started\n"
    await until(lambda: not running(mark), 0.02)


async def test_sandbox_two_commands_run_at_once(stage: SandboxStage) -> None:
    spec = stage.spec()
    wait = "i=0; while [ ! -e {} ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done"
    one = f"touch one; {wait.format('two')}; ls two; ls /proc | grep -c '^[0-9]'"
    two = f"touch two; {wait.format('one')}; ls one; ls /proc | grep -c '^[0-9]'"
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stage.run(each, spec)) for each in (one, two)]
    both = [task.result().output.split() for task in tasks]
    assert [each[0] for each in both] == ["two", "one"]
    assert all(int(each[1]) < 8 for each in both)  # not those of the other


async def test_sandbox_limits_hold_for_processes(stage: SandboxStage) -> None:
    limits = SandboxLimits(pids=24, file_bytes=1 << 20, open_files=64)
    spec = stage.spec(limits=limits)
    command = "ulimit -n; head -c 3000000 /dev/zero > big; i=0; "
    command += "while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; echo too many"
    result = await stage.run(command, spec)
    assert result.output.split()[0] == "64"
    assert (spec.workspace / "big").stat().st_size <= 1 << 20
    assert "too many" not in result.output and "fork" in result.output.lower()


async def test_sandbox_memory_limit_holds(stage: SandboxStage) -> None:
    if os.geteuid() != 0:
        pytest.skip("memory of a complete process tree is limited by cgroups, which need root")
    spec = stage.spec(limits=SandboxLimits(memory_bytes=48 << 20))
    result = await stage.run("x=$(head -c 90000000 /dev/zero | tr '\\0' x); echo ${#x}", spec)
    assert "90000000" not in result.output
    assert not result.is_success or result.output.strip() == "0"


async def test_sandbox_has_no_network(stage: SandboxStage) -> None:
    result = await stage.run("cat /proc/net/dev /proc/net/route /proc/net/unix; echo end")
    lines = [line.split() for line in result.output.splitlines()]
    devices = [words[0] for words in lines if words and words[0].endswith(":")]
    assert devices in (["lo:"], [])
    assert not any(word.startswith(("@", "/run", "/var/run")) for words in lines for word in words)
    assert lines[-1] == ["end"]


async def test_sandbox_mounts_are_read_only_unless_writable(stage: SandboxStage) -> None:
    for name in ("ro", "rw"):
        (stage.folder / name).mkdir()
        (stage.folder / name / "file").write_text(name)
    single = stage.folder / "single"
    single.write_text("one file")
    mounts = (
        Mount(stage.folder / "ro", "/shared/ro"),
        Mount(stage.folder / "rw", "/shared/rw", is_writable=True),
        Mount(single, "/shared/single"),
    )
    spec = stage.spec(mounts=mounts)
    command = "cat /shared/ro/file /shared/rw/file /shared/single; echo; for each in ro/file ro/new"
    command += " rw/file rw/new single; do echo x > /shared/$each && echo wrote $each; done"
    result = await stage.run(command, spec)
    assert result.output.startswith("rorwone file\n")
    wrote = [line for line in result.output.splitlines() if line.startswith("wrote")]
    assert wrote == ["wrote rw/file", "wrote rw/new"]
    assert (stage.folder / "ro" / "file").read_text() == "ro"
    seen = {(each.target, each.is_writable) for each in stage.backend.mounts(spec)}
    assert {("/workspace", True), ("/tmp", True), ("/shared/ro", False)} <= seen


async def test_sandbox_mount_is_not_made_through_a_link(stage: SandboxStage) -> None:
    (stage.folder / "shared").mkdir()
    spec = stage.spec(mounts=(Mount(stage.folder / "shared", "/workspace/in/shared"),))
    (spec.workspace / "in").symlink_to(stage.folder)
    with pytest.raises(SandboxError):
        await stage.run("true", spec)
    (spec.workspace / "in").unlink()
    assert (await stage.run("ls /workspace/in", spec)).output == "shared\n"


async def test_sandbox_has_no_capabilities_and_gains_none(stage: SandboxStage) -> None:
    result = await stage.run("grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status")
    found = dict(line.split(":") for line in result.output.split("\n") if line)
    values = {name: int(value, 16) for name, value in found.items()}
    assert values.pop("Seccomp") == 2
    assert values.pop("NoNewPrivs") == 1
    assert set(values.values()) == {0}


async def test_sandbox_leaves_no_set_id_file_on_the_machine(stage: SandboxStage) -> None:
    text = "echo true > run; for mode in 4755 2755 u+s g+s; do chmod $mode run; done; chmod 755 run"
    result = await stage.run(f"umask 022; {text}")
    assert result.output.count("not permitted") == 4, result.output
    assert (stage.spec().workspace / "run").stat().st_mode & 0o7777 == 0o755


async def test_sandbox_destroyed_is_gone_and_can_be_made_again(stage: SandboxStage) -> None:
    spec = stage.spec()
    assert (await stage.run("echo kept > file", spec)).is_success
    await stage.backend.destroy(spec.name)
    await stage.backend.destroy(spec.name)
    await stage.backend.destroy("never-made")
    assert (await stage.run("cat file", spec)).output == "kept\n"  # the folders are the caller's


@pytest.mark.slow
async def test_sandbox_level_is_measured_with_its_options(stage: SandboxStage) -> None:
    report = await stage.backend.measure(stage.options)
    assert report.backend == stage.backend.name
    # Without cgroups of its own, a gateway limits only single processes.
    assert report.level >= "L2", (report.problem, report.probes)
    assert len(report.probes) > 30
    assert report.level == "L3" or report.fix


@pytest.mark.parametrize("name", ["", "../up", "a b", "-rf", "$(id)", "x\ny", "a/b", "é"])
async def test_sandbox_name_that_is_none_is_refused(stage: SandboxStage, name: str) -> None:
    spec = stage.spec()
    with pytest.raises(SandboxError):
        await stage.backend.prepare(replace(spec, name=name))


async def test_sandbox_without_its_folder_is_refused(stage: SandboxStage) -> None:
    spec = stage.spec()
    spec.tmp.rmdir()
    with pytest.raises(SandboxError, match="tmp"):
        await stage.run("true", spec)


async def test_sandbox_mount_of_the_machine_is_refused(stage: SandboxStage) -> None:
    link = stage.folder / "link"
    link.symlink_to("/proc")
    for source in (Path("/"), Path("/proc"), Path("/sys"), Path("/dev"), link, Path("/missing")):
        spec = stage.spec(mounts=(Mount(source, "/shared"),))
        with pytest.raises(SandboxError):
            await stage.run("true", spec)


def running(mark: str) -> list[str]:
    """Return the processes of this machine that have a word in their arguments."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words:
                found.append(folder.name)
    return found
