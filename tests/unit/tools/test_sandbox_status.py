"""The state of sandboxes as /status and clients see it: never measured for being shown."""

from pathlib import Path
from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.schema import Config
from homarus.policy.sandbox_settings import resolve_sandbox
from homarus.tools.sandbox.base import SandboxReport
from homarus.tools.sandbox.sandbox_status import describe_sandbox, encode_sandboxes, no_report
from tests.unit.tools.sandbox_builders import FakeSandbox, SandboxHarness


def parse(**section: Any) -> Config:
    found = check_config({"agents": {"defaults": {"sandbox": section}}}).config
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("section", "is_sandboxed", "report", "expected"),
    [
        ({}, False, None, "off"),
        ({"mode": "non-main"}, False, None, "off in this session (mode non-main)"),
        ({"mode": "all"}, True, None, "bubblewrap · not measured yet · workspace ro"),
        (
            {"mode": "all"},
            True,
            SandboxReport("bubblewrap", "L3"),
            "bubblewrap · L3 · workspace ro",
        ),
        (
            {"mode": "all", "level": "L3"},
            True,
            SandboxReport("bubblewrap", "L2"),
            "bubblewrap · L2, L3 is demanded: commands are refused · workspace ro",
        ),
        (
            {"mode": "all", "docker": {"image": "tools:1"}},
            True,
            None,
            "oci · not measured yet · workspace ro",
        ),
    ],
)
def test_sandbox_of_a_session_is_described_without_measuring(
    section: dict[str, Any], is_sandboxed: bool, report: SandboxReport | None, expected: str
) -> None:
    text = describe_sandbox(
        parse(**section),
        "main",
        is_sandboxed=is_sandboxed,
        access="ro",
        find_report=lambda _backend: report,
    )
    assert text == expected


def test_clients_see_the_sandbox_of_each_agent() -> None:
    config = parse(mode="all", workspaceAccess="rw")
    row = {
        "agentId": "main",
        "mode": "all",
        "scope": "agent",
        "backend": "bubblewrap",
        "workspaceAccess": "rw",
        "demanded": "L2",
        "level": None,
    }
    assert encode_sandboxes(config, no_report) == [row]
    report = SandboxReport("bubblewrap", "L0", problem="no bwrap", fix="install it")
    found = encode_sandboxes(config, lambda _backend: report)
    assert found == [{**row, "level": "L0", "problem": "no bwrap", "fix": "install it"}]


async def test_report_is_found_after_the_first_measure(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, backend=FakeSandbox("L0", "no bwrap", "install it"))
    settings = resolve_sandbox(harness.config, "main")
    assert harness.registry.find_report(settings) is None
    await harness.registry.report("bubblewrap")
    found = harness.registry.find_report(settings)
    assert found is not None
    assert (found.level, found.problem) == ("L0", "no bwrap")


def test_clients_see_that_an_agent_has_no_sandbox() -> None:
    assert encode_sandboxes(parse(), no_report) == [{"agentId": "main", "mode": "off"}]
