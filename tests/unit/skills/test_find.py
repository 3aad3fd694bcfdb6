"""Skills are found in folders; what is not usable is named, and the rest loads."""

import os
from pathlib import Path

import pytest

from homarus.config.skills_schema import SkillLimitsConfig
from homarus.core.message import Json
from homarus.skills import find
from homarus.skills.find import SkillFileCache, SkillRoot, find_skills
from homarus.skills.folder_search import FoundFile, load_frontmatter
from homarus.skills.skill import SkillTier
from tests.unit.skills.builders import write_skill

GOOD = "name: good\ndescription: It works.\n"
BOMB = "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)


def root(folder: Path, tier: SkillTier = SkillTier.MANAGED) -> SkillRoot:
    return SkillRoot(tier, folder)


def names(folder: Path) -> list[str]:
    return [skill.name for skill in find_skills([root(folder)]).skills]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (f"---\ndescription: {'x' * 70_000}\n---\n".encode(), "more than 65536 characters"),
        (b"---\n" + b"x" * 300_000, "it has 300004 bytes; at most 256000"),
        (f"---\n{GOOD}a: {'[' * 200}{']' * 200}\n---\n".encode(), "more than 20 levels deep"),
        (f"---\n{GOOD}a: {'[' * 60_000}\n---\n".encode(), "more than 20 levels deep"),
        (b"---\n" + GOOD.encode() + b"".join(b" " * n + b"k:\n" for n in range(300)) + b"---\n",
         "line 24 is nested more than 20 levels deep"),
        (f"---\n{GOOD}a: &a [x, x, x, x, x, x, x, x, x]\n{BOMB}---\n".encode(),
         "more than 5000 values"),
        (f"---\n{GOOD}a: &a [*a]\n---\n".encode(), "line 4 refers to what is not there: *a"),
        (f"---\n{GOOD}a: *b\n---\n".encode(), "line 4 refers to what is not there"),
        (f"---\n{GOOD}a: {{{'k: 1, ' * 3}}}\n---\n".encode(), "has the key k a second time"),
        (f"---\n{GOOD}name: other\n---\n".encode(), "line 4 has the key name a second time"),
        (b"---\nname: [a, b]\ndescription: x\n---\n", "its name is not text"),
        (b"---\nname: a\ndescription: {b: c}\n---\n", "its description is not text"),
        (b"---\nname: a\n---\n", "it has no description"),
        *(
            (f"---\n{GOOD}metadata: {value}\n---\n".encode(), reason)
            for value, reason in (
                ("[a]", "its metadata is not a mapping"),
                ("'{broken'", "its metadata is not JSON"),
                ("{openclaw: {requires: [gh]}}", "its requires is not a mapping"),
                ("{openclaw: {requires: {bins: {gh: 1}}}}", "its bins is not a list"),
                ("{openclaw: {requires: {env: 3}}}", "its env is not a list"),
                ("{openclaw: {os: {linux: 1}}}", "its os is not a list"),
                ("{openclaw: {always: [true]}}", "its always is not true or false"),
                ("{openclaw: {install: {kind: brew}}}", "its install is not a list"),
                ("{openclaw: {skillKey: [k]}}", "its skillKey is not text"),
            )
        ),
        (f"---\n{GOOD}disable-model-invocation: [yes]\n---\n".encode(), "not true or false"),
        (b"---\nname: a\ndescription:\n---\n", "it has no description"),
        (b"---\n- a\n- b\n---\n", "not a list of keys and values"),
        (b"---\njust text\n---\n", "not a list of keys and values"),
        (b"---\nname: a\ndescription: x\n\tb: c\n---\n", "line 4 is not YAML"),
        (b"---\nname: a\ndescription: caf\xe9\n---\n", "its frontmatter is not UTF-8"),
        ("---\nname: a\ndescription: x\n---\n".encode("utf-16"), "it has no description"),
        (b"---\nname: a\ndescription: !!python/object/apply:os.system [ls]\n---\n", "has a tag"),
        (b"---\nname: !custom a\ndescription: x\n---\n", "has a tag"),
        (b"---\nname: a\ndescription: x\n? [k]\n: v\n---\n", "a key that is not text"),
        (b"---\nname: a\ndescription: x\n--- {b: 1}\n---\n", "more than one document"),
        (b"---\nname: '../../etc'\ndescription: x\n---\n", "is not one of 1 to 64"),
        (f"---\nname: {'n' * 65}\ndescription: x\n---\n".encode(), "is not one of 1 to 64"),
        (b'---\nname: "a\\u202eb"\ndescription: x\n---\n', "is not one of 1 to 64"),
        (b'---\nname: a\ndescription: "\\ud800"\n---\n', "not"),
        (b"---\nname: a\ndescription: x\x00y\n---\n", "not YAML"),
        (b"---\nname: a\ndescription: never ends\n", "it has no description"),
        (b"no frontmatter", "it has no description"),
        (b"", "it has no description"),
    ],
)  # fmt: skip
def test_malicious_frontmatter_is_named_and_the_rest_loads(
    data: bytes, reason: str, tmp_path: Path
) -> None:
    bad = write_skill(tmp_path, "bad")
    bad.write_bytes(data)
    write_skill(tmp_path, "good", GOOD)
    found = find_skills([root(tmp_path)])
    assert [skill.name for skill in found.skills] == ["good"]
    [problem] = found.problems
    assert problem.path == bad and reason in problem.message, problem
    assert "\n" not in problem.message and len(problem.message) < 300


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_skill_with_bom_and_crlf_is_read(before: bytes, end: bytes, tmp_path: Path) -> None:
    write_skill(tmp_path, "a").write_bytes(
        before + end.join([b"---", b"name: a", b"description: caf\xc3\xa9", b"---  ", b"\xff body"])
    )
    [skill] = find_skills([root(tmp_path)]).skills
    assert (skill.name, skill.description) == ("a", "café")


def test_skill_of_later_root_overrides_the_same_name(tmp_path: Path) -> None:
    for tier in SkillTier:
        write_skill(tmp_path / tier.value, "same")
        write_skill(tmp_path / tier.value, f"only-{tier.value}")
    roots = [root(tmp_path / tier.value, tier) for tier in SkillTier]
    found = find_skills(roots)
    assert [skill.tier for skill in found.skills if skill.name == "same"] == [SkillTier.WORKSPACE]
    assert [skill.tier for skill in found.overridden] == list(SkillTier)[:-1]
    assert len(found.skills) == 1 + len(SkillTier)


def test_skills_are_found_in_groups_of_one_level(tmp_path: Path) -> None:
    write_skill(tmp_path, "plain")
    write_skill(tmp_path / "group", "inner")
    write_skill(tmp_path / "group" / "deeper", "hidden")
    write_skill(tmp_path / "plain", "reference")  # inside of a skill: part of it
    write_skill(tmp_path, ".git")
    write_skill(tmp_path / "node_modules", "package")
    assert names(tmp_path) == ["inner", "plain"]


def test_root_that_is_a_skill_is_one(tmp_path: Path) -> None:
    write_skill(tmp_path, "one")
    write_skill(tmp_path / "one", "two")
    assert names(tmp_path / "one") == ["one"]


def test_skill_without_name_has_its_folders(tmp_path: Path) -> None:
    write_skill(tmp_path, "folder", "description: x\n")
    assert names(tmp_path) == ["folder"]


def test_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    secret = write_skill(outside, "secret")
    write_skill(inside, "good")
    (inside / "folder").symlink_to(outside / "secret")
    (inside / "file").mkdir()
    (inside / "file" / "SKILL.md").symlink_to(secret)
    (inside / "group").mkdir()
    (inside / "group" / "deep").symlink_to(outside / "secret")
    (inside / "up").symlink_to(tmp_path)
    found = find_skills([root(inside)])
    assert [skill.name for skill in found.skills] == ["good"]
    assert {problem.path.relative_to(inside).as_posix() for problem in found.problems} == {
        "folder", "file/SKILL.md", "group/deep", "up",
    }  # fmt: skip
    assert all("leads out of" in problem.message for problem in found.problems)
    assert all("skills.load.extraDirs" in problem.fix for problem in found.problems)


def test_file_that_is_replaced_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, file = write_skill(tmp_path / "outside", "secret"), write_skill(tmp_path / "in", "a")
    real = os.path.realpath
    monkeypatch.setattr(
        "os.path.realpath", lambda path: real(secret) if path == str(file) else real(path)
    )
    found = find_skills([root(tmp_path / "in")])
    assert found.skills == () and "replaced" in found.problems[0].message


def test_root_of_two_tiers_overrides_nothing(tmp_path: Path) -> None:
    write_skill(tmp_path, "a")
    tiers = (SkillTier.PERSONAL, SkillTier.PROJECT)
    found = find_skills([root(tmp_path, tier) for tier in tiers])
    assert [skill.tier for skill in found.skills] == [SkillTier.PROJECT]
    assert found.overridden == ()


def test_link_inside_of_the_root_is_followed(tmp_path: Path) -> None:
    write_skill(tmp_path / "root" / "store", "real", "name: linked\ndescription: x\n")
    (tmp_path / "root" / "alias").symlink_to("store/real")
    (tmp_path / "root" / "broken").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("root")
    found = find_skills([root(tmp_path / "link")])
    assert [skill.name for skill in found.skills] == ["linked"]
    assert found.problems == ()


def test_special_files_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "SKILL.md")
    (tmp_path / "folder" / "SKILL.md").mkdir(parents=True)
    found = find_skills([root(tmp_path)])
    assert found.skills == ()
    assert {problem.message for problem in found.problems} == {"it is not a file"}


def test_missing_folder_is_named_only_when_the_config_names_it(tmp_path: Path) -> None:
    roots = [root(tmp_path / tier.value, tier) for tier in SkillTier]
    [problem] = find_skills(roots).problems
    assert problem.tier is SkillTier.EXTRA and "no such folder" in problem.message


def test_candidates_over_the_limit_are_not_looked_at(tmp_path: Path) -> None:
    for at in range(12):
        write_skill(tmp_path / f"group{at % 2}", f"s{at:02}")
    limits = SkillLimitsConfig.model_construct(max_candidates_per_root=5)
    found = find_skills([root(tmp_path)], limits)
    assert len(found.skills) == 4  # the fifth candidate is the folder of the group
    [problem] = found.problems
    assert "more than 5 folders" in problem.message and "maxCandidatesPerRoot" in problem.fix


def test_skills_over_the_limit_of_a_source_are_left_out(tmp_path: Path) -> None:
    for at in range(5):
        write_skill(tmp_path, f"s{at}")
    found = find_skills(
        [root(tmp_path)], SkillLimitsConfig.model_construct(max_skills_loaded_per_source=3)
    )
    assert [skill.name for skill in found.skills] == ["s0", "s1", "s2"]
    [problem] = found.problems
    assert "at most 3" in problem.message and "maxSkillsLoadedPerSource" in problem.fix


def test_exactly_the_limit_is_no_problem(tmp_path: Path) -> None:
    for at in range(3):
        write_skill(tmp_path, f"s{at}")
    limits = SkillLimitsConfig.model_construct(
        max_skills_loaded_per_source=3, max_candidates_per_root=3
    )
    found = find_skills([root(tmp_path)], limits)
    assert len(found.skills) == 3 and found.problems == ()


def test_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = load_frontmatter

    def record(file: FoundFile, max_bytes: int) -> dict[str, Json]:
        read.append(file.path)
        return original(file, max_bytes)

    monkeypatch.setattr(find, "load_frontmatter", record)
    file, cache = write_skill(tmp_path, "a"), SkillFileCache()
    write_skill(tmp_path, "broken", "name: [x]\n")
    for _ in range(3):
        assert len(find_skills([root(tmp_path)], cache=cache).problems) == 1
    assert len(read) == 2
    write_skill(tmp_path, "a", "name: b\ndescription: Now another text.\n")
    assert [skill.name for skill in find_skills([root(tmp_path)], cache=cache).skills] == ["b"]
    assert read.count(str(file)) == 2
