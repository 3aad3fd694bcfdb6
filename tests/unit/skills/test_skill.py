"""What a skill says about itself."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.skills.frontmatter import read_frontmatter
from homarus.skills.skill import (
    Install,
    Invocation,
    Metadata,
    Requires,
    read_invocation,
    read_metadata,
)

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


def test_skill_flag_unknown_word_keeps_default() -> None:
    matter = {"user-invocable": "maybe", "disable-model-invocation": ""}
    assert read_invocation(matter) == Invocation()
