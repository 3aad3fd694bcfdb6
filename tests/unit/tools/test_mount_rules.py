"""What may be mounted in a sandbox, and where."""

import socket
from pathlib import Path

import pytest

from homarus.core.errors import SandboxError
from homarus.tools.sandbox.base import Mount
from homarus.tools.sandbox.mount_rules import (
    check_source,
    check_target,
    check_workdir,
    find_state_dirs,
    make_mount_point,
    open_mount,
)
from tests.unit.tools.bwrap_builders import make_spec

STATE = Path("/srv/anna/.openclaw")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/srv",
        "/srv/anna",
        "/srv/anna/.openclaw",
        "/srv/anna/.openclaw/credentials",
        "/srv/anna/.openclaw/agents/main/agent",
        "/srv/anna/.openclaw/agents/main/sessions",
        "/srv/anna/.openclaw/openclaw.json",
        "/srv/anna/.openclaw/sandboxes",
        "/srv/anna/.openclaw/sandboxes/.data",
        "/srv/anna/.openclaw/sandboxes/.data/other",
        "/proc",
        "/sys/fs/cgroup",
        "/dev/shm",
        "/run/podman/podman.sock",
        "/var/run/docker.sock",
        "/etc/shadow",
        "/etc/ssl/private",
        "/var/lib/docker/volumes",
    ],
)
def test_source_that_shows_secrets_is_refused(path: str) -> None:
    with pytest.raises(SandboxError, match="is not mounted in a sandbox"):
        check_source(Path(path), [STATE])


@pytest.mark.parametrize(
    "path",
    [
        "/srv/anna/projects",
        "/srv/anna/.openclaw/workspace",
        "/srv/anna/.openclaw/workspace-work/notes",
        "/srv/anna/.openclaw/sandboxes/main-0a",
        "/srv/anna/.openclaw/sandboxes/.data/main-0a/tmp",
        "/srv/anna/.openclaw/agents/main/workspace",
        "/srv/anna/.openclaw/media/in.png",
    ],
)
def test_source_of_the_work_is_accepted(path: str) -> None:
    check_source(Path(path), [STATE])


def test_source_with_credentials_of_the_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    check_source(tmp_path, [])
    (tmp_path / ".ssh").mkdir()
    for path in (tmp_path, tmp_path / ".ssh"):
        with pytest.raises(SandboxError, match=r"the credentials in .*\.ssh"):
            check_source(path, [])


def test_open_mount_refuses_links_and_sockets(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/etc")
    with pytest.raises(SandboxError, match="is a link"):
        open_mount(link, [])
    with pytest.raises(SandboxError, match="cannot be mounted"):
        open_mount(tmp_path / "missing", [])
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(SandboxError, match="is a socket"):
            open_mount(tmp_path / "s", [])


def test_open_mount_checks_where_a_linked_folder_leads(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "credentials").mkdir(parents=True)
    (tmp_path / "way").symlink_to(state)
    with pytest.raises(SandboxError, match="state directory"):
        open_mount(tmp_path / "way" / "credentials", [state])


@pytest.mark.parametrize(
    "target",
    [
        "relative",
        "/",
        "//x",
        "/a/../etc",
        "/a/",
        "/etc/x",
        "/proc",
        "/usr/bin",
        "/workspace",
        "/tmp",
    ],
)
def test_target_of_the_system_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(SandboxError):
        check_target(Mount(tmp_path, target), make_spec(tmp_path))


@pytest.mark.parametrize("workdir", ["/usr", "/", "/proc/x", "/tmp", "/tmp/x", "work", "/a\0b"])
def test_workdir_of_the_system_is_refused(workdir: str) -> None:
    with pytest.raises(SandboxError):
        check_workdir(workdir)
    check_workdir("/srv/agent")


def test_target_at_its_own_path_is_accepted(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    check_target(Mount(Path("/usr/share/doc"), "/usr/share/doc"), spec)
    check_target(Mount(tmp_path, "/agent"), spec)
    with pytest.raises(SandboxError):
        check_target(Mount(Path("/usr/share/doc"), "/usr/share/doc", is_writable=True), spec)


def test_mount_point_is_not_made_through_a_link(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    make_mount_point(Mount(tmp_path, "/workspace/a/b"), spec)
    assert (spec.workspace / "a" / "b").is_dir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (spec.tmp / "x").symlink_to(outside)
    with pytest.raises(SandboxError, match="no place for a mount"):
        make_mount_point(Mount(tmp_path, "/tmp/x/made"), spec)
    assert list(outside.iterdir()) == []


def test_state_dir_is_found_from_the_scratch_folder(tmp_path: Path) -> None:
    assert tmp_path in find_state_dirs(tmp_path / "sandboxes" / ".scratch" / "bubblewrap")
    (tmp_path / "openclaw.json").touch()
    assert tmp_path in find_state_dirs(tmp_path / "cache" / "x")
