"""Changed commands find no way around the question; ordinary ones are seldom asked about."""

import random

import pytest

from tests.fuzz.exec_corpus import find_asked, read_commands
from tests.fuzz.exec_fuzz import fuzz
from tests.fuzz.exec_mutations import MUTATIONS, mutate

SAMPLE = 5_000
MAX_ASKED = 0.10


@pytest.mark.slow
def test_changed_commands_of_a_fixed_sample_do_not_escape() -> None:
    report = fuzz(SAMPLE, seed=20_26)
    assert report.escapes == []
    assert report.tries == SAMPLE and report.understood > SAMPLE / 5
    assert report.allowed > 50 and report.compared > 50, "the oracles have work"


@pytest.mark.parametrize("change", MUTATIONS)
def test_mutation_changes_commands_and_depends_on_its_seed(change: object) -> None:
    assert callable(change)
    made = {change(random.Random(seed), "git diff -n 5 --stat a.txt") for seed in range(40)}
    assert len(made) > 3
    assert mutate(random.Random(7), "git diff") == mutate(random.Random(7), "git diff")


def test_ordinary_commands_are_seldom_asked_about() -> None:
    commands = read_commands()
    assert len(set(commands)) == len(commands) >= 200
    asked = find_asked()
    assert len(asked) / len(commands) <= MAX_ASKED, asked
