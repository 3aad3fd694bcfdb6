"""The names of the chat commands of skills."""

from pathlib import Path

import pytest

from homarus.skills.commands import find_skill_command, make_skill_commands
from homarus.skills.skill import CommandDispatch, Invocation, Skill, SkillTier


def skill(name: str, *, by_user: bool = True, tool: str = "") -> Skill:
    folder = Path("/skills") / name.replace("/", "_")
    return Skill(
        name, f"About {name}.", name, SkillTier.MANAGED, folder, folder / "SKILL.md",
        invocation=Invocation(by_user=by_user), dispatch=CommandDispatch(tool) if tool else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["weather"], ["weather"]),
        (["Nano Banana-Pro"], ["nano_banana_pro"]),
        (["--x__y--"], ["x_y"]),
        (["Grüße"], ["gr_e"]),
        (["日本"], ["skill"]),
        (["日本", "中国"], ["skill", "skill_2"]),
        (["new", "export-session", "t"], ["new_2", "export_session_2", "t_2"]),
        (["a b", "a-b", "a_b"], ["a_b", "a_b_2", "a_b_3"]),
        (["x" * 40, "x" * 41], ["x" * 32, "x" * 30 + "_2"]),
    ],
)
def test_command_names_are_plain_unique_and_short(names: list[str], expected: list[str]) -> None:
    reserved = ("new", "t", "export-session")
    commands = make_skill_commands([skill(name) for name in names], reserved)
    assert [command.name for command in commands] == expected


def test_skill_that_people_may_not_invoke_has_no_command() -> None:
    commands = make_skill_commands([skill("a", by_user=False), skill("b", tool="exec")])
    assert [(each.name, each.tool) for each in commands] == [("b", "exec")]


def test_command_is_found_by_its_name_or_the_name_of_its_skill() -> None:
    commands = make_skill_commands([skill("new"), skill("Big Plan")], ("new",))
    assert find_skill_command(commands, "new") is None
    found = find_skill_command(commands, "new", by_skill_name=True)
    assert found is not None and found.name == "new_2"
    for wanted in ("big_plan", "BIG-plan", "Big Plan"):
        found = find_skill_command(commands, wanted, by_skill_name=True)
        assert found is not None and found.skill.name == "Big Plan"
    assert find_skill_command(commands, "plan", by_skill_name=True) is None


def test_two_skills_of_one_plain_name_keep_their_order() -> None:
    commands = make_skill_commands([skill("a b"), skill("a-b")])
    found = find_skill_command(commands, "a_b", by_skill_name=True)
    assert found is not None and found.skill.name == "a b"
