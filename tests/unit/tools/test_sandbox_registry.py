"""Sandboxes are opened, measured, listed, pruned and removed."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from homarus.agent.agent import Agent
from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.core.errors import SandboxError, UnknownNameError, UserError
from homarus.policy.workspace_access import FULL_ACCESS
from homarus.tools.sandbox.base import SandboxReport, SandboxSpec
from homarus.tools.sandbox.loader import SandboxLoader
from tests.unit.tools.sandbox_builders import (
    GROUP,
    MAIN,
    BrokenSandbox,
    FakeSandbox,
    SandboxHarness,
)

HOUR_MS = 3_600_000


async def use(harness: SandboxHarness, key: str = GROUP) -> str:
    """Start a command in the sandbox of a session and end it."""
    sandbox = harness.open(key)
    launch, _ = await sandbox.make_launch("true")
    launch.close()
    return sandbox.name


def test_session_without_sandbox_opens_none_and_creates_nothing(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    assert harness.registry.open("main", MAIN, harness.workspace, FULL_ACCESS) is None
    assert harness.open(GROUP).name.startswith("main-telegram-group-100-")
    assert not harness.state.exists() and harness.backend.measured == 0


async def test_report_is_measured_for_each_image_and_network(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    report = harness.registry.report
    for options in ({"image": "a"}, {"image": "b"}, {"image": "a", "memory": "1g"}):
        await report("bubblewrap", options)
    assert harness.backend.measured == 2
    await report("bubblewrap", {"image": "a", "network": "bridge"})
    assert harness.backend.measured == 3


async def test_report_of_concurrent_callers_is_measured_once(tmp_path: Path) -> None:
    class SlowSandbox(FakeSandbox):
        async def measure(self, options: Mapping[str, object] | None = None) -> SandboxReport:
            await asyncio.sleep(0)
            return await super().measure()

    harness = SandboxHarness(tmp_path, backend=SlowSandbox("L2"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(harness.registry.report("bubblewrap")) for _ in range(3)]
    assert {each.result().level for each in tasks} == {"L2"} and harness.backend.measured == 1


async def test_report_without_a_level_is_measured_again(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, backend=FakeSandbox("L0", "bwrap is not installed"))
    assert (await harness.registry.report("bubblewrap")).level == "L0"
    harness.backend.level = "L3"  # its user has installed it
    assert (await harness.registry.report("bubblewrap")).level == "L3"


async def test_report_below_the_demanded_level_is_measured_again(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, backend=FakeSandbox("L1"))
    with pytest.raises(SandboxError, match="gives level L1"):
        await use(harness)
    harness.backend.level = "L3"  # as after a moment in which the machine was too busy
    await use(harness)
    await use(harness)
    assert harness.backend.measured == 2


def test_backend_that_is_unknown_is_a_sandbox_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="chroot"):
        SandboxHarness(tmp_path).registry.get_backend("chroot")


async def test_entries_show_sandboxes_and_which_are_live(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    name, idle = harness.open().name, await use(harness, "agent:main:other")
    launch, level = await harness.open().make_launch("true")
    entries = {each.name: each for each in harness.registry.entries()}
    assert level == "L3" and set(entries) == {name, idle}
    live = entries[name]
    assert (live.key, live.agent_id, live.scope, live.backend) == (
        GROUP, "main", "session", "bubblewrap",
    )  # fmt: skip
    assert live.is_live and not entries[idle].is_live
    assert live.created_ms == live.used_ms == harness.now_ms
    assert live.path == harness.state / "sandboxes" / name and live.path.is_dir()
    launch.close()
    assert not any(each.is_live for each in harness.registry.entries())


async def test_remove_deletes_all_folders_of_an_idle_sandbox_only(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    launch, _ = await harness.open().make_launch("true")
    name = harness.open().name
    with pytest.raises(UserError, match="a command runs"):
        await harness.registry.remove(name)
    launch.close()
    await harness.registry.remove(name)
    assert harness.backend.destroyed == [name] and harness.registry.entries() == []
    left = [each for each in harness.state.rglob("*") if each.name not in ("sandboxes", ".data")]
    assert left == []
    with pytest.raises(UnknownNameError):
        await harness.registry.remove(name)


async def test_prune_removes_idle_and_old_sandboxes_but_no_live_one(tmp_path: Path) -> None:
    prune = {"idleHours": 2, "maxAgeDays": 1}
    harness = SandboxHarness(tmp_path, {"prune": prune})
    start_ms = harness.now_ms
    idle, old = await use(harness, "agent:main:idle"), await use(harness, "agent:main:old")
    launch, _ = await harness.open("agent:main:live").make_launch("true")
    harness.now_ms += HOUR_MS
    await use(harness, "agent:main:old")
    assert await harness.registry.prune(start_ms + 2 * HOUR_MS) == []
    assert await harness.registry.prune(start_ms + 2 * HOUR_MS + 1) == [idle]
    harness.now_ms = start_ms + 24 * HOUR_MS
    await use(harness, "agent:main:old")
    assert await harness.registry.prune(harness.now_ms + 1) == [old]
    launch.close()
    assert len(await harness.registry.prune(harness.now_ms + 1)) == 1


async def test_prune_keeps_a_sandbox_that_is_used_meanwhile(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"prune": {"idleHours": 2}})
    first, second = await use(harness, "agent:main:a"), await use(harness, "agent:main:b")
    harness.now_ms += 3 * HOUR_MS

    class _UsingBackend(FakeSandbox):
        async def destroy(self, name: str) -> None:  # while the first one is removed
            harness.open("agent:main:b").make_workspace()

    harness.registry._backends["bubblewrap"] = _UsingBackend()
    assert await harness.registry.prune(harness.now_ms) == [first]
    assert [each.name for each in harness.registry.entries()] == [second]


async def test_sandbox_that_cannot_be_removed_is_no_removed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = SandboxHarness(tmp_path, {"prune": {"idleHours": 2}})
    name = await use(harness)

    def fail(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(SandboxError, match="could not be removed: Permission denied") as caught:
        await harness.registry.remove(name)
    assert caught.value.fix.startswith("check the permissions of ")
    assert await harness.registry.prune(harness.now_ms + 3 * HOUR_MS) == []
    assert name in caplog.text and [each.name for each in harness.registry.entries()] == [name]


async def test_prune_obeys_the_settings_of_the_agent_of_a_sandbox(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"prune": {"idleHours": 2}})
    name, registry = await use(harness), harness.registry
    gone = registry.open("gone", "agent:gone:x", harness.workspace, FULL_ACCESS)
    assert gone
    gone.make_workspace()
    own = {"id": "main", "sandbox": {"prune": {"idleHours": 9}}}
    tree = {"agents": {"defaults": {"sandbox": {"prune": {"idleHours": 2}}}, "list": [own]}}
    harness.config = check_config(tree).config or harness.config
    assert await registry.prune(harness.now_ms + 3 * HOUR_MS) == [gone.name]
    assert await registry.prune(harness.now_ms + 10 * HOUR_MS) == [name]


async def test_prune_with_zero_limits_removes_nothing(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"prune": {"idleHours": 0, "maxAgeDays": 0}})
    await use(harness)
    assert await harness.registry.prune(harness.now_ms * 2) == []


async def test_clean_removes_what_a_crash_left(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    name = await use(harness)
    data = harness.state / "sandboxes" / ".data"
    (data / "half-made-0" / "tmp").mkdir(parents=True)
    (data / ".removed-12").mkdir()
    (harness.state / "sandboxes" / ".removed-34").mkdir()
    await harness.registry.clean()
    assert sorted(each.name for each in data.iterdir() if each.name != ".scratch") == [name]
    assert {each.name for each in (harness.state / "sandboxes").iterdir()} == {".data", name}


async def test_clean_destroys_containers_of_idle_sandboxes_only(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"docker": {"image": "tools"}})
    harness.registry._backends["oci"] = harness.backend
    idle = await use(harness, "agent:main:idle")
    launch, _ = await harness.open().make_launch("true")
    await harness.registry.clean()
    assert harness.backend.destroyed == [idle]
    launch.close()


def test_loader_without_sandboxed_sessions_makes_no_registry(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    paths = Paths.find({"HOME": str(tmp_path), "OPENCLAW_STATE_DIR": str(harness.state)})
    loader = SandboxLoader(lambda: harness.config, paths, lambda: 0)
    agent = Agent("main", "Ada", harness.workspace)
    assert loader.open(agent, MAIN, FULL_ACCESS) is None
    asyncio.run(loader.clean())
    asyncio.run(loader.prune(1))
    assert loader._registry is None
    assert loader.open(agent, GROUP, FULL_ACCESS)


async def test_level_below_the_demanded_one_is_refused_with_the_fix(tmp_path: Path) -> None:
    backend = FakeSandbox("L1", "user namespaces are off", "sysctl kernel.unprivileged_userns=1")
    harness = SandboxHarness(tmp_path, backend=backend)
    with pytest.raises(SandboxError, match=r"level L1 .* demands L2: user namespaces") as caught:
        await harness.open().make_launch("true")
    assert caught.value.fix == backend.fix and backend.commands == []
    low = SandboxHarness(tmp_path, {"level": "L1"}, backend=backend)
    launch, level = await low.open().make_launch("true")
    launch.close()
    assert level == "L1"


async def test_backend_that_cannot_be_measured_starts_nothing(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"level": "L1"}, backend=BrokenSandbox())
    with pytest.raises(SandboxError, match="bwrap is not installed"):
        await harness.open().make_launch("true")
    assert harness.backend.commands == [] and not (harness.state / "sandboxes").exists()


async def test_cancelled_launch_leaves_no_lock(tmp_path: Path) -> None:
    class HangingSandbox(FakeSandbox):
        async def prepare(self, spec: SandboxSpec) -> None:
            await asyncio.Event().wait()

    harness = SandboxHarness(tmp_path, backend=HangingSandbox())
    for timeout_s in (0.0, 0.02):  # while the folders are made, and while it is prepared
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await harness.open().make_launch("true")
    loop = asyncio.get_running_loop()
    await loop.shutdown_default_executor()
    assert not any(each.is_live for each in harness.registry.entries())


async def test_launch_holds_the_lock_until_it_is_closed(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    launch, _ = await harness.open().make_launch("true")
    held = os.dup(launch.lock_fd)  # as the supervisor inherits it
    launch.close()
    assert harness.registry.entries()[0].is_live
    os.close(held)
    assert not harness.registry.entries()[0].is_live
