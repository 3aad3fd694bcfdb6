"""The section `sandbox`: what is accepted, and what is an error with its path."""

from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.known_keys import KnownKey, lookup
from homarus.config.sandbox_schema import UNLIMITED, ContainerConfig, SandboxConfig


def problem_of(sandbox: dict[str, Any]) -> tuple[str, str]:
    """Return the path, below `sandbox`, and the message of the only problem."""
    (found,) = check_config({"agents": {"defaults": {"sandbox": sandbox}}}).problems
    return ".".join(map(str, found.path[3:])), found.message


def leaves(known: KnownKey) -> list[str]:
    below = [each for child in known.children.values() for each in leaves(child)]
    return below or [known.path]


@pytest.mark.parametrize("place", ["defaults", "list"])
def test_every_key_of_openclaw_is_accepted(place: str) -> None:
    sandbox: dict[str, Any] = {
        "mode": "non-main",
        "workspaceAccess": "ro",
        "sessionToolsVisibility": "spawned",
        "scope": "session",
        "perSession": True,
        "workspaceRoot": "~/.openclaw/sandboxes",
        "docker": {
            "image": "openclaw-sandbox:bookworm-slim",
            "containerPrefix": "openclaw-sbx-",
            "workdir": "/workspace",
            "readOnlyRoot": True,
            "tmpfs": ["/tmp", "/var/tmp", "/run"],
            "network": "none",
            "user": "1000:1000",
            "capDrop": ["ALL"],
            "env": {"LANG": "C.UTF-8"},
            "setupCommand": "true",
            "pidsLimit": 256,
            "memory": "1g",
            "memorySwap": "2g",
            "cpus": 1,
            "ulimits": {"nofile": {"soft": 1024, "hard": 2048}, "nproc": 256, "fsize": "10:20"},
            "seccompProfile": "/srv/seccomp.json",
            "apparmorProfile": "openclaw-sandbox",
            "dns": ["1.1.1.1"],
            "extraHosts": ["internal.service:10.0.0.5"],
            "binds": ["/srv/source:/source:rw"],
        },
        "browser": {
            "enabled": False,
            "image": "b",
            "containerPrefix": "b-",
            "cdpPort": 9222,
            "vncPort": 5900,
            "noVncPort": 6080,
            "headless": False,
            "enableNoVnc": True,
            "allowHostControl": False,
            "autoStart": True,
            "autoStartTimeoutMs": 12000,
            "binds": [],
        },
        "prune": {"idleHours": 24, "maxAgeDays": 7},
    }
    known = lookup(("agents", "defaults", "sandbox"))
    assert known
    own = {"backend", "level", "readOnlyFolders", "network"}
    names = {each.split(".sandbox.")[1] for each in leaves(known)}
    written = set(key_paths(sandbox))
    assert {each for each in names if each.split(".")[0] not in own} <= written
    agents: dict[str, Any] = {"defaults": {"sandbox": sandbox}}
    if place == "list":
        agents = {"list": [{"id": "main", "sandbox": sandbox}]}
    checked = check_config({"agents": agents})
    assert checked.problems == ()
    start = "agents.defaults" if place == "defaults" else "agents.list[]"
    assert [each for each in checked.unbuilt if not each.startswith(f"{start}.sandbox.")] == []
    unbuilt = {each.removeprefix(f"{start}.sandbox.").split(".")[0] for each in checked.unbuilt}
    assert unbuilt == {"browser"}


def key_paths(tree: Any, path: str = "") -> list[str]:
    """Return the paths of a tree in the notation of the key list; of a limit, all of its forms."""
    if path == "docker.env":
        return ["docker.env.<key>"]
    if path == "docker.ulimits":
        return [f"docker.ulimits.<key>.{each}" for each in ("soft", "hard")]
    if not isinstance(tree, dict):
        return [path]
    found = [key_paths(value, f"{path}.{key}".lstrip(".")) for key, value in tree.items()]
    return [each for paths in found for each in paths]


@pytest.mark.parametrize(
    ("sandbox", "path", "text"),
    [
        ({"mode": "some"}, "mode", "'off', 'non-main' or 'all'"),
        ({"level": "L0"}, "level", "'L1', 'L2' or 'L3'"),
        ({"backend": "vm"}, "backend", "'auto'"),
        ({"docker": {"memory": "1 lot"}}, "docker.memory", "invalid size"),
        ({"docker": {"memory": -1}}, "docker.memory", "invalid size"),
        ({"docker": {"memorySwap": -2}}, "docker.memorySwap", "invalid size"),
        ({"docker": {"cpus": 0}}, "docker.cpus", ""),
        ({"docker": {"pidsLimit": 0}}, "docker.pidsLimit", ""),
        ({"docker": {"pidsLimit": "5"}}, "docker.pidsLimit", ""),
        ({"docker": {"ulimits": {"nofile": "many"}}}, "docker.ulimits.nofile", "not a limit"),
        ({"docker": {"ulimits": {"nofile": "1:2:3"}}}, "docker.ulimits.nofile", "not a limit"),
        ({"docker": {"ulimits": {"nofile": "1.5"}}}, "docker.ulimits.nofile", "not a limit"),
        ({"docker": {"ulimits": {"nofile": "9:5"}}}, "docker.ulimits.nofile", "above the hard"),
        ({"docker": {"ulimits": {"cpu": {"soft": -1}}}}, "docker.ulimits.cpu.soft", ""),
        ({"docker": {"workdir": "box"}}, "docker.workdir", "absolute"),
        ({"docker": {"workdir": "/box/../etc"}}, "docker.workdir", "absolute"),
        ({"docker": {"workdir": "/usr/local"}}, "docker.workdir", "has itself"),
        ({"docker": {"workdir": "/"}}, "docker.workdir", "has itself"),
        ({"docker": {"network": "host"}}, "docker.network", "not allowed"),
        ({"docker": {"seccompProfile": "unconfined"}}, "docker.seccompProfile", "not allowed"),
        ({"docker": {"apparmorProfile": "unconfined"}}, "docker.apparmorProfile", "not allowed"),
        ({"docker": {"binds": ["/etc:/x"]}}, "docker.binds.0", "would show /etc"),
        ({"docker": {"env": {"A=B": "x"}}}, "docker.env", "name of a variable"),
        ({"docker": {"env": {"A": 1}}}, "docker.env.A", "expected text"),
        ({"docker": {"tmpfs": "/tmp"}}, "docker.tmpfs", ""),
        ({"docker": {"image": 1}}, "docker.image", "expected text"),
        ({"docker": {"privileged": True}}, "docker.privileged", "unknown key"),
        ({"network": {"allow": ["http://a/"]}}, "network.allow", "not a host"),
        ({"readOnlyFolders": ["docs"]}, "readOnlyFolders", "absolute"),
        ({"workspaceRoot": "~nouser/boxes"}, "workspaceRoot", "home of the gateway"),
        ({"prune": {"idleHours": -1}}, "prune.idleHours", ""),
    ],
)
def test_invalid_value_is_an_error_with_its_path(
    sandbox: dict[str, Any], path: str, text: str
) -> None:
    found, message = problem_of(sandbox)
    assert (found, text in message) == (path, True), message


@pytest.mark.parametrize(
    ("written", "soft", "hard"),
    [
        (1024, 1024, 1024),
        (1024.0, 1024, 1024),
        ("1024", 1024, 1024),
        ("10:20", 10, 20),
        ("-1", UNLIMITED, UNLIMITED),
        (-1, UNLIMITED, UNLIMITED),
        ("5:unlimited", 5, UNLIMITED),
        ({"hard": 7}, None, 7),
    ],
)
def test_ulimit_is_parsed_from_number_text_or_object(
    written: Any, soft: int | None, hard: int | None
) -> None:
    found = ContainerConfig.model_validate({"ulimits": {"nofile": written}}).ulimits
    assert found and (found["nofile"].soft, found["nofile"].hard) == (soft, hard)


@pytest.mark.parametrize(
    ("written", "read"),
    [("auto", "auto"), ("bubblewrap", "bubblewrap"), ("oci", "oci"), ("docker", "oci")],
)
def test_backend_of_sandbox_is_auto_or_a_module(written: str, read: str) -> None:
    assert SandboxConfig.model_validate({"backend": written}).backend == read


def test_lists_of_sandbox_tools_exclude_each_other() -> None:
    lists = {"allow": ["read"], "alsoAllow": ["exec"]}
    for tree in (
        {"tools": {"sandbox": {"tools": lists}}},
        {"agents": {"list": [{"id": "main", "tools": {"sandbox": {"tools": lists}}}]}},
    ):
        (found,) = check_config(tree).problems
        assert found.path[-2:] == ("sandbox", "tools") and "exclude" in found.message
