"""Cgroups are made where we may make them, and removed with what runs in them."""

import subprocess
from pathlib import Path

import pytest

from homarus.tools.exec.sandbox_launcher import remove_cgroup
from homarus.tools.sandbox.base import SandboxLimits
from homarus.tools.sandbox.cgroups import (
    CgroupParents,
    find_parents,
    make_groups,
    remove_groups,
    remove_leftovers,
)
from tests.unit.tools.bwrap_builders import needs_root

LIMITS = SandboxLimits(pids=7, memory_bytes=1 << 20, cpus=0.5)


def make_tree(base: Path, folder: str, files: dict[str, str]) -> Path:
    path = base / folder
    path.mkdir(parents=True, exist_ok=True)
    for name, text in {"cgroup.procs": "", **files}.items():
        (path / name).write_text(text)
    return path


def write_proc(base: Path, mounts: list[str], own: str) -> Path:
    proc = base / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text("".join(f"{each}\n" for each in mounts))
    (proc / "cgroup").write_text(own)
    return proc


def test_unified_tree_is_used_where_the_parent_passes_controllers_on(tmp_path: Path) -> None:
    top = make_tree(tmp_path, "sys", {})
    passed = {"cgroup.subtree_control": "cpu memory pids\n"}
    make_tree(tmp_path, "sys/user/app", passed)
    make_tree(tmp_path, "sys/user/app/gateway.service", {"cgroup.subtree_control": "\n"})
    mounts = [f"30 25 0:26 / {top} rw,nosuid - cgroup2 cgroup2 rw"]
    proc = write_proc(tmp_path, mounts, "0::/user/app/gateway.service\n")
    app = f"{top}/user/app"
    assert find_parents(proc) == CgroupParents(app, app, app, is_unified=True)


def test_unified_tree_without_controllers_is_not_used(tmp_path: Path) -> None:
    top = make_tree(tmp_path, "sys", {"cgroup.subtree_control": "pids\n"})
    mounts = [f"30 25 0:26 / {top} rw - cgroup2 cgroup2 rw"]
    assert find_parents(write_proc(tmp_path, mounts, "0::/\n")) == CgroupParents()


def test_separate_trees_are_used_at_our_place_or_the_top(tmp_path: Path) -> None:
    pids = make_tree(tmp_path, "pids", {})
    memory = make_tree(tmp_path, "memory", {})
    make_tree(tmp_path, "memory/session", {})
    mounts = [
        f"31 25 0:27 / {pids} rw - cgroup cgroup rw,pids",
        f"32 25 0:28 /docker/x {memory} rw - cgroup cgroup rw,memory",
    ]
    proc = write_proc(tmp_path, mounts, "8:pids:/gone\n4:memory:/docker/x/session\n")
    found = find_parents(proc)
    assert (found.pids, found.memory, found.cpu) == (str(pids), f"{memory}/session", "")
    assert found.limits_all and not found.is_unified


def test_no_parents_where_there_are_no_cgroups(tmp_path: Path) -> None:
    assert find_parents(tmp_path) == CgroupParents()
    assert make_groups(CgroupParents(), "x", LIMITS) == ()


def test_groups_have_the_settings_of_the_limits() -> None:
    (group,) = make_groups(CgroupParents("/c", "/c", "/c", is_unified=True), "x", LIMITS)
    assert group.path.startswith("/c/homarus-")
    assert dict(group.settings) == {
        "pids.max": "7",
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "50000 100000",
    }
    groups = make_groups(CgroupParents("/p", "/m"), "x", LIMITS)
    assert [dict(each.settings) for each in groups] == [
        {"pids.max": "7"},
        {"memory.limit_in_bytes": "1048576"},
    ]
    assert make_groups(CgroupParents("/p"), "x", LIMITS) != make_groups(
        CgroupParents("/p"), "x", LIMITS
    )


@pytest.mark.parametrize(
    ("swap_bytes", "unified", "separate"),
    [(0, "0", "1048576"), (4096, "4096", "1052672"), (-1, "max", None)],
)
def test_groups_have_the_swap_of_the_limits(
    swap_bytes: int, unified: str, separate: str | None, tmp_path: Path
) -> None:
    limits = SandboxLimits(memory_bytes=1 << 20, swap_bytes=swap_bytes)
    (group,) = make_groups(CgroupParents("/c", "/c", "/c", is_unified=True), "x", limits)
    assert dict(group.settings)["memory.swap.max"] == unified
    (tmp_path / "memory.memsw.limit_in_bytes").touch()
    (group,) = make_groups(CgroupParents("", str(tmp_path)), "x", limits)
    assert dict(group.settings).get("memory.memsw.limit_in_bytes") == separate


def test_leftovers_of_running_gateways_stay(tmp_path: Path) -> None:
    (mine,) = make_groups(CgroupParents(str(tmp_path)), "x", LIMITS)
    Path(mine.path).mkdir()
    old = tmp_path / "homarus-1-99999999999-x-0a"
    old.mkdir()
    (tmp_path / "other").mkdir()
    assert remove_leftovers(CgroupParents(str(tmp_path))) == [str(old)]
    assert sorted(each.name for each in tmp_path.iterdir()) == [Path(mine.path).name, "other"]


def test_groups_of_one_sandbox_are_removed_by_its_name(tmp_path: Path) -> None:
    parents = CgroupParents(str(tmp_path))
    for name in ("main-a", "main-a", "main-a-b"):
        Path(make_groups(parents, name, LIMITS)[0].path).mkdir()
    remove_groups("main-a", parents)
    assert ["-main-a-b-" in each.name for each in tmp_path.iterdir()] == [True]


@needs_root
def test_cgroup_with_a_process_is_ended_and_removed() -> None:
    parents = find_parents()
    if not parents.pids:
        pytest.skip("this machine has no cgroup for processes that we may use")
    path = Path(make_groups(CgroupParents(parents.pids), "test", LIMITS)[0].path)
    path.mkdir()
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        (path / "cgroup.procs").write_text(str(process.pid))
        assert remove_cgroup(str(path))
        assert process.wait(30) == -9
    assert not path.exists()
