"""The backend oci with a scripted engine: what it calls, and what it refuses."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import SandboxError
from homarus.tools.sandbox import container_engine, oci, probes
from homarus.tools.sandbox.base import SandboxCommand, SandboxLaunch, SandboxReport, SandboxSpec
from homarus.tools.sandbox.container_engine import ContainerEngine, find_engines
from homarus.tools.sandbox.container_rules import ContainerUser
from homarus.tools.sandbox.container_seccomp import make_profile
from homarus.tools.sandbox.oci import OciSandbox, encode_env
from homarus.tools.sandbox.seccomp import MODED, OPENED

IMAGE = "localhost/box:1"
# Writes its arguments and variables down, and answers from the files of its folder.
ENGINE = """#!/bin/sh
PATH=/usr/bin:/bin
cd "$(dirname "$0")/.."
printf '%s\\n' "$*" >> calls
env >> variables
case "$*" in
*"image inspect"*) test -e no-image -o -e "no-image-${0##*/}" && exit 1; echo ok;;
*info*) test -e broken && { echo "cannot work" >&2; exit 1; }; cat security 2>/dev/null;;
*uidmap*|*keep-id:*) test -e no-mapping && { echo "Error: no mapping" >&2; exit 125; };;
*" run "*) test -e no-run && { echo "Error: no run" >&2; exit 125; };;
*" ps "*) cat ids 2>/dev/null;;
esac
exit 0
"""


class Machine:
    """A machine with scripted engines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "workspace", "tmp", "scratch"):
            (folder / name).mkdir()
        self.env = {"HOME": str(folder / "home"), "XDG_RUNTIME_DIR": str(folder)}
        self.launches: list[SandboxLaunch] = []

    def install(self, name: str) -> None:
        program = self.folder / "bin" / name
        program.write_text(ENGINE)
        program.chmod(0o755)

    def backend(self) -> OciSandbox:
        return OciSandbox(self.folder / "scratch", env=self.env, private=(self.folder / "home",))

    def spec(self, **options: Any) -> SandboxSpec:
        return SandboxSpec(
            "one",
            self.folder / "workspace",
            self.folder / "tmp",
            options={"image": IMAGE, **options},
        )

    async def launch(self, text: str = "true", *, command: Any = None, **options: Any) -> Any:
        backend, spec = self.backend(), self.spec(**options)
        await backend.prepare(spec)
        made = backend.spawn(spec, command or SandboxCommand(text))
        self.launches.append(made)
        return made

    def calls(self, word: str) -> list[str]:
        text = (self.folder / "calls").read_text()
        return [line for line in text.splitlines() if f" {word} " in f" {line} "]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path)
    monkeypatch.setattr(container_engine, "_PATH", f"{tmp_path}/bin")
    monkeypatch.setattr(container_engine, "_UNIFIED", tmp_path)  # cgroup v2
    made.install("podman")
    yield made
    for launch in made.launches:
        launch.close()


async def test_oci_container_has_every_restriction(machine: Machine) -> None:
    launch = await machine.launch("echo hi")
    words = " ".join(launch.argv)
    for each in (
        "run --rm --name openclaw-sbx-one-",
        "--pull never",
        "--network none",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--read-only ",
        "--read-only-tmpfs=false",
        "--pids-limit 512",
        f"--memory {2 << 30} --memory-swap {2 << 30}",
        "--label homarus.sandbox=one",
        "--http-proxy=false",
        "--log-driver none",
    ):
        assert each in words, each
    for each in ("privileged=", "--privileged", ".sock", "unconfined", "--cap-add", "--device"):
        assert each not in words, each
    assert launch.argv[-2:] == ("/workspace", "echo hi")
    name = launch.argv[launch.argv.index("--name") + 1]
    assert launch.cleanup[0][-1] == name and "--force" in launch.cleanup[0]
    assert launch.disk_folders == (f"{machine.folder}/workspace", f"{machine.folder}/tmp")


async def test_oci_values_of_variables_are_in_no_argument(machine: Machine) -> None:
    command = SandboxCommand("true", env={"TOKEN": "t0ken secret", "PATH": "/workspace"})
    launch = await machine.launch(command=command, env={"OTHER": "s3cret"})
    text = "\0".join((*launch.argv, *launch.env.values()))
    assert "t0ken" not in text and "s3cret" not in text
    assert launch.env["PATH"] != "/workspace"  # that of the engine is not the command's
    written = os.pread(launch.fds[0], 10_000, 0).decode()
    assert "OTHER=s3cret\n" in written and "t0ken" in written and "PATH=/workspace\n" in written
    launch.close()
    launch.close()


def test_oci_variables_with_line_breaks_are_encoded() -> None:
    script, lines = encode_env({"A": "x\ny", "B": "plain/1", "C": 'q"$(id)'})
    assert lines.splitlines() == [
        "HOMARUS_ENV_0=x\\0012y",
        "B=plain/1",
        "HOMARUS_ENV_2=q\\0042\\0044\\0050id\\0051",
    ]
    assert "$(id)" not in script and "export A=" in script
    with pytest.raises(SandboxError):
        encode_env({"A": "\udc80"})


async def test_oci_missing_image_is_named_with_the_command(machine: Machine) -> None:
    (machine.folder / "no-image").touch()
    with pytest.raises(SandboxError, match=IMAGE) as caught:
        await machine.launch()
    assert f"podman pull {IMAGE}" in caught.value.fix
    assert machine.calls("run") == [] and machine.calls("pull") == []


async def test_oci_without_an_engine_is_refused(machine: Machine) -> None:
    (machine.folder / "bin" / "podman").unlink()
    with pytest.raises(SandboxError, match="docker is not installed; podman is not") as caught:
        await machine.launch()
    assert "install podman" in caught.value.fix
    await machine.backend().destroy("one")  # without an engine nothing is left


async def test_oci_with_a_broken_engine_is_refused(machine: Machine) -> None:
    (machine.folder / "broken").touch()
    with pytest.raises(SandboxError, match="podman: cannot work"):
        await machine.launch()


async def test_oci_engine_that_hangs_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.folder / "bin" / "podman").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    monkeypatch.setattr(container_engine, "_ENGINE_S", 0.2)
    with pytest.raises(SandboxError, match="did not answer"):
        await machine.launch()


async def test_oci_podman_is_used_when_no_docker_daemon_answers(machine: Machine) -> None:
    machine.install("docker")
    (engine,) = await find_engines(machine.env)
    assert engine.kind == "podman"


async def test_oci_folder_of_sockets_that_is_unreadable_is_no_error(machine: Machine) -> None:
    machine.install("docker")
    (engine,) = await find_engines({**machine.env, "XDG_RUNTIME_DIR": f"/{'x' * 300}"})
    assert engine.kind == "podman"


async def test_oci_docker_is_used_by_its_own_socket(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("docker")
    monkeypatch.chdir(machine.folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("docker.sock")
        engine, other = await find_engines({**machine.env, "DOCKER_HOST": "tcp://192.0.2.1"})
        assert (engine.kind, other.kind) == ("docker", "podman")
        assert engine.argv[1] == "--host" and engine.argv[2].startswith("unix:///")
        (machine.folder / "security").write_text('["name=userns"]')
        (engine,) = await find_engines(machine.env)
        assert engine.kind == "podman"
        (machine.folder / "security").write_text('["name=seccomp","name=rootless"]')
        (engine, _) = await find_engines(machine.env)
        assert engine.is_rootless


async def test_oci_engine_that_was_measured_is_used_further(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("docker")
    monkeypatch.chdir(machine.folder)
    backend, missing = machine.backend(), machine.folder / "no-image-docker"
    missing.touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("docker.sock")
        for name in ("one", "two"):  # docker gets the image between the two
            spec = replace(machine.spec(), name=name)
            await backend.prepare(spec)
            machine.launches.append(backend.spawn(spec, SandboxCommand("true")))
            assert "podman" in machine.launches[-1].argv[0]
            missing.unlink(missing_ok=True)


async def test_oci_variables_that_aim_the_engine_elsewhere_are_ignored(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    outside = {
        "DOCKER_HOST": "tcp://192.0.2.1",
        "CONTAINER_HOST": "ssh://192.0.2.1",
        "LD_PRELOAD": "/x.so",
        "HTTP_PROXY": "http://192.0.2.1",
        "API_KEY": "s3cret",
    }
    machine.env |= outside
    with caplog.at_level(logging.WARNING):
        launch = await machine.launch()
    assert not set(outside) & set(launch.env)
    variables = (machine.folder / "variables").read_text()
    assert not any(value in variables for value in outside.values())
    assert "DOCKER_HOST, CONTAINER_HOST is set, and ignored" in caplog.text


async def test_oci_without_user_mapping_runs_as_the_gateway(machine: Machine) -> None:
    launch = await machine.launch()
    assert any(each in " ".join(launch.argv) for each in ("--uidmap 1000:0:1", "keep-id:uid=1000"))
    (machine.folder / "no-mapping").touch()
    launch = await machine.launch()
    assert launch.argv[launch.argv.index("--user") + 1] == f"{os.geteuid()}:{os.getegid()}"
    (machine.folder / "no-run").touch()
    with pytest.raises(SandboxError, match="podman cannot start a container") as caught:
        await machine.launch()
    assert "no mapping" in str(caught.value)


def test_oci_docker_user_is_that_of_the_gateway() -> None:
    docker = ContainerEngine("docker", ("docker",), {}, is_rootless=False, has_limits=True)
    own = f"{os.geteuid()}:{os.getegid()}"
    assert docker.user_words(None, has_namespace=False) == ("--user", own)
    rootless = replace(docker, is_rootless=True)
    assert rootless.user_words(None, has_namespace=False) == ("--user", "0:0")
    with pytest.raises(SandboxError, match="would own the files"):
        docker.user_words(ContainerUser(4711, 4711), has_namespace=False)


def test_oci_podman_user_of_the_config_is_mapped() -> None:
    podman = ContainerEngine("podman", ("podman",), {}, is_rootless=False, has_limits=True)
    words = " ".join(podman.user_words(ContainerUser(5, 0), has_namespace=True))
    assert "--uidmap 0:1:5 --uidmap 5:0:1 --uidmap 6:6:65530" in words
    assert "--gidmap 0:0:1 --gidmap 1:1:65535" in words and words.endswith("--user 5:0")
    rootless = replace(podman, is_rootless=True)
    assert rootless.user_words(None, has_namespace=False)[0] == "--userns=keep-id"
    with pytest.raises(SandboxError, match=r"docker\.user 65535:65535 is outside") as caught:
        podman.user_words(ContainerUser(65_535, 65_535), has_namespace=True)
    assert "up to 65534" in caught.value.fix


async def test_oci_engine_without_cgroups_limits_processes_by_user(machine: Machine) -> None:
    backend, spec = machine.backend(), machine.spec(pidsLimit=33)
    await backend.prepare(spec)
    prepared = backend._prepared["one"]  # as an ordinary user with cgroup v1
    engine = replace(prepared.engine, has_limits=False)
    backend._prepared["one"] = replace(prepared, engine=engine)
    launch = backend.spawn(spec, SandboxCommand("true"))
    launch.close()
    assert "nproc=33:33" in launch.argv
    assert "--pids-limit" not in launch.argv and "--memory" not in launch.argv


async def test_oci_bind_that_changed_since_is_refused(machine: Machine) -> None:
    data = machine.folder / "data"
    data.mkdir()
    backend, spec = machine.backend(), machine.spec(binds=[f"{data}:/data"])
    await backend.prepare(spec)
    data.rmdir()
    data.symlink_to("/etc")
    with pytest.raises(SandboxError, match="/etc"):
        backend.spawn(spec, SandboxCommand("true"))


async def test_oci_unprepared_sandbox_starts_nothing(machine: Machine) -> None:
    backend = machine.backend()
    with pytest.raises(SandboxError, match="not prepared"):
        backend.spawn(machine.spec(), SandboxCommand("true"))
    await backend.prepare(machine.spec())
    await backend.destroy("one")
    with pytest.raises(SandboxError, match="not prepared"):
        backend.spawn(machine.spec(), SandboxCommand("true"))
    with suppress(FileNotFoundError):
        assert machine.calls("rm") == []


async def test_oci_destroy_removes_only_own_containers(machine: Machine) -> None:
    (machine.folder / "ids").write_text("aaa\nbbb\n")
    backend = machine.backend()
    await backend.destroy("one")
    (listed,) = machine.calls("ps")
    assert "label=homarus.sandbox=one" in listed and "label=homarus.owner=" in listed
    (removed,) = machine.calls("rm")
    assert removed.endswith("aaa bbb") and "--force" in removed
    other = OciSandbox(machine.folder / "bin", env=machine.env, private=())
    await other.destroy("one")
    assert machine.calls("ps")[0] != machine.calls("ps")[1]  # another gateway, another owner


async def test_oci_equal_commands_have_equal_identities(machine: Machine) -> None:
    one, two = await machine.launch("id"), await machine.launch("id")
    assert one.argv != two.argv and one.identity == two.identity
    other = await machine.launch(command=SandboxCommand("id", env={"A": "1"}))
    assert other.identity != one.identity
    assert (await machine.launch("id", network="bridge")).identity != one.identity


async def test_oci_network_of_the_config_is_used(machine: Machine) -> None:
    launch = await machine.launch(network="mine", dns=["192.0.2.1"], extraHosts=["a:192.0.2.2"])
    words = " ".join(launch.argv)
    assert "--network mine" in words and "--dns 192.0.2.1" in words
    assert "--add-host a:192.0.2.2" in words
    assert "--dns" not in (await machine.launch(dns=["192.0.2.1"])).argv


async def test_oci_level_with_a_network_is_never_above_l1(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measure(*_args: object, **_options: object) -> SandboxReport:
        return SandboxReport("oci", "L3")  # as with a network that has no way to the internet

    monkeypatch.setattr(probes, "measure_sandbox", measure)
    report = await machine.backend().measure({"image": IMAGE, "network": "internal"})
    assert report.level == "L1" and "'internal'" in report.problem and report.fix
    for network in (None, "none"):
        assert (await machine.backend().measure({"network": network})).level == "L3"


async def test_oci_workdir_that_is_not_absolute_is_refused(machine: Machine) -> None:
    for workdir in ("relative", "", "/a\0b"):
        with pytest.raises(SandboxError):
            await machine.launch(command=SandboxCommand("true", workdir=workdir))


async def test_oci_terminal_never_detaches(machine: Machine) -> None:
    launch = await machine.launch(command=SandboxCommand("sh", pty=True))
    assert "--tty" in launch.argv and "--detach-keys=" in launch.argv
    assert "--tty" not in (await machine.launch()).argv


def test_oci_is_found_by_its_name() -> None:
    from homarus.tools.sandbox.base import SANDBOXES

    assert SANDBOXES.has("oci") and SANDBOXES.load("oci") is oci


async def test_oci_has_a_seccomp_profile_of_its_own(machine: Machine) -> None:
    launch = await machine.launch()
    path = machine.folder / "scratch" / "seccomp.json"
    assert f"seccomp={path}" in launch.argv
    assert path.stat().st_mode & 0o777 == 0o600
    own = machine.folder / "own.json"
    own.write_text('{"defaultAction": "SCMP_ACT_ERRNO"}')
    assert f"seccomp={own}" in (await machine.launch(seccompProfile=str(own))).argv


def test_container_profile_refuses_what_bubblewrap_refuses() -> None:
    names = ["read", "ptrace", "keyctl", "clone", "clone3", "unshare", "socket", "io_uring_setup"]
    default = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "archMap": [{"architecture": "SCMP_ARCH_X86_64"}],
        "syscalls": [
            {"names": names, "action": "SCMP_ACT_ALLOW", "args": []},
            {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}},
        ],
    }
    profile = make_profile(default)
    assert "archMap" not in profile  # programs of other architectures are killed
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    plain = [
        name
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and not rule["args"]
        for name in rule["names"]
    ]
    assert plain == ["read"]
    allowed = {
        (name, *(each["valueTwo"] for each in rule["args"]))
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW"
        for name in rule["names"]
        if rule["args"]
    }
    assert allowed == {
        ("clone", 0),
        ("unshare", 0),
        ("socket", 2),
        ("socket", 10),
        ("socket", 16, 0),
        *((name, 0) for name in (*MODED, *OPENED)),  # no set-id bit, or no new file
    }


def test_container_profile_without_a_default_refuses_by_name() -> None:
    profile = make_profile(None)
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    refused = {
        (name, *((each["value"], each["valueTwo"]) for each in rule["args"]))
        for rule in profile["syscalls"]
        for name in rule["names"]
    }
    assert {("ptrace",), ("keyctl",), ("clone3",), ("mount",)} <= refused
    assert ("clone", (0x10000000, 0x10000000)) in refused  # a user namespace
    assert ("socket", (0xFFFFFFFF, 1)) in refused  # a unix socket
    assert ("socket", (0xFFFFFFFF, 2)) not in refused
    assert {("chmod", (0o4000, 0o4000)), ("openat", (0o100, 0o100), (0o4000, 0o4000))} <= refused
    assert all(rule["action"] == "SCMP_ACT_ERRNO" for rule in profile["syscalls"])
