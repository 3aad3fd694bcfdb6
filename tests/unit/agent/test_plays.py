"""The golden scenarios of the reply builder."""

from pathlib import Path

import pytest

from tests.unit.agent.scenarios import play, plays, read, write


@pytest.mark.parametrize("path", plays(), ids=lambda path: path.stem)
def test_builder_golden_scenario_gives_stored_output(path: Path) -> None:
    case = read(path)
    assert play(case)["run"] == case["run"], case["about"]


@pytest.mark.parametrize("path", plays(), ids=lambda path: path.stem)
def test_golden_scenario_file_is_in_canonical_form(path: Path) -> None:
    assert write(read(path)) == path.read_text(encoding="utf-8")


def test_golden_scenarios_exist() -> None:
    assert len(plays()) > 25
