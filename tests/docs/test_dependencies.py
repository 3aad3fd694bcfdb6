"""Check that docs/dependencies.md lists every dependency."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")


def names(requirements: list[str]) -> set[str]:
    """Return the names of packages as package indexes normalise them."""
    found = [re.match(r"[\w.-]+", each) for each in requirements]
    return {one[0].replace(".", "-") for one in found if one}


def listed(heading: str) -> set[str]:
    """Return the packages in the first column of the table under a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")][2:]
    return names([name.strip() for row in rows for name in row.split(",")])


def test_dependencies_page_lists_runtime_packages_with_reason() -> None:
    assert listed("To run") == names(PROJECT["project"]["dependencies"])


def test_dependencies_page_lists_packages_of_extras() -> None:
    for extra, requirements in PROJECT["project"]["optional-dependencies"].items():
        assert listed(f"Extra `{extra}`") == names(requirements)


def test_dependencies_page_lists_development_packages() -> None:
    assert listed("To build and test") == names(PROJECT["dependency-groups"]["dev"])


def test_runtime_packages_are_locked() -> None:
    locked = names((ROOT / "requirements" / "run.lock").read_text(encoding="utf-8").splitlines())
    assert names(PROJECT["project"]["dependencies"]) <= locked
