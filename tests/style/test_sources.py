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


FOR_SOURCE: tuple[Rule, ...] = (rules.catch_alls, rules.prints, rules.undocumented)
FOR_ALL: tuple[Rule, ...] = (rules.unexplained, rules.empty_names, rules.loose_tasks)
FOR_TESTS: tuple[Rule, ...] = (rules.terse_tests, rules.long_test_names)


def hold(files: dict[str, str], *checked: Rule) -> None:
    """Fail with every place that breaks a rule, one a line."""
    found = [
        f"{rule.__doc__ or rule.__name__} {line}"
        for path, text in files.items()
        for rule in checked  # every rule for a file at once: it is parsed once
        for line in rule(path, text)
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_source_follows_the_rules() -> None:
    hold(SOURCES, *FOR_SOURCE, *FOR_ALL)


def test_tests_follow_the_rules() -> None:
    about_rules = {path: text for path, text in TESTS.items() if path in ABOUT_RULES}
    hold(about_rules, *FOR_TESTS)
    hold({p: s for p, s in TESTS.items() if p not in ABOUT_RULES}, *FOR_ALL, *FOR_TESTS)


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
    hold({p: s for p, s in ours.items() if "data/attacks/" not in p}, rules.local_facts)


def test_lock_files_name_no_server() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        assert "://" not in lock.read_text(encoding="utf-8"), lock.name


def test_locked_packages_have_hashes() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
        pinned = [line for line in text.splitlines() if "==" in line]
        assert pinned
        assert not [line for line in pinned if "--hash=sha256:" not in line]
