"""Every sandbox backend holds against every escape probe on a machine that lets it."""

import os
import sys
from pathlib import Path

import pytest

from homarus.tools.sandbox.cgroups import find_parents
from homarus.tools.sandbox.probe_list import PROBES
from tests.contract.sandboxes import SandboxStage, open_stage, sandbox_params

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux"),
    pytest.mark.slow,
]


@pytest.fixture(params=sandbox_params())
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> SandboxStage:
    return open_stage(request.param, tmp_path, tmp_path_factory.getbasetemp())


async def test_backend_holds_against_every_escape_probe(stage: SandboxStage) -> None:
    report = await stage.backend.measure(stage.options)
    assert [each.name for each in report.probes] == list(PROBES), report.problem
    failed = {each.name: each.detail for each in report.probes if not each.has_held}
    # Without cgroups, which an ordinary user may lack, limits hold for single processes only.
    has_cgroups = bool(find_parents().memory) or os.geteuid() == 0
    assert failed.keys() <= (set() if has_cgroups else {"memory-bomb-tree", "fork-bomb"}), failed
    assert report.level == ("L2" if failed else "L3")
