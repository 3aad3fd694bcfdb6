"""The conventions of this repository, held against every file of it."""

from collections.abc import Callable

import pytest

from tests.style import rules
from tests.style.rules import ROOT, SRC

Rule = Callable[[str, str], list[str]]

SOURCES = {str(p.relative_to(SRC)): p.read_text(encoding="utf-8") for p in rules.modules(SRC)}
TESTS = {
    str(p.relative_to(ROOT)): p.read_text(encoding="utf-8")
    for p in rules.modules(ROOT / "tests", ROOT / "bench", ROOT / "docs")
}
# These speak of what they look for.
ABOUT_RULES = {"tests/style/rules.py", "tests/style/test_rules.py", "tests/style/test_sources.py"}


def hold(rule: Rule, files: dict[str, str]) -> None:
    """Fail with every place that breaks the rule, one a line."""
    if found := [line for path, text in files.items() for line in rule(path, text)]:
        pytest.fail("\n".join([rule.__doc__ or rule.__name__, *found]), pytrace=False)


@pytest.mark.parametrize(
    "rule", [rules.catch_alls, rules.prints, rules.loose_tasks, rules.undocumented]
)
def test_source_follows_the_rule(rule: Rule) -> None:
    hold(rule, SOURCES)


@pytest.mark.parametrize("rule", [rules.unexplained, rules.empty_names, rules.loose_tasks])
def test_source_and_tests_follow_the_rule(rule: Rule) -> None:
    hold(rule, {p: s for p, s in (SOURCES | TESTS).items() if p not in ABOUT_RULES})


def test_test_names_have_three_words() -> None:
    hold(rules.terse_tests, TESTS)


def test_test_names_have_at_most_70_characters() -> None:
    hold(rules.long_test_names, TESTS)


def test_public_class_names_are_unique() -> None:
    assert not rules.repeated_classes(SOURCES)


def texts() -> dict[str, str]:
    """Every file of the repository that is text."""
    found = dict[str, str]()
    for path in rules.tracked():
        try:
            found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or a damaged sample
    return found


def test_files_name_no_single_machine() -> None:
    ours = {p: s for p, s in texts().items() if p not in ABOUT_RULES}
    # An attack names the paths it is after.
    hold(rules.local_facts, {p: s for p, s in ours.items() if "data/attacks/" not in p})


def test_lock_files_name_no_server() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        assert "://" not in lock.read_text(encoding="utf-8"), lock.name


def test_locked_packages_have_hashes() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
        pinned = [line for line in text.splitlines() if "==" in line]
        assert pinned
        assert not [line for line in pinned if "--hash=sha256:" not in line]
