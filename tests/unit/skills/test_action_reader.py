"""What `actions.json` may contain, and how what it may not is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.skills.actions.action_files import ActionFileCache, load_actions
from homarus.skills.actions.action_reader import MAX_ACTIONS, MAX_FILE_BYTES, read_actions
from homarus.skills.actions.json_select import parse_select, select_part
from tests.unit.skills.action_builders import command, http, schema, write_skill

URL = "https://a.example/v1/{city}"


def read(*actions: Any, keys: tuple[str, ...] = ()) -> Any:
    return read_actions(json.dumps({"actions": list(actions)}).encode(), key_names=keys)


def test_actions_of_a_valid_file_have_no_problem() -> None:
    found = read(
        http(URL, args=("city",), query={"q": "{city}", "n": 3}, select="a.b[0].c[*]"),
        command("jq", "-r", ["--arg", "x", "{x}"], "--", "{filter}",
                parameters=schema("filter", x={"type": "string"})),
    )  # fmt: skip
    assert found.problems == ()
    assert [each.name for each in found.actions] == ["get", "do"]
    assert [sorted(each.effects) for each in found.actions] == [[], ["exec"]]


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (http("https://{city}.example/x", args=("city",)), "arguments in the path alone"),
        (http("{city}://a.example/x", args=("city",)), "arguments in the path alone"),
        (http("https://a.example:{city}/x", args=("city",)), "arguments in the path alone"),
        (http("https://user@a.example/"), "user name"),
        (http("https://a.example@evil.example/"), "user name"),
        (http("https://a.example\\@evil.example/"), "arguments in the path alone"),
        (http("ftp://a.example/"), "arguments in the path alone"),
        (http("https://a.example/x?y={city}", args=("city",)), "arguments in the path alone"),
        (http("https://a.example/../x"), ". or .."),
        (http("https://a.example/${ENV:KEY}"), "contains a key"),
        (http(URL), "no argument in parameters"),
        (http(URL, parameters=schema(city={"type": "string"})), "must be required"),
        (http("https://a.example/", headers={"Host": "b.example"}), "cannot be set"),
        (http("https://a.example/", headers={"Content-Length": "1"}), "cannot be set"),
        (http("https://a.example/", headers={"X-Forwarded-For": "1"}), "cannot be set"),
        (http("https://a.example/", headers={"X-A": "a\r\nX-B: c"}), "a header cannot have"),
        (http("https://a.example/", headers={"X-A\r\nX-B": "c"}), "cannot be set"),
        (http("https://a.example/", args=("a",), headers={"X-A": "{a}"}), "depends on an argument"),
        (http("https://a.example/", headers={"X-A": "${ENV:OTHER}"}), "OTHER is not in requires"),
        (http("https://a.example/", body={"a": 1}), "GET request has no body"),
        (http("https://a.example/", method="TRACE"), "method is not one of"),
        (http("https://a.example/", maxBytes=10**9), "maxBytes"),
        (http("https://a.example/", maxBytes=True), "maxBytes"),
        (http("https://a.example/", timeoutSeconds=0), "timeoutSeconds"),
        (http("https://a.example/", select="a..b"), "select is not understood"),
        (http("https://a.example/", query={"q": "{a"}), "starts no"),
        (http("https://a.example/", proxy="x"), "unknown key 'proxy'"),
        (command("sh", "-c", "echo {a}", parameters=schema("a")), "a shell is not run"),
        (command("/bin/BASH", "-c", "x"), "a shell is not run"),
        (command("{a}", parameters=schema("a")), "the name of a program"),
        (command("-x"), "the name of a program"),
        (command("{baseDir}"), "the name of a program"),
        (command(), "list of 1 to"),
        (command("jq", 3), "neither a text"),
        (command("jq", "${ENV:KEY}"), "use env"),
        (command("jq", "{+a}", parameters=schema("a")), "paths of URLs alone"),
        (command("jq", env=["LD_PRELOAD"]), "LD_PRELOAD is not in requires"),
        (command("echo x"), ""),
        ({"name": "Bad Name", "description": "x", "http": {"url": "https://a.example"}}, "a name"),
        ({"name": "x", "http": {"url": "https://a.example"}}, "description is missing"),
        ({"name": "x", "description": "x" * 601, "http": {}}, "more than 600"),
        ({"name": "x", "description": "x"}, "either http or command"),
        ({"name": "x", "description": "x", "http": [], "command": {}}, "either http or command"),
        ({**command("jq"), "effects": ["harm"]}, "effects is not a list"),
        ({**command("jq"), "parameters": {"type": "array"}}, "not the JSON schema of an object"),
        ({**command("jq"), "parameters": schema(x={"$ref": "#/a"})}, "$ref"),
        ({**command("jq"), "parameters": schema(x={"description": "y" * 5000})}, "more than 4000"),
        ({**command("jq"), "parameters": schema(**{"a-b": {}})}, "is no argument"),
        ({**command("jq"), "parameters": schema(baseDir={})}, "is no argument"),
        ("text", "not an object"),
    ],
)
def test_action_that_is_not_valid_is_named_and_skipped(action: Any, problem: str) -> None:
    found = read(action, {**http("https://b.example/"), "name": "other"}, keys=("KEY",))
    if not problem:
        assert len(found.actions) == 2
        return
    assert [each.name for each in found.actions] == ["other"]
    assert len(found.problems) == 1 and problem in found.problems[0]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "Expecting"),
        (b"[]", "one key"),
        (b'{"actions": {}}', "not a list"),
        (b'{"actions": [], "x": 1}', "one key"),
        (b'{"actions": [], "actions": []}', "there twice"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "more than"),
        (b"[" * 30_000, ""),
        (b'{"actions": ' + b"[" * 40 + b"]" * 40 + b"}", "nested more than"),
        (b" " * (MAX_FILE_BYTES + 1), "more than"),
    ],
)
def test_action_file_that_is_not_valid_is_one_problem(data: bytes, problem: str) -> None:
    found = read_actions(data)
    assert found.actions == () and len(found.problems) == 1
    assert problem in found.problems[0]


def test_actions_beyond_the_limit_are_left_out() -> None:
    many = [{**http("https://a.example/"), "name": f"a{number}"} for number in range(25)]
    found = read(*many)
    assert len(found.actions) == MAX_ACTIONS and "first 20 of 25" in found.problems[0]


def test_action_of_the_same_name_is_a_problem() -> None:
    found = read(http("https://a.example/"), http("https://b.example/"))
    assert len(found.actions) == 1 and "the same name" in found.problems[0]


def test_action_description_shows_invisible_characters() -> None:
    action = {**http("https://a.example/"), "description": "Get\u202e it\u200b\n now"}
    assert read(action).actions[0].description.isascii()


def test_action_keys_are_those_that_the_skill_declares(tmp_path: Path) -> None:
    action = http("https://a.example/", headers={"X-Key": "${ENV:MY_KEY}"})
    skill = write_skill(tmp_path, [action])
    assert "MY_KEY is not in requires.env" in load_actions(skill).problems[0]
    skill = write_skill(tmp_path, [action], metadata={"primaryEnv": "MY_KEY"})
    assert load_actions(skill).actions[0].key_names == ("MY_KEY",)


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "PYTHONPATH", "OPENCLAW_GATEWAY_TOKEN"])
def test_action_key_that_decides_what_runs_is_refused(tmp_path: Path, name: str) -> None:
    skill = write_skill(
        tmp_path, [command("jq", env=[name])], metadata={"requires": {"env": [name]}}
    )
    assert load_actions(skill).actions == ()


def test_action_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, [http("https://a.example/")])
    file = skill.folder / "actions.json"
    file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(tmp_path / "elsewhere.json")
    assert "a link is not followed" in load_actions(skill).problems[0]


def test_action_file_is_read_again_after_it_changed(tmp_path: Path) -> None:
    cache = ActionFileCache()
    skill = write_skill(tmp_path, [http("https://a.example/")])
    first = load_actions(skill, cache)
    assert load_actions(skill, cache) is first
    write_skill(tmp_path, [http("https://b.example/longer")])
    assert load_actions(skill, cache).actions[0].digest != first.actions[0].digest


def test_select_returns_the_part_of_a_response() -> None:
    value = {"a": [{"b": 1}, {"b": 2}]}
    assert select_part(value, parse_select("a[1].b")) == 2
    assert select_part(value, parse_select("a[*].b")) == [1, 2]
