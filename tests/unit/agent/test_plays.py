"""The golden scenarios of the reply builder."""

from pathlib import Path

import pytest

from tests.unit.agent.scenarios import format_scenario, load_scenario, run_scenario, scenario_paths


@pytest.mark.parametrize("path", scenario_paths(), ids=lambda path: path.stem)
def test_builder_golden_scenario_gives_stored_output(path: Path) -> None:
    case = load_scenario(path)
    assert run_scenario(case)["run"] == case["run"], case["about"]


@pytest.mark.parametrize("path", scenario_paths(), ids=lambda path: path.stem)
def test_golden_scenario_file_is_in_canonical_form(path: Path) -> None:
    assert format_scenario(load_scenario(path)) == path.read_text(encoding="utf-8")


def test_golden_scenarios_exist() -> None:
    assert len(scenario_paths()) > 25
