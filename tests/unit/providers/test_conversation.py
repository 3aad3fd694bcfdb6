"""The core that pairs calls with results and writes typed blocks for every wire."""

import re

import pytest

from homarus.core.message import (
    Message,
    Origin,
    Part,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.providers.conversation import (
    Author,
    CallIds,
    ConversationBuilder,
    MessageBlocks,
    UniqueIds,
    alternate,
)


def said(*calls: str, stop: StopReason = "stop", model: str = "m", at_ms: int = 0) -> Message:
    parts: tuple[Part, ...] = (Text("ok"), *(ToolCall(call, "read", {}) for call in calls))
    return Message("assistant", parts, at_ms, Origin("a", "p", model, stop))


def result(call_id: str, text: str = "42") -> Message:
    return Message("tool", (ToolResult(call_id, "read", (Text(text),)),))


def describe(message: MessageBlocks) -> str:
    return message.result.text if message.result else message.role


def builder(ids: CallIds | None = None) -> ConversationBuilder[str]:
    return ConversationBuilder(describe, author=Author("p", "m"), ids=ids or CallIds())


def test_builder_pairs_each_result_with_its_call() -> None:
    history = [
        user_message("q"),
        said("a", "b"),
        result("b", "two"),
        result("a", "one"),
        result("a", "x"),
    ]
    entries, _ = builder().place([result("a"), *history])
    assert [entry.role for entry in entries] == ["user", "assistant"]
    assert [(call.id, call.result) for call in entries[1].calls] == [("a", "one"), ("b", "two")]


def test_builder_repeated_id_result_belongs_to_nearest_call() -> None:
    entries, _ = builder().place([said("a"), said("a"), result("a")])
    assert [entry.calls[0].result for entry in entries] == [None, "42"]


@pytest.mark.parametrize(("keeps", "count"), [(False, 1), (True, 2)])
def test_builder_repeated_id_in_message_follows_id_rules(keeps: bool, count: int) -> None:
    entries, _ = builder(CallIds(keeps_repeats=keeps)).place([said("a", "a"), result("a")])
    assert [call.result for call in entries[0].calls] == ["42", None][:count]


def test_builder_settled_prefix_ends_before_last_answered_question() -> None:
    history = [
        user_message("q"),
        said("a"),
        result("a"),
        user_message("r"),
        said("b"),
        user_message("s"),
    ]
    _, settled = builder().place(history)
    assert settled is not None
    assert (settled.messages, settled.entries) == (3, 2)
    assert builder().place([said("a")])[1] is None


def test_call_ids_foreign_id_gets_prefix_and_digest() -> None:
    ids = CallIds(re.compile("[a-z]+"), prefix="x_", digest_chars=6, cut_at="|")
    assert ids.normalize("abc|def") == "abc"
    assert re.fullmatch("x_[0-9a-f]{6}", ids.normalize("A B"))
    assert ids.normalize("A B") == ids.normalize("A B") != ids.normalize("A C")


def test_unique_ids_repeated_id_gets_first_free_number() -> None:
    ids = UniqueIds(3, "-")
    assert [ids.claim(each) for each in ("abcd", "abcd", "abc-2", "abcd")] == [
        "abcd",
        "abc-2",
        "abc-3",
        "abc-4",
    ]
    assert not ids.add("abcd")
    assert ids.add("e")


@pytest.mark.parametrize(
    ("author", "message", "wrote"),
    [
        (Author("p", "m"), said(), True),
        (Author("p", "m", "a"), said(), True),
        (Author("p", "m", "b"), said(), False),
        (Author("p", "n"), said(), False),
        (Author("p", "m"), said(stop="aborted"), False),
        (Author("p", "m", after_ms=5), said(at_ms=5), False),
        (Author("p", "m"), Message("assistant", (Thinking("hm"),)), False),
    ],
)
def test_author_wrote_only_own_completed_messages(
    author: Author, message: Message, wrote: bool
) -> None:
    assert author.wrote(message) is wrote


def test_alternate_merges_roles_and_starts_and_ends_with_user() -> None:
    entries, _ = builder().place([said(), said("a"), user_message("q"), user_message("r"), said()])
    turns = alternate(entries, opening="start", closing="end", empty="none")
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert [len(turn.entries) for turn in turns] == [1, 2, 2, 1, 1]
    assert turns[2].answers is entries[1]
    assert (turns[0].entries[0].encoded, turns[-1].entries[0].encoded) == ("start", "end")
    [only] = alternate(builder().place([])[0], opening="start", closing="end", empty="none")
    assert only.entries[0].encoded == "none"
