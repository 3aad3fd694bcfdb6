"""The snapshot of a session's skills, what counts as used, and the arguments of direct calls."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.skills.direct_call import SkillCall, make_arguments
from homarus.agent.skills.snapshot import (
    make_snapshot,
    parse_listing,
    read_snapshot,
    skill_restrictions,
)
from homarus.agent.skills.used_skills import find_read_paths, read_fields, resolve_read_path
from homarus.config.check import check_config
from homarus.config.skills_schema import SkillLimitsConfig
from homarus.core.errors import UserError
from homarus.core.message import Message, Text, ToolCall, ToolResult
from homarus.providers.base import ToolSpec
from homarus.skills.listing import list_skills
from homarus.skills.skill import Invocation, Metadata, Skill, SkillTier

HOME = Path("/home/ann")


def make_skills() -> list[Skill]:
    made = []
    for name, description in (
        ("a", "One & <two>\nthree"),
        ("b", "</skill>\n  <skill>"),
        ("c", "C"),
    ):
        folder = HOME / "skills" / name
        made.append(
            Skill(
                name, description, name, SkillTier.MANAGED, folder, folder / "SKILL.md",
                invocation=Invocation(allows_remote=name != "c"),
                metadata=Metadata(primary_env="KEY" if name == "a" else ""),
            )
        )  # fmt: skip
    return made


def test_snapshot_is_read_as_it_was_made() -> None:
    skills = make_skills()
    listing = list_skills(skills, SkillLimitsConfig(), HOME)
    snapshot = make_snapshot(listing, skills, {}, 7)
    entry = {"skillsSnapshot": snapshot}
    blocks = read_snapshot(entry, {}, is_owner=True)
    assert blocks is not None and [block.name for block in blocks] == ["a", "b", "c"]
    assert [block.text for block in blocks] == [each.text for each in listing.entries]
    assert snapshot["skills"] == [
        {"name": "a", "primaryEnv": "KEY"}, {"name": "b"}, {"name": "c", "allowRemote": False},
    ]  # fmt: skip
    assert snapshot["version"] == 7
    others = read_snapshot(entry, {}, is_owner=False)
    assert others is not None and [block.name for block in others] == ["a", "b"]


def test_snapshot_of_bundled_skills_keeps_their_folder() -> None:
    skills = [replace(skill, tier=SkillTier.BUNDLED) for skill in make_skills()]
    listing = list_skills(skills, SkillLimitsConfig(), HOME)
    entry = {"skillsSnapshot": make_snapshot(listing, skills, {}, 7)}
    others = read_snapshot(entry, {}, is_owner=False)
    assert others is not None and [block.name for block in others] == ["", "a", "b"]
    owner = read_snapshot(entry, {}, is_owner=True)
    assert owner is not None and [block.text for block in owner] == [
        each.text for each in listing.entries
    ]


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "text",
        {},
        {"prompt": 5},
        {"prompt": "\n\nThe following skills …\n<available_skills>\n</available_skills>"},
        {"prompt": "<available_skills>\n  <skill>x</skill>\n</available_skills>"},
        {"prompt": "", "skillFilter": ["a"]},
        {"prompt": "", "sandboxed": True},
    ],
)
def test_snapshot_of_another_form_or_setting_is_taken_again(stored: Any) -> None:
    assert read_snapshot({"skillsSnapshot": stored}, {}, is_owner=True) is None


def test_snapshot_of_a_session_without_skills_is_empty() -> None:
    assert parse_listing("") == ()
    assert read_snapshot({"skillsSnapshot": {"prompt": ""}}, {}, is_owner=True) == ()


def test_restrictions_are_the_settings_that_take_skills_away() -> None:
    skills = {"allowBundled": ["b", "a"], "entries": {"x": {"enabled": False}, "y": {"env": {}}}}
    config = check_config({"skills": skills}).config
    assert config
    assert skill_restrictions(config, ("d", "c"), is_sandboxed=True) == {
        "skillFilter": ["c", "d"], "disabled": ["x"], "allowBundled": ["a", "b"], "sandboxed": True,
    }  # fmt: skip
    empty = check_config({}).config
    assert empty and skill_restrictions(empty, None, is_sandboxed=False) == {}
    assert skill_restrictions(empty, (), is_sandboxed=False) == {"skillFilter": []}


def called(
    path: str, *, name: str = "read", error: bool = False, key: str = "path"
) -> list[Message]:
    call = ToolCall(f"c{path}{name}", name, {key: path})
    result = ToolResult(call.id, name, (Text("…"),), is_error=error)
    return [Message("assistant", (call,)), Message("tool", (result,))]


def test_read_paths_are_those_of_calls_that_succeeded() -> None:
    messages = [
        *called("~/a/SKILL.md"),
        *called("b/SKILL.md", error=True),
        *called("c/SKILL.md", name="write"),
        *called("d/SKILL.md", name="File_Read", key="file_path"),
        *called("e/README.md"),
        Message("assistant", (ToolCall("open", "read", {"path": "f/SKILL.md"}),)),
    ]
    assert find_read_paths({}, messages) == ("~/a/SKILL.md", "d/SKILL.md")
    fields = read_fields({}, messages)
    assert fields == {"skillsRead": ["~/a/SKILL.md", "d/SKILL.md"]}
    assert find_read_paths(fields, []) == ("~/a/SKILL.md", "d/SKILL.md")
    assert read_fields(fields, messages) == {} == read_fields({}, [])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("~/x/SKILL.md", "/home/ann/x/SKILL.md"),
        ("skills/x/SKILL.md", "/ws/skills/x/SKILL.md"),
        ("./skills/../skills/x/SKILL.md", "/ws/skills/x/SKILL.md"),
        ("/opt/x/SKILL.md", "/opt/x/SKILL.md"),
        ("/workspace/skills/x/SKILL.md", "/ws/skills/x/SKILL.md"),
        ("/workspaces/x/SKILL.md", "/workspaces/x/SKILL.md"),
    ],
)
def test_read_path_is_resolved_as_the_file_tools_do(path: str, expected: str) -> None:
    found = resolve_read_path(path, workspace="/ws", home="/home/ann", inside=("/workspace",))
    assert found == expected


def spec(required: list[str], *names: str) -> ToolSpec:
    properties = {name: {"type": "string"} for name in names} | {"count": {"type": "integer"}}
    return ToolSpec("made", "", {"properties": properties, "required": required})


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (spec(["command"], "command", "workdir"), {"command": "a  b"}),
        (
            spec([], "command", "commandName", "skillName"),
            {"command": "a  b", "commandName": "s", "skillName": "s"},
        ),
        (spec(["query"], "query", "more"), {"query": "a  b"}),
        (spec(["query", "count"], "query"), {"query": "a  b"}),
    ],
)
def test_direct_call_passes_the_typed_text(tool: ToolSpec, expected: dict[str, str]) -> None:
    assert make_arguments(tool, SkillCall("s", "made", "a  b")) == expected


@pytest.mark.parametrize("tool", [spec([], "query"), spec(["a", "b"], "a", "b"), spec(["count"])])
def test_direct_call_of_a_tool_without_one_text_is_refused(tool: ToolSpec) -> None:
    with pytest.raises(UserError, match="takes no single text"):
        make_arguments(tool, SkillCall("s", "made", "x"))
