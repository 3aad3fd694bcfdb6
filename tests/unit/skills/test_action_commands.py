"""Actions that run a command: real programs, arguments that are no options, keys, and pins."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.prompt.chat_context import resolve_chat_context
from homarus.channels.registry import find_traits
from homarus.config.schema import Config
from homarus.core.errors import ToolError
from homarus.core.message import Address
from homarus.policy.tool_call import TaintSource
from homarus.policy.tool_policy import PolicyRules, ToolRules
from homarus.skills.actions.action_reader import read_actions
from homarus.skills.actions.command_line import make_argv
from homarus.skills.actions.definition import CommandAction, make_action_name
from homarus.skills.skill import SkillTier
from tests.unit.skills.action_builders import ActionCaller, command, http, schema, write_skill

pytestmark = pytest.mark.timeout(60)
SHOW = "import sys, os; print(sys.argv[1:], sys.stdin.read(), os.environ.get('TEST_KEY'))"


@pytest.fixture
def caller(tmp_path: Path) -> ActionCaller:
    return ActionCaller(tmp_path, env={"TEST_KEY": "k-topsecret-0123456789"})


def argv_of(action: dict[str, Any], args: dict[str, Any]) -> tuple[str, ...]:
    found = read_actions(json.dumps({"actions": [action]}).encode())
    assert found.problems == ()
    does = found.actions[0].does
    assert isinstance(does, CommandAction)
    return make_argv(does, args, Path("/skills/x"))


async def test_command_gets_each_value_as_one_argument(caller: ActionCaller) -> None:
    action = command(
        sys.executable, "-c", SHOW, "{a}", ["--limit", "{limit}"], "--tag={tag}", "{files}",
        parameters=schema("a", limit={"type": "integer"}, tag={"type": "string"},
                          files={"type": "array"}),
        stdin="{a}!",
    )  # fmt: skip
    args = {"a": "x; touch y $(id) `id` 'q' \"r\" *", "tag": "-t", "files": ["1 2", "3"]}
    result = await caller.call(write_skill(caller.home, [action]), "do", args)
    assert not result.is_error, result.text
    assert str([args["a"], "--tag=-t", "1 2", "3"]) in result.text
    assert f"{args['a']}! None" in result.text
    assert list(caller.workspace.iterdir()) == []


async def test_command_of_jq_filters_its_input(caller: ActionCaller) -> None:
    parameters = schema("filter", "json")
    action = command("jq", "-c", "{filter}", parameters=parameters, stdin="{json}")
    skill = write_skill(caller.home, [action])
    result = await caller.call(skill, "do", {"filter": ".a[0]", "json": '{"a":[{"b":1}]}'})
    assert '{"b":1}' in result.text and "EXTERNAL_UNTRUSTED_CONTENT" in result.text


@pytest.mark.parametrize("value", ["-rf", "--output=/etc/x", "-", "--"])
def test_argument_that_would_be_an_option_is_refused(value: str) -> None:
    action = command("rm", "{a}", parameters=schema("a"))
    with pytest.raises(ToolError, match="would be an option"):
        argv_of(action, {"a": value})
    listed = command("rm", "{a}", parameters=schema(a={"type": "array"}))
    with pytest.raises(ToolError, match="would be an option"):
        argv_of(listed, {"a": ["x", value]})
    grouped = command("rm", ["{a}", "x"], parameters=schema("a"))
    with pytest.raises(ToolError, match="would be an option"):
        argv_of(grouped, {"a": value})
    after = command("rm", "--", "{a}", parameters=schema("a"))
    assert argv_of(after, {"a": value}) == ("rm", "--", value)
    inside = command("rm", ["--", "{a}"], parameters=schema("a"))
    assert argv_of(inside, {"a": value}) == ("rm", "--", value)


@pytest.mark.parametrize("value", ["a\0b", "\x1b[31m", "a\rb", "\ud800", "\x9b"])
def test_argument_with_a_control_character_is_refused(value: str) -> None:
    with pytest.raises(ToolError, match="control character"):
        argv_of(command("rm", "--", "{a}", parameters=schema("a")), {"a": value})


def test_argument_that_is_missing_leaves_its_item_out() -> None:
    action = command("x", ["-n", "{n}"], "{m}", "{baseDir}/y", "z",
                     parameters=schema(n={"type": "integer"}, m={"type": "string"}))  # fmt: skip
    assert argv_of(action, {}) == ("x", "/skills/x/y", "z")
    assert argv_of(action, {"n": 3}) == ("x", "-n", "3", "/skills/x/y", "z")


async def test_argument_with_a_line_break_is_passed_whole(caller: ActionCaller) -> None:
    action = command(sys.executable, "-c", SHOW, "{a}", parameters=schema("a"))
    skill = write_skill(caller.home, [action])
    result = await caller.call(skill, "do", {"a": "one\n'; touch y; '"})
    assert str(["one\n'; touch y; '"]) in result.text
    assert list(caller.workspace.iterdir()) == []


async def test_key_is_in_the_environment_of_the_command_alone(caller: ActionCaller) -> None:
    action = command(sys.executable, "-c", SHOW, env=["TEST_KEY"])
    skill = write_skill(caller.home, [action], metadata={"primaryEnv": "TEST_KEY"})
    result = await caller.call(skill, "do", {})
    assert "***" in result.text and "topsecret" not in str(result)
    assert "TEST_KEY=(the skill's key)" in caller.questions[0].detail
    assert "topsecret" not in str(caller.questions)


async def test_command_runs_a_script_of_the_skill(caller: ActionCaller) -> None:
    action = command("python3", "{baseDir}/hello.py", "{who}", parameters=schema("who"))
    skill = write_skill(caller.home / "skills", [action])
    (skill.folder / "hello.py").write_text("import sys; print('moin', sys.argv[1])")
    result = await caller.call(skill, "do", {"who": "Ann"})
    assert "moin Ann" in result.text


async def test_command_that_takes_too_long_is_ended(caller: ActionCaller) -> None:
    action = command(sys.executable, "-c", "import time; time.sleep(60)", timeoutSeconds=0.5)
    result = await caller.call(write_skill(caller.home, [action]), "do", {})
    assert result.is_error and "not done after 0.5 s" in result.text


async def test_program_that_is_missing_is_named(caller: ActionCaller) -> None:
    result = await caller.call(write_skill(caller.home, [command("no-such-x")]), "do", {})
    assert "there is no program no-such-x" in result.text and caller.questions == []


# Decisions


async def test_new_action_asks_once_and_again_when_it_changed(caller: ActionCaller) -> None:
    action = command("head", "-c", "3", stdin="abcdef")
    skill = write_skill(caller.home, [action])
    assert not (await caller.call(skill, "do", {})).is_error
    assert not (await caller.call(skill, "do", {})).is_error
    assert [each.action for each in caller.decisions] == ["ask", "allow"]
    assert "is new" in caller.questions[0].detail and "head -c 3" in caller.questions[0].detail
    skill = write_skill(caller.home, [{**action, "description": "Do something else."}])
    caller.answer = False
    denied = await caller.call(skill, "do", {})
    assert denied.is_error and "has changed" in caller.questions[1].detail
    assert (await caller.call(skill, "do", {})).is_error  # a denial pins nothing
    assert [each.action for each in caller.decisions] == ["ask", "allow", "ask", "ask"]


async def test_action_of_a_bundled_skill_needs_no_pin(caller: ActionCaller) -> None:
    action = command("head", "-c", "3", stdin="abcdef")
    skill = write_skill(caller.home, [action], tier=SkillTier.BUNDLED)
    assert not (await caller.call(skill, "do", {})).is_error
    assert caller.questions == []


async def test_command_of_an_action_asks_as_any_command(caller: ActionCaller) -> None:
    skill = write_skill(caller.home, [command("touch", "made")], tier=SkillTier.BUNDLED)
    caller.answer = False
    assert (await caller.call(skill, "do", {})).is_error
    assert [each.layer for each in caller.decisions] == ["exec"]
    assert not (caller.workspace / "made").exists()
    caller.taint = (TaintSource("web", "a page"),)
    await caller.call(skill, "do", {})
    assert {each.layer for each in caller.decisions[-1].verdicts if each.action == "ask"} == {
        "exec", "taint",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "is_denied"),
    [
        (ToolRules(deny=("group:skills",)), True),
        (ToolRules(deny=("group:plugins",)), True),
        (ToolRules(deny=("skill:tester",)), True),
        (ToolRules(deny=("skill:*",)), True),
        (ToolRules(deny=("tester_do",)), True),
        (ToolRules(deny=("tester_*",)), True),
        (ToolRules(deny=("tester",)), False),
        (ToolRules(deny=("skill:other",)), False),
        (ToolRules(allow=("read",)), True),
        (ToolRules(allow=("exec",)), True),
        (ToolRules(allow=("read", "skill:tester")), False),
        (ToolRules(allow=("read", "tester_do")), False),
        (ToolRules(skills=("other",)), True),
        (ToolRules(skills=()), True),
        (ToolRules(skills=("tester",)), False),
    ],
)
async def test_rule_decides_about_an_action(
    caller: ActionCaller, rules: ToolRules, *, is_denied: bool
) -> None:
    caller.rules = PolicyRules(lists=(rules,))
    skill = write_skill(caller.home, [command("head", "-c", "1", stdin="x")])
    result = await caller.call(skill, "do", {})
    assert result.is_error == is_denied, result.text


async def test_skill_with_the_name_of_a_tool_is_not_allowed_as_that(caller: ActionCaller) -> None:
    caller.rules = PolicyRules(lists=(ToolRules(allow=("exec",)),))
    skill = write_skill(caller.home, [command("head", stdin="x")], name="exec")
    result = await caller.call(skill, "do", {})
    assert "not on the allow list" in result.text


def test_group_with_a_list_of_skills_denies_the_actions_of_others() -> None:
    groups = {"-1": {"skills": ["tester"], "topics": {"7": {"skills": []}}}, "*": {"skills": []}}
    config = Config.model_validate({"channels": {"telegram": {"groups": groups}}})

    def rules(chat: str, thread: str = "") -> list[tuple[str, ...] | None]:
        address = Address("telegram", chat, thread=thread)
        found = resolve_chat_context(config, address, find_traits=find_traits, group=True)
        return [each.skills for each in found.rules]

    assert rules("-1") == [("tester",)] and rules("-1", "7") == [()] and rules("-2") == [()]


# Names


def test_action_name_is_plain_unique_and_short(caller: ActionCaller) -> None:
    assert make_action_name("My Weather!", "get-it") == "my_weather_get_it"
    long = make_action_name("x" * 64, "y" * 40)
    assert len(long) == 64 and long != make_action_name("x" * 64, "z" * 40)
    assert make_action_name("a", "b", {"a_b"}).startswith("a_b_")
    first = write_skill(caller.home, [http("https://a.example/")], name="a-b")
    other = write_skill(caller.home, [http("https://a.example/")], name="a b")
    names = [tool.name for tool in caller.tools(first, other)]
    assert names[0] == "a_b_get" and len(set(names)) == 2
