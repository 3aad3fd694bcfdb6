"""The rules of containers: defaults, and everything that is refused."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.sandbox_schema import UNLIMITED
from homarus.core.errors import SandboxError
from homarus.tools.sandbox.base import Mount, SandboxLimits, SandboxSpec
from homarus.tools.sandbox.container_rules import (
    DEFAULT_IMAGE,
    ContainerRules,
    ContainerUser,
    find_private_folders,
    make_rules,
)


def make_spec(folder: Path, **changes: Any) -> SandboxSpec:
    for name in ("workspace", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return SandboxSpec("one", folder / "workspace", folder / "tmp", **changes)


def rules_with(folder: Path, **options: Any) -> ContainerRules:
    return make_rules(make_spec(folder, options=options), (folder / "state",))


def test_container_rules_without_options_are_strict(tmp_path: Path) -> None:
    rules = make_rules(make_spec(tmp_path), ())
    assert (rules.image, rules.network, rules.is_root_read_only) == (DEFAULT_IMAGE, "none", True)
    assert rules.cap_drop == ("ALL",)
    assert (rules.pids, rules.memory_bytes, rules.memory_swap) == (512, 2 << 30, 2 << 30)
    assert [each.partition(":")[0] for each in rules.tmpfs] == ["/var/tmp", "/run"]
    assert [(each.target, each.is_writable) for each in rules.mounts] == [
        ("/workspace", True),
        ("/tmp", True),
    ]
    assert {name: soft for name, soft, _ in rules.ulimits}["nofile"] == 1024


def test_container_rules_obey_the_options(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rules = rules_with(
        tmp_path,
        image="registry.example:5000/team/box:1",
        containerPrefix="mine-",
        user="1234:5678",
        network="bridge",
        readOnlyRoot=False,
        tmpfs=["/scratch:size=1m,noexec"],
        capDrop=["net_raw", "ALL"],
        env={"A": "1"},
        pidsLimit=9,
        memory="64m",
        memorySwap="128m",
        cpus=1.5,
        ulimits={"nofile": {"soft": 10, "hard": 20}, "stack": f"5:{UNLIMITED}", "core": 3},
        dns=["192.0.2.1"],
        extraHosts=["db.example:192.0.2.7"],
        binds=[f"{tmp_path}/data:/data"],
    )
    assert (rules.image, rules.prefix) == ("registry.example:5000/team/box:1", "mine-")
    assert (rules.user, rules.network) == (ContainerUser(1234, 5678), "bridge")
    assert not rules.is_root_read_only
    assert rules.tmpfs == ("/scratch:rw,nosuid,nodev,size=1m,noexec,mode=1777",)
    assert rules.cap_drop == ("ALL", "NET_RAW")
    assert (rules.env, rules.pids, rules.cpus) == ({"A": "1"}, 9, 1.5)
    assert (rules.memory_bytes, rules.memory_swap) == (64 << 20, 128 << 20)
    assert {("nofile", 10, 20), ("stack", 5, -1), ("core", 3, 3)} <= set(rules.ulimits)
    assert (rules.dns, rules.extra_hosts) == (("192.0.2.1",), ("db.example:192.0.2.7",))
    assert rules.mounts[-1] == Mount(tmp_path / "data", "/data")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("network", "host"),
        ("network", "HOST"),
        ("network", "container:gateway"),
        ("network", "ns:/proc/1/ns/net"),
        ("network", "slirp4netns:allow_host_loopback=true"),
        ("network", "--privileged"),
        ("seccompProfile", "unconfined"),
        ("seccompProfile", "profile.json"),
        ("apparmorProfile", "unconfined"),
        ("binds", ["/:/host"]),
        ("binds", ["/etc:/data"]),
        ("binds", ["/etc/shadow:/data"]),
        ("binds", ["/proc:/data"]),
        ("binds", ["/var:/data"]),
        ("binds", ["/var/run/docker.sock:/data"]),
        ("binds", ["/srv/podman.sock:/data"]),
        ("binds", ["relative:/data"]),
        ("binds", ["/srv/../etc:/data"]),
        ("binds", ["/srv:/data:rw,z"]),
        ("binds", ["/srv:/data,readonly=false"]),
        ("binds", ["/srv:/usr"]),
        ("binds", ["/srv:/etc/x"]),
        ("binds", ["/srv"]),
    ],
)
def test_container_setting_that_opens_the_sandbox_is_refused(
    tmp_path: Path, key: str, value: object
) -> None:
    checked = check_config({"agents": {"defaults": {"sandbox": {"docker": {key: value}}}}})
    assert checked.config is None  # a config file with it is not accepted
    with pytest.raises(SandboxError):
        rules_with(tmp_path, **{key: value})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("setupCommand", "apt-get update", "build an image"),
        ("image", "--privileged", "docker.image"),
        ("image", "dir:/etc", "docker.image"),
        ("image", "a b", "docker.image"),
        ("containerPrefix", "-x", "docker.containerPrefix"),
        ("user", "root", "UID:GID"),
        ("tmpfs", ["/proc/x"], "docker.tmpfs"),
        ("tmpfs", ["/x:bind,size=1m"], "docker.tmpfs"),
        ("tmpfs", ["x"], "docker.tmpfs"),
        ("capDrop", ["ALL --cap-add SYS_ADMIN"], "docker.capDrop"),
        ("env", {"A=B": "1"}, "name of a variable"),
        ("env", {"A": "1\0"}, "not text"),
        ("memory", "much", "docker.memory"),
        ("ulimits", {"nofile": "many"}, "docker.ulimits.nofile"),
        ("ulimits", {"nofile": {"soft": 9, "hard": 1}}, "docker.ulimits.nofile"),
        ("ulimits", {"--x": 1}, "docker.ulimits"),
        ("dns", ["resolver"], "docker.dns"),
        ("ulimits", {"nofile": -5}, "docker.ulimits.nofile"),
        ("extraHosts", ["db:host-gateway"], "docker.extraHosts"),
        ("extraHosts", ["--x:192.0.2.1"], "docker.extraHosts"),
        ("privileged", True, "docker.privileged is not known"),
        ("seccompProfile", "/missing/profile.json", "cannot be read"),
    ],
)
def test_container_setting_that_is_none_is_refused(
    tmp_path: Path, key: str, value: object, text: str
) -> None:
    with pytest.raises(SandboxError, match=text) as caught:
        rules_with(tmp_path, **{key: value})
    assert caught.value.fix


def test_container_seccomp_profile_must_deny_by_default(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW"}))
    with pytest.raises(SandboxError, match="does not name"):
        rules_with(tmp_path, seccompProfile=str(profile))
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ERRNO"}))
    assert rules_with(tmp_path, seccompProfile=str(profile)).seccomp_profile == str(profile)


def test_container_bind_is_read_only_unless_owned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    bind = f"{tmp_path}/data:/data"
    assert not rules_with(tmp_path, binds=[bind]).mounts[-1].is_writable
    assert not rules_with(tmp_path, binds=[f"{bind}:ro"]).mounts[-1].is_writable
    assert rules_with(tmp_path, binds=[f"{bind}:rw"]).mounts[-1].is_writable
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(SandboxError, match="belongs to another user"):
        rules_with(tmp_path, binds=[f"{bind}:rw"])


def test_container_bind_is_checked_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "state" / "credentials").mkdir(parents=True)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "sub").mkdir()
    for name, place in {"a": "/etc", "b": "/proc/self", "c": "state", "d": "/var/run"}.items():
        (tmp_path / name).symlink_to(place)
    for source in ("a", "b", "c", "d", "c/credentials", "state/credentials", "", "workspace/sub"):
        with pytest.raises(SandboxError):
            rules_with(tmp_path, binds=[f"{tmp_path}/{source}".rstrip("/") + ":/data"])
    with pytest.raises(SandboxError, match="No such file"):
        rules_with(tmp_path, binds=[f"{tmp_path}/missing:/data"])


def test_container_never_sees_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("service")
        with pytest.raises(SandboxError, match="socket"):
            rules_with(tmp_path, binds=[f"{tmp_path}/service:/data"])
        mounts = (Mount(tmp_path / "service", "/data"),)
        with pytest.raises(SandboxError, match="socket"):
            make_rules(make_spec(tmp_path, mounts=mounts), ())


def test_container_private_folders_are_state_and_credentials(tmp_path: Path) -> None:
    state = tmp_path / ".openclaw"
    state.mkdir()
    found = find_private_folders({"HOME": str(tmp_path)})
    assert {state, tmp_path / ".ssh", tmp_path / ".aws", tmp_path / ".docker"} <= set(found)
    (tmp_path / "in").mkdir()
    for source in (tmp_path, state):
        spec = make_spec(tmp_path / "in", mounts=(Mount(source, "/data"),))
        with pytest.raises(SandboxError, match="commands would see"):
            make_rules(spec, found)


@pytest.mark.parametrize(
    "changes",
    [
        {"allowed_hosts": ("example.com",)},
        {"workdir": "relative"},
        {"workdir": "/"},
        {"workdir": "/etc"},
        {"workdir": "/tmp"},
        {"env": {"a b": "1"}},
    ],
)
def test_container_spec_that_cannot_be_obeyed_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(SandboxError):
        make_rules(make_spec(tmp_path, **changes), ())


def test_container_mounts_at_one_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for target in ("/workspace", "/tmp"):
        with pytest.raises(SandboxError, match="two folders"):
            rules_with(tmp_path, binds=[f"{tmp_path}/data:{target}"])


def test_container_path_with_a_comma_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a,readonly=false"
    folder.mkdir()
    with pytest.raises(SandboxError, match="rename the folder"):
        make_rules(make_spec(folder), ())


def test_container_limits_without_options_are_those_of_the_sandbox(tmp_path: Path) -> None:
    limits = SandboxLimits(pids=5, memory_bytes=1 << 20, cpus=0.5, cpu_s=7, file_bytes=0)
    rules = make_rules(make_spec(tmp_path, limits=limits), ())
    assert (rules.pids, rules.memory_bytes, rules.cpus) == (5, 1 << 20, 0.5)
    named = {name: soft for name, soft, _ in rules.ulimits}
    assert (named["cpu"], named["core"]) == (7, 0) and "fsize" not in named
