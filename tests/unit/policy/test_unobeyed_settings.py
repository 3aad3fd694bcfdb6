"""Settings of containers that a backend cannot obey refuse the sandbox, or are named."""

from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.core.errors import SandboxError
from homarus.policy.sandbox_settings import SandboxSettings, resolve_sandbox
from homarus.policy.unobeyed_settings import check_obeyed, unobeyed_settings


def settings(docker: dict[str, Any], **sandbox: Any) -> SandboxSettings:
    tree = {"agents": {"defaults": {"sandbox": {"docker": docker, **sandbox}}}}
    checked = check_config(tree)
    assert checked.config, checked.problems
    return resolve_sandbox(checked.config, "main")


OBEYED: dict[str, Any] = {
    "workdir": "/work",
    "readOnlyRoot": True,
    "network": "none",
    "user": "1000:1000",
    "capDrop": ["ALL"],
    "env": {"LANG": "C.UTF-8"},
    "pidsLimit": 64,
    "memory": "1g",
    "memorySwap": "2g",
    "cpus": 1.5,
    "ulimits": {"nofile": 256, "nproc": "64", "fsize": {"soft": 1, "hard": 2}, "cpu": 60},
}


@pytest.mark.parametrize("backend", ["bubblewrap", "oci"])
def test_obeyed_settings_of_containers_are_not_named(backend: str) -> None:
    assert unobeyed_settings(settings(OBEYED), backend) == []
    check_obeyed(settings(OBEYED), backend)


@pytest.mark.parametrize(
    ("docker", "key"),
    [
        ({"network": "bridge"}, "docker.network"),
        ({"readOnlyRoot": False}, "docker.readOnlyRoot"),
        ({"tmpfs": ["/tmp", "/srv:size=1m"]}, "docker.tmpfs"),
        ({"user": "0:0"}, "docker.user"),
        ({"setupCommand": "apt-get update"}, "docker.setupCommand"),
        ({"seccompProfile": "/etc/p.json"}, "docker.seccompProfile"),
        ({"apparmorProfile": "strict"}, "docker.apparmorProfile"),
        ({"ulimits": {"memlock": 1, "nofile": 5}}, "docker.ulimits.memlock"),
        ({"binds": ["/srv/data:/data:ro"]}, "docker.binds"),
    ],
)
def test_unobeyed_setting_refuses_bubblewrap(docker: dict[str, Any], key: str) -> None:
    with pytest.raises(SandboxError, match=rf"sandbox\.{key} cannot be obeyed: ") as found:
        check_obeyed(settings(docker), "bubblewrap")
    assert found.value.fix


@pytest.mark.parametrize(
    ("docker", "key"),
    [
        ({"image": "debian"}, "sandbox.docker.image"),
        ({"containerPrefix": "x-"}, "sandbox.docker.containerPrefix"),
        ({"tmpfs": ["/tmp", "/var/tmp", "/run"]}, "sandbox.docker.tmpfs"),
        ({"dns": ["9.9.9.9"]}, "sandbox.docker.dns"),
        ({"extraHosts": ["a:10.0.0.1"]}, "sandbox.docker.extraHosts"),
    ],
)
def test_harmless_setting_is_ignored_by_bubblewrap(docker: dict[str, Any], key: str) -> None:
    found = settings(docker)
    check_obeyed(found, "bubblewrap")
    (one,) = unobeyed_settings(found, "bubblewrap")
    assert f"sandbox.{one.key}" == key and one.reason and not one.is_refused


@pytest.mark.parametrize("docker", [{"dns": ["9.9.9.9"]}, {"extraHosts": ["a:10.0.0.1"]}])
def test_names_of_hosts_refuse_bubblewrap_with_network(docker: dict[str, Any]) -> None:
    found = settings(docker, network={"allow": ["example.org"]})
    with pytest.raises(SandboxError, match="the gateway looks up"):
        check_obeyed(found, "bubblewrap")


def test_oci_refuses_setup_command_and_allowed_hosts() -> None:
    with pytest.raises(SandboxError, match=r"docker\.setupCommand") as found:
        check_obeyed(settings({"setupCommand": "true"}), "oci")
    assert "build an image" in (found.value.fix or "")
    with pytest.raises(SandboxError, match=r"sandbox\.network\.allow"):
        check_obeyed(settings({}, network={"allow": ["example.org"]}), "oci")
    everything = {"user": "0", "dns": ["9.9.9.9"], "readOnlyRoot": False, "tmpfs": ["/srv"]}
    check_obeyed(settings(everything), "oci")


def test_refused_settings_come_before_ignored_ones() -> None:
    found = unobeyed_settings(settings({"image": "x", "user": "0"}), "bubblewrap")
    assert [(one.key, one.is_refused) for one in found] == [
        ("docker.user", True),
        ("docker.image", False),
    ]


def test_backend_of_other_package_decides_itself() -> None:
    assert unobeyed_settings(settings({"user": "0", "image": "x"}), "microvm") == []
