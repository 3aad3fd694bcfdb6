"""Secrets hidden and put back."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config import redaction
from homarus.config.redaction import (
    REDACTED,
    mask_known_secrets,
    redact,
    redact_tree,
    restore_redacted,
)
from homarus.core.errors import UserError

TREE = {
    "models": {
        "providers": {
            "x": {
                "apiKey": "sk-1",
                "baseUrl": "https://me:pw@host/v1",
                "headers": {"X-Auth": "h"},
                "models": [{"id": "m", "maxTokens": 5, "headers": {"A": "b"}}],
            },
            "y": {"apiKey": "${Y_KEY}", "baseUrl": "https://host/v1"},
        }
    },
    "env": {"FOO": "bar", "vars": {"GROQ_API_KEY": "gsk"}, "shellEnv": {"enabled": True}},
    "gateway": {"auth": {"token": "t", "password": "p", "mode": "token"}},
    "channels": {"telegram": {"botToken": "123:abc", "tokenFile": "/f", "webhookSecret": "s"}},
    "tools": {"web": {"search": {"apiKey": ""}}},
}


def test_redact_tree_replaces_only_secrets() -> None:
    assert redact_tree(TREE) == {
        "models": {
            "providers": {
                "x": {
                    "apiKey": REDACTED,
                    "baseUrl": REDACTED,
                    "headers": {"X-Auth": REDACTED},
                    "models": [{"id": "m", "maxTokens": 5, "headers": {"A": REDACTED}}],
                },
                "y": {"apiKey": "${Y_KEY}", "baseUrl": "https://host/v1"},
            }
        },
        "env": {
            "FOO": REDACTED,
            "vars": {"GROQ_API_KEY": REDACTED},
            "shellEnv": {"enabled": True},
        },
        "gateway": {"auth": {"token": REDACTED, "password": REDACTED, "mode": "token"}},
        "channels": {
            "telegram": {"botToken": REDACTED, "tokenFile": "/f", "webhookSecret": REDACTED}
        },
        "tools": {"web": {"search": {"apiKey": ""}}},
    }


def test_redact_tree_of_subtree_uses_its_path() -> None:
    assert redact_tree({"GROQ": "gsk"}, ("env", "vars")) == {"GROQ": REDACTED}


def test_restore_redacted_undoes_redaction() -> None:
    assert restore_redacted(redact_tree(TREE), TREE) == TREE


def test_restore_redacted_matches_moved_entries_by_id() -> None:
    old = {"l": [{"id": "a", "token": "1"}, {"id": "b", "token": "2"}]}
    new = {"l": [{"id": "b", "token": REDACTED}, {"id": "a", "token": REDACTED}]}
    assert restore_redacted(new, old) == {
        "l": [{"id": "b", "token": "2"}, {"id": "a", "token": "1"}]
    }


ANN, BOB = {"n": "ann", "token": "1"}, {"n": "bob", "token": "2"}
AT_ANN, AT_BOB = {"n": "ann", "token": REDACTED}, {"n": "bob", "token": REDACTED}


@pytest.mark.parametrize(
    ("old", "new", "restored"),
    [
        ([ANN, BOB], [AT_BOB], [BOB]),
        ([ANN, BOB], [AT_BOB, AT_ANN], [BOB, ANN]),
        ([ANN, BOB], [AT_BOB, {"n": "eve"}], [BOB, {"n": "eve"}]),
        ([ANN, BOB], [{"n": "eve"}, AT_ANN, AT_BOB], [{"n": "eve"}, ANN, BOB]),
        ([ANN, BOB], [AT_BOB, AT_BOB], [{**ANN, "n": "bob"}, BOB]),  # renamed where it stands
        ([ANN, {**ANN, "token": "3"}], [AT_ANN, AT_ANN, BOB], [ANN, {**ANN, "token": "3"}, BOB]),
        ([{"id": "a", **ANN}, {"id": "a", **BOB}], [{"id": "a", **AT_BOB}], [{"id": "a", **BOB}]),
    ],
)
def test_restore_redacted_matches_entry_by_text_or_index(
    old: list[object], new: list[object], restored: list[object]
) -> None:
    assert restore_redacted({"l": new}, {"l": old}) == {"l": restored}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([ANN, {**ANN, "token": "3"}], [AT_ANN]),  # which of the two is gone?
        ([ANN, BOB], [{"n": "eve", "token": REDACTED}]),
        ([ANN, BOB], [AT_BOB, {"n": "eve", "token": REDACTED}]),  # her place was Bob's
        ([ANN], [AT_ANN, AT_ANN]),
    ],
)
def test_restore_redacted_ambiguous_entry_raises_user_error(
    old: list[object], new: list[object]
) -> None:
    with pytest.raises(UserError, match=f"token: {REDACTED}"):
        restore_redacted({"l": new}, {"l": old})


@pytest.mark.parametrize("old", [{}, {"a": 5}, {"a": {}}, {"a": []}, None])
def test_restore_redacted_without_old_value_raises(old: object) -> None:
    with pytest.raises(UserError, match=f"a: {REDACTED}"):
        restore_redacted({"a": REDACTED}, old)


@given(
    st.recursive(
        st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["token", "env", "id", "x"]), inner, max_size=3)
        ),
    )
)
def test_redact_tree_leaves_no_secret_with_known_name(tree: object) -> None:
    def leaves(value: object, hidden: bool) -> list[str]:
        if isinstance(value, dict):
            return [
                leaf
                for key, item in value.items()
                for leaf in leaves(item, hidden or key == "token")
            ]
        if isinstance(value, list):
            return [leaf for item in value for leaf in leaves(item, hidden)]
        return [value] if hidden and isinstance(value, str) and value else []

    assert set(leaves(redact_tree(tree), hidden=False)) <= {REDACTED}


@pytest.fixture
def known() -> Iterator[None]:
    """Forget the secrets of a test: they hold for the process."""
    yield
    redaction.forget_known_secrets()


@pytest.mark.usefixtures("known")
def test_known_secrets_are_masked_wherever_they_stand() -> None:
    raw = {
        "gateway": {"auth": {"token": "gate-token-1"}},
        "channels": {"telegram": {"botToken": "${BOT_TOKEN}"}, "irc": {"nick": "plain-nick-1"}},
        "models": {"providers": {"x": {"apiKey": "short", "baseUrl": "https://a.example/v1"}}},
    }
    env = {"BOT_TOKEN": "99:bot-value", "MY_API_KEY": "env-key-value", "EDITOR": "some-editor-1"}
    redaction.set_config_secrets(raw, env)
    redaction.add_known_secret("used-credential-7")
    text = "gate-token-1 99:bot-value env-key-value used-credential-7 plain-nick-1 some-editor-1"
    assert mask_known_secrets(text) == "*** *** *** *** plain-nick-1 some-editor-1"
    assert mask_known_secrets("short https://a.example/v1") == "short https://a.example/v1"
    assert redact("x=gate-token-1") == "x=***"
    redaction.set_config_secrets({}, {})
    assert mask_known_secrets("gate-token-1 used-credential-7") == "gate-token-1 ***"


@pytest.mark.usefixtures("known")
def test_secret_that_is_an_ordinary_word_is_not_masked() -> None:
    for value in ("changeme", "password", "short-1"):
        redaction.add_known_secret(value)
        assert mask_known_secrets(f"my {value} here") == f"my {value} here"


@pytest.mark.usefixtures("known")
def test_longer_of_two_known_secrets_is_masked_completely() -> None:
    redaction.add_known_secret("secret-1")
    redaction.add_known_secret("secret-1-and-more")
    assert mask_known_secrets("secret-1-and-more") == "***"
