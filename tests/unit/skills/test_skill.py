"""What a skill says about itself."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.skills.frontmatter import read_frontmatter
from homarus.skills.requirements import Requires
from homarus.skills.skill import (
    CommandDispatch,
    Install,
    Invocation,
    Metadata,
    read_dispatch,
    read_invocation,
    read_metadata,
)
from tests.unit.skills.builders import make

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc é,", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["install", "requires", "bins", "kind", "os", "always", "emoji"]), inner
        )
    ),
    max_leaves=8,
)


def test_skill_metadata_in_yaml_is_parsed() -> None:
    matter = read_frontmatter(
        "---\n"
        "name: x\n"
        "user-invocable: no\n"
        "metadata:\n"
        "  openclaw:\n"
        "    always: true\n"
        "    requires:\n"
        "      bins: [gh, jq]\n"
        "      env: TOKEN, OTHER\n"
        "    install:\n"
        "      - kind: download\n"
        "        url: https://example.org/x.tgz\n"
        "        stripComponents: 1\n"
        "        extract: true\n"
        "      - kind: magic\n"
        "---\n"
    )
    assert read_invocation(matter) == Invocation(by_user=False)
    assert read_metadata(matter) == Metadata(
        always=True,
        requires=Requires(bins=("gh", "jq"), env=("TOKEN", "OTHER")),
        install=(
            Install("download", url="https://example.org/x.tgz", strip_components=1, extract=True),
        ),
    )


@pytest.mark.parametrize("name", ["openclaw", "clawdbot", "moltbot"])
def test_skill_metadata_accepts_legacy_names_and_json5(name: str) -> None:
    matter = {"metadata": f"{{ {name}: {{ emoji: 'x', }}, // why\n }}"}
    assert read_metadata(matter) == Metadata(emoji="x")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "3", "{", '{"openclaw": 1}', "[" * 5_000, "\0", '{"a": "\ud800"}']
)
def test_skill_metadata_invalid_is_none(text: str) -> None:
    assert read_metadata({"metadata": text}) is None


@given(JSON)
def test_skill_metadata_any_tree_is_no_error(tree: object) -> None:
    found = read_metadata({"metadata": json.dumps({"openclaw": tree})})
    assert (found is not None) == isinstance(tree, dict)


@pytest.mark.parametrize(
    ("matter", "expected"),
    [
        ({}, Invocation()),
        ({"disable-model-invocation": True}, Invocation(by_model=False)),
        ({"user-invocable": False}, Invocation(by_user=False)),
        ({"user-invocable": "off"}, Invocation(by_user=False)),
        ({"user-invocable": ["no"]}, Invocation()),
        ({"invocation": {"disableModelInvocation": True}}, Invocation(by_model=False)),
        ({"metadata": {"openclaw": {"invocation": {"disableModelInvocation": True}}}},
         Invocation(by_model=False)),
        ({"metadata": {"openclaw": {"invocation": {"allowRemote": False}}}},
         Invocation(allows_remote=False)),
        ({"disable-model-invocation": True,
          "metadata": {"openclaw": {"invocation": {"disableModelInvocation": False}}}},
         Invocation(by_model=False)),
    ],
)  # fmt: skip
def test_skill_invocation_keys_are_read(matter: dict[str, Any], expected: Invocation) -> None:
    assert read_invocation(matter) == expected


@pytest.mark.parametrize(
    ("matter", "expected"),
    [
        ({}, None),
        ({"command-dispatch": "tool"}, None),
        ({"command-tool": "exec"}, None),
        ({"command-dispatch": "model", "command-tool": "exec"}, None),
        ({"command-dispatch": "tool", "command-tool": "exec"}, CommandDispatch("exec")),
        ({"command-dispatch": "Tool", "command-tool": "exec", "command-arg-mode": "raw"},
         CommandDispatch("exec", "raw")),
    ],
)  # fmt: skip
def test_skill_command_dispatch_needs_kind_and_tool(
    matter: dict[str, Any], expected: CommandDispatch | None
) -> None:
    assert read_dispatch(matter) == expected


@pytest.mark.parametrize(
    ("value", "tools"),
    [
        ("Bash(git:*) Read", ("Bash(git:*)", "Read")),
        ("Bash(git log:*), Read", ("Bash(git log:*)", "Read")),
        (["Read", 3, "Write "], ("Read", "Write")),
        (None, ()),
        ({"a": 1}, ()),
    ],
)
def test_skill_allowed_tools_are_a_list_or_words(value: Any, tools: tuple[str, ...]) -> None:
    assert make({"allowed-tools": value}).allowed_tools == tools


def test_skill_has_the_keys_of_the_agent_skills_format() -> None:
    skill = make({"license": "MIT", "compatibility": "Needs git", "metadata": {"author": "me"}})
    assert (skill.license, skill.compatibility, skill.key) == ("MIT", "Needs git", "x")
    assert skill.metadata == Metadata() and skill.own == {}
    assert skill.frontmatter["metadata"] == {"author": "me"}
    keyed = make({"metadata": {"clawdbot": {"skillKey": "k", "homepage": "https://a.example"}}})
    assert (keyed.key, keyed.homepage) == ("k", "https://a.example")


def test_skill_number_as_name_is_text() -> None:
    assert make({"name": 1}).name == "1"


def test_skill_flag_unknown_word_keeps_default() -> None:
    matter = {"user-invocable": "maybe", "disable-model-invocation": ""}
    assert read_invocation(matter) == Invocation()
