"""Parse inline directives of a message."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.commands.catalog import is_command_name
from homarus.sessions.directives import (
    Directives,
    DirectiveValue,
    ExecDirective,
    ModelDirective,
    QueueDirective,
    extract_exec,
    extract_model,
    extract_queue,
    extract_think,
    parse_directives,
)

WORDS = st.sampled_from(
    ["hello", "world", "a/b", "/usr/bin", "5/7", "über", "/thinkstuff", "`/think high`", "x=1"]
)
ASKED = st.sampled_from(
    [
        "/think high",
        "/t:low",
        "/verbose on",
        "/reasoning stream",
        "/elevated ask",
        "/status",
        "/exec host=node",
        "/model openai/gpt-5@work",
        "/queue collect cap:5 drop:old",
    ]
)
GAPS = st.sampled_from([" ", "\n", "\n\n", "  ", "\t"])


def test_directives_removed_from_lines_keep_line_breaks() -> None:
    found = parse_directives(
        "look at this:\n\ndef f():\n    return 1\n\n/think high\n\nis it right?"
    )
    assert found.text == "look at this:\n\ndef f():\n    return 1\n\nis it right?"
    assert found.think == DirectiveValue("high", "high")


def test_directive_with_unknown_level_is_removed_with_its_word() -> None:
    assert extract_think("/think hgih why?") == ("why?", DirectiveValue(None, "hgih"))
    assert extract_think("so /think: hgih x") == ("so x", DirectiveValue(None, "hgih"))
    assert extract_think("please /verbose") == ("please /verbose", None)


def test_directive_alone_with_unknown_level_keeps_raw_word() -> None:
    assert extract_think("/think hgih") == ("", DirectiveValue(None, "hgih"))


def test_directive_inside_code_fence_is_ignored() -> None:
    text = "run\n```sh\nls /status\n/think high\n```\nok"
    assert parse_directives(text) == Directives(text)
    assert parse_directives(f"{text} /status") == Directives(text, status=True)


def test_model_alias_named_like_a_command_is_no_directive() -> None:
    assert extract_model("/status x", ["status", "Opus"], is_command_name) == ("/status x", None)
    assert extract_model("/opus: x", ["status", "Opus"], is_command_name) == (
        "x",
        ModelDirective("opus"),
    )


def test_model_alias_with_regex_characters_matches_literally() -> None:
    assert extract_model("/anything", [".*", "", " "]) == ("/anything", None)
    assert extract_model("/.* x", [".*"]) == ("x", ModelDirective(".*"))


def test_exec_directive_ends_at_first_other_word() -> None:
    text, setting = extract_exec("/exec: HOST=Gateway node= ls ask=off")
    assert text == "ls ask=off"
    assert setting == ExecDirective(
        host=DirectiveValue("gateway", "Gateway"), node=DirectiveValue(None, "")
    )


def test_queue_directive_takes_only_one_mode() -> None:
    text, setting = extract_queue("/queue collect interrupt me")
    assert text == "interrupt me"
    assert setting == QueueDirective(mode=DirectiveValue("collect", "collect"))


@pytest.mark.parametrize("word", ["debounce:soon", "debounce:" + "9" * 400, "cap:-1", "cap:1e9"])
def test_queue_directive_with_invalid_option_has_no_value(word: str) -> None:
    text, setting = extract_queue(f"/queue {word} drop=new x")
    assert text == "x"
    assert setting and setting.drop == DirectiveValue("new", "new")
    option = setting.debounce_ms or setting.cap
    assert option == DirectiveValue(None, word.partition(":")[2])


def test_queue_directive_keeps_raw_words_and_whole_part_of_cap() -> None:
    _, setting = extract_queue("/queue DEBOUNCE:2S cap:2.7 DROP:Old")
    assert setting == QueueDirective(
        debounce_ms=DirectiveValue(2000, "2S"),
        cap=DirectiveValue(2, "2.7"),
        drop=DirectiveValue("old", "Old"),
    )


def test_directives_not_allowed_stay_in_the_text() -> None:
    text = "/elevated on /status x"
    found = parse_directives(text, allow_elevated=False, allow_status=False)
    assert found == Directives(text)


@given(st.lists(st.tuples(WORDS, GAPS), max_size=8), st.data())
def test_directives_removed_keep_order_of_other_words(
    words: list[tuple[str, str]], data: st.DataObject
) -> None:
    said = [word for word, _ in words]
    at = data.draw(st.integers(0, len(words)))
    asked = data.draw(ASKED)
    # A level's own name after a directive would be its argument: none of the words is one.
    pieces = [*words[:at], (asked, data.draw(GAPS)), *words[at:]]
    found = parse_directives("".join(word + gap for word, gap in pieces))
    assert found.text.split() == [part for word in said for part in word.split()]
    assert found != Directives(found.text)


@given(st.text(st.sampled_from("/think high:v on\n\t`~=queue"), max_size=80))
def test_directives_of_any_text_keep_all_other_words(text: str) -> None:
    found = parse_directives(text)
    kept = iter(text.split())  # an argument may be the first part of a word: `/v on=x`
    assert all(any(each.endswith(word) for each in kept) for word in found.text.split())
    if "/" not in text:
        assert found.text == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "/think " * 150_000,
        " " * 10**6 + "/",
        "/" * 10**6,
        "/think" + " " * 10**6,
        "/queue cap:" * 90_000,
        "/model a" + "/a" * 500_000,
        "/exec" + " ask=off" * 120_000,
        "```\n/t high\n" * 80_000,
    ],
)
def test_directives_of_a_megabyte_parse_quickly(text: str) -> None:
    started = time.process_time()
    parse_directives(text, model_aliases=["gpt", "opus"])
    assert time.process_time() - started < 5
