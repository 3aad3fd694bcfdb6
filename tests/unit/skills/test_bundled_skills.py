"""The skills that come with the program: their headers, their examples and their page."""

import os
import re
import shutil
from pathlib import Path

import pytest

from homarus.skills.catalog import BUNDLED_FOLDER
from homarus.skills.find import SkillRoot, find_skills
from homarus.skills.skill import Skill, SkillTier
from tests.skill_examples import Example, ExampleRunner, examples_of, new_env
from tests.style.rules import ROOT

FOUND = find_skills([SkillRoot(SkillTier.BUNDLED, BUNDLED_FOLDER)])
SKILLS = {skill.name: skill for skill in FOUND.skills}
PAGE = ROOT / "docs" / "bundled-skills.md"
MIN_SKILLS = 50  # docs/bundled-skills.md says why there are that many
MAX_DESCRIPTION_CHARS = 90  # a description is part of every request
MAX_LISTED_CHARS = 5_500  # names and descriptions of all of them
MAX_LINES = 100

# What every system has that Homarus runs on, and what the shell itself does.
BASE_PROGRAMS = frozenset(
    """
    awk base64 cat cd chmod cmp comm command cp cut df dirname du echo export find grep gzip head
    ls mkdir mv od printf python3 read rm sed sh sleep sort tail tar tee touch tr true uniq wc
    """.split()  # noqa: SIM905 - a list would have a line for each
)
# Shown, and installed with the system or not at all.
OPTIONAL_PROGRAMS = {"ssh": {"scp"}}
# Without an account; `sh account` blocks need a gate.
OPEN_HOSTS = ("api.open-meteo.com", "geocoding-api.open-meteo.com", "www.openstreetmap.org")
RESERVED = re.compile(r"(?:^|\.)(?:example|example\.org|localhost)$|^[\d.]+$")
# No other program is needed, and no server.
QUICK = ("checksums", "dates", "diff-and-patch", "disk-usage", "git")


def text_of(skill: Skill) -> str:
    return skill.file.read_text(encoding="utf-8")


def examples(skill: Skill) -> list[Example]:
    return examples_of(text_of(skill))


def declared_programs(skill: Skill) -> set[str]:
    """Return what the header requires, and what its installs bring."""
    requires = skill.metadata.requires
    required = {*requires.bins, *requires.any_bins} if requires else set[str]()
    return required.union(*(one.bins for one in skill.metadata.install))


every_skill = pytest.mark.parametrize("skill", [pytest.param(s, id=n) for n, s in SKILLS.items()])


def test_bundled_skills_all_load_without_problems() -> None:
    assert FOUND.problems == () and FOUND.overridden == ()
    assert sorted(SKILLS) == sorted(folder.name for folder in BUNDLED_FOLDER.iterdir())
    assert len(SKILLS) >= MIN_SKILLS


@every_skill
def test_bundled_skill_has_a_short_description(skill: Skill) -> None:
    assert skill.name == skill.folder.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", skill.name)
    assert 20 <= len(skill.description) <= MAX_DESCRIPTION_CHARS
    assert skill.description.endswith(".") and skill.metadata.emoji
    assert len(text_of(skill).splitlines()) <= MAX_LINES


@every_skill
def test_bundled_skill_declares_every_program_it_runs(skill: Skill) -> None:
    called = set[str]().union(*(example.programs() for example in examples(skill)))
    known = declared_programs(skill) | BASE_PROGRAMS | OPTIONAL_PROGRAMS.get(skill.name, set())
    assert called - known == set()
    requires = skill.metadata.requires
    assert requires is not None
    assert set(requires.bins) <= called
    assert not requires.any_bins or called.intersection(requires.any_bins)


@every_skill
def test_bundled_skill_installs_have_ids_labels_and_programs(skill: Skill) -> None:
    installs = skill.metadata.install
    assert len({one.id for one in installs}) == len(installs)
    for one in installs:
        assert one.id and one.bins and one.label.endswith(f"({one.kind})")
        assert one.formula if one.kind == "brew" else one.package
        assert one.os == (("linux",) if one.kind == "apt" else ())


@every_skill
def test_bundled_skill_shows_what_its_commands_print(skill: Skill) -> None:
    kinds = {example.kind for example in examples(skill)}
    assert kinds <= {"", "setup", "account", "not-run"}
    assert any(example.runs and example.expected() for example in examples(skill))
    unused = [example for example in examples(skill) if not example.runs and example.expected()]
    assert unused == []


@every_skill
def test_bundled_skill_needs_no_account_without_a_gate(skill: Skill) -> None:
    scripts = "\n".join(example.script for example in examples(skill))
    hosts = set(re.findall(r"https?://([\w.-]+)", scripts))
    unknown = {host for host in hosts if not RESERVED.search(host) and host not in OPEN_HOSTS}
    assert unknown == set()
    if any(example.kind == "account" for example in examples(skill)):
        requires = skill.metadata.requires
        assert requires and (skill.metadata.primary_env or requires.env or requires.config)


def test_bundled_skills_mostly_run_in_tests() -> None:
    blocks = [example for skill in SKILLS.values() for example in examples(skill)]
    shown_only = [example for example in blocks if example.kind == "not-run"]
    assert len(shown_only) * 10 <= len(blocks)


def test_bundled_skills_cost_little_in_a_listing() -> None:
    assert sum(len(s.name) + len(s.description) for s in SKILLS.values()) <= MAX_LISTED_CHARS


@pytest.mark.parametrize("name", QUICK)
def test_bundled_skill_examples_run_as_shown(name: str, tmp_path: Path) -> None:
    skill = SKILLS[name]
    requires = skill.metadata.requires
    missing = [b for b in (requires.bins if requires else ()) if not shutil.which(b)]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed here; the peers tier installs it")
    with ExampleRunner(tmp_path / "work", new_env(tmp_path / "home")) as runner:
        for example in examples(skill):
            if example.runs:
                runner.check(example)


# The examples' own rules


def test_example_output_out_of_order_is_reported() -> None:
    example = Example("", "echo one  # → one\necho two three\n# → two…\n")
    assert example.missing_line("one\ntwo three\n") is None
    assert example.missing_line("two three\none\n") == "two…"
    assert example.missing_line("one\n") == "two…"


def test_example_with_wrong_output_or_status_fails(tmp_path: Path) -> None:
    with ExampleRunner(tmp_path / "work", new_env(tmp_path / "home")) as runner:
        runner.check(Example("", "echo 42  # → 42\n"))
        with pytest.raises(AssertionError, match="not in the output"):
            runner.check(Example("", "echo 42  # → 43\n"))
        with pytest.raises(AssertionError, match="status 1"):
            runner.check(Example("", "false\necho 42  # → 42\n"))


def test_example_programs_are_the_words_in_command_places() -> None:
    script = (
        "cat > f <<'END'\nrm -rf x\nEND\n"
        "a=1 jq '. | foo' f | sort && { echo \"$(wc -l < f)\"; } > out  # git\n"
        'for p in x y; do mlr "$p" 2>&1; done < f\nuntil dig a; do sleep 1; done\n'
    )
    assert Example("", script).programs() == {
        "cat", "jq", "sort", "echo", "wc", "mlr", "dig", "sleep",
    }  # fmt: skip


# The page


def test_bundled_skills_page_lists_all_of_them() -> None:
    """Compare the table of the page; `GOLDEN=1` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- table -->\n")
    _, _, tail = rest.partition("<!-- end of the table -->")
    expected = f"{head}<!-- table -->\n{_table()}<!-- end of the table -->{tail}"
    if os.environ.get("GOLDEN"):
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected
    assert f"**{len(SKILLS)} skills**" in text


def _table() -> str:
    rows = "".join(
        f"| `{skill.name}` | {skill.description} | {_gate(skill)} |\n" for skill in SKILLS.values()
    )
    return f"\n| skill | for | offered if there is |\n|---|---|---|\n{rows}\n"


def _gate(skill: Skill) -> str:
    requires = skill.metadata.requires
    assert requires is not None
    parts = [f"`{name}`" for name in requires.bins]
    if requires.any_bins:
        parts.append(" or ".join(f"`{name}`" for name in requires.any_bins))
    parts += ["Linux" for name in skill.metadata.os if name == "linux"]
    if skill.metadata.primary_env:
        parts.append(f"an account (`{skill.metadata.primary_env}`, or its own login)")
    return ", ".join(parts)
