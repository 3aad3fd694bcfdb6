import itertools
import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import (
    Image,
    Json,
    Message,
    Origin,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)
from homarus.sessions.transcript import (
    EntryTree,
    OrphanedMessage,
    TranscriptModelState,
    compaction,
    decode_message,
    encode_message,
    message_draft,
    messages_of,
    model_change,
    model_snapshot,
    model_state_of,
    new_id,
    orphan_of,
    pair_calls,
    thinking_level_change,
)
from homarus.store.base import TranscriptEntry
from homarus.store.transcript_codec import decode_entry, encode_entry, load_json
from homarus.store.transcript_scan import scan_transcript


def linearise(entries: list[TranscriptEntry], leaf: str | None) -> list[Message]:
    """Return the messages from the root to `leaf`."""
    return messages_of(EntryTree(entries, leaf).path())


def unpaired_calls(messages: list[Message]) -> tuple[ToolCall, ...]:
    """Return the tool calls that no result follows."""
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                waiting[part.id] = part
            elif isinstance(part, ToolResult):
                waiting.pop(part.call_id, None)
    return tuple(waiting.values())


SAMPLES = Path(__file__).parents[2] / "data/samples"

# --- the codec ---------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
counts = st.integers(0, 10**9)
objects = st.dictionaries(words, st.none() | st.booleans() | st.integers() | words, max_size=3)
texts = st.builds(Text, words, st.just("") | words)
images = st.builds(Image, words, names)
shown = st.lists(texts | images, max_size=3).map(tuple)
calls = st.builds(ToolCall, names, names, objects) | st.builds(
    ToolCall, names, names, st.just({}), names, words
)
usages = st.builds(Usage, counts, counts, counts, counts, counts, st.floats(0, 1000) | st.just(0.0))
origins = st.builds(
    Origin, words, words, words, st.sampled_from(get_args(StopReason)), usages, words
)
times = st.integers(1, 4_000_000_000_000)
messages = st.one_of(
    st.builds(
        Message,
        st.just("user"),
        st.lists(texts | images, min_size=1, max_size=3).map(tuple),
        times,
    ),
    st.builds(
        Message,
        st.just("assistant"),
        st.lists(texts | calls | st.builds(Thinking, words, words), max_size=4).map(tuple),
        times,
        origins,
    ),
    st.builds(
        Message,
        st.just("tool"),
        st.tuples(st.builds(ToolResult, names, words, shown, st.booleans(), st.none() | objects)),
        times,
    ),
)


@given(messages)
def test_message_round_trips_through_its_line(message: Message) -> None:
    entry = message_draft(message, 5).at("ab12cd34", "p", 5)
    line = encode_entry(entry)
    row = (line, 0, entry.id, entry.parent, entry.type, entry.at_ms)
    again = decode_entry(row)
    assert again == TranscriptEntry("ab12cd34", "p", "message", 5, load_json(line_data(line)))
    assert decode_message(again) == message


def line_data(line: str) -> str:
    data = json.loads(line)
    return json.dumps({"message": data["message"]})


def sample(name: str) -> list[TranscriptEntry]:
    with (SAMPLES / f"transcript-{name}.jsonl").open("rb") as file:
        return [found.entry for found in scan_transcript(file).found]


@pytest.mark.parametrize("name", ["agent", "chat", "tool"])
def test_openclaw_messages_are_encoded_unchanged(name: str) -> None:
    for entry in sample(name):
        if entry.type != "message":
            continue
        message = decode_message(entry)
        assert message is not None
        again = encode_message(message)
        assert again == entry.data["message"]
        if entry.data["message"].get("model") != "gateway-injected":
            assert list(again) == list(entry.data["message"])


def test_signatures_are_encoded_where_openclaw_puts_them() -> None:
    parts = (Thinking("hm", "t"), Text("so", "x"), ToolCall("c", "ls", {}, signature="s"))
    written = encode_message(Message("assistant", parts, 5))["content"]
    assert written == [
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "t"},
        {"type": "text", "text": "so", "textSignature": "x"},
        {"type": "toolCall", "id": "c", "name": "ls", "arguments": {}, "thoughtSignature": "s"},
    ]


def test_openclaw_tool_call_is_decoded() -> None:
    found = linearise(sample("tool"), "0d0682d1")
    assert [message.role for message in found] == [
        "user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert found[1].calls == (ToolCall("call_e4680cf5", "exec", {"command": "echo bench-ok"}),)
    assert isinstance(found[2].parts[0], ToolResult)
    assert found[2].parts[0].details is not None
    assert found[1].origin == Origin(
        "openai-completions", "mock", "mock-1", "toolUse", Usage(12815, 1)
    )
    assert unpaired_calls(found) == ()


def test_injected_message_has_openclaw_origin() -> None:
    written = encode_message(Message("assistant", (Text("note"),), 5))
    assert (written["api"], written["provider"], written["model"]) == (
        "openai-responses", "openclaw", "gateway-injected",
    )  # fmt: skip
    assert written["usage"]["cost"]["total"] == 0 and written["stopReason"] == "stop"


def test_message_without_time_gets_that_of_entry() -> None:
    assert encode_message(user_message("hi"), 77)["timestamp"] == 77
    entry = TranscriptEntry(
        "a", None, "message", 77, {"message": {"role": "user", "content": "hi"}}
    )
    assert decode_message(entry) == user_message("hi", at_ms=77)


def message_of(value: Json) -> Message | None:
    return decode_message(TranscriptEntry("a", None, "message", 5, {"message": value}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"role": "user", "content": "plain"}, "plain"),
        ({"role": "user", "content": ["bare", {"type": "text", "text": " text"}]}, "bare text"),
        ({"role": "user", "content": [{"type": "audio", "data": "x"}]}, "[audio left out]"),
        ({"role": "user", "content": [{"no": "type"}]}, "[something left out]"),
        ({"role": "custom", "content": "note", "customType": "x"}, "note"),
        ({"role": "hookMessage", "content": [{"type": "text", "text": "h"}]}, "h"),
        ({"role": "bashExecution", "command": "ls", "output": "a\n", "exitCode": 2},
         "I ran `ls`:\n```\na\n\n```\n(exit code 2)"),
    ],
)  # fmt: skip
def test_custom_roles_are_decoded_as_user_messages(value: Json, text: str) -> None:
    message = message_of(value)
    assert message is not None
    assert (message.role, message.text) == ("user", text)


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        [],
        {},
        {"role": None},
        {"role": "system", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": []},
        {"role": "user", "content": [5, None]},
        {"role": "toolResult", "content": "x"},
        {"role": "toolResult", "toolCallId": 5},
        {"role": "bashExecution", "excludeFromContext": True},
        {"role": "compactionSummary"},
    ],
)
def test_empty_entries_are_not_decoded(value: Json) -> None:
    assert message_of(value) is None


def test_malformed_tool_call_is_decoded_partially() -> None:
    content = [
        {"type": "toolCall", "id": "1", "name": "a", "arguments": '{"x": 1}'},
        {"type": "toolCall", "id": "2", "name": "b", "arguments": "{not json"},
        {"type": "toolCall", "id": "3", "name": "c", "arguments": [1]},
        {"type": "toolCall", "id": "4", "name": "d"},
        {"type": "toolCall", "id": "5", "arguments": {}},
        {"type": "toolCall", "name": "e", "arguments": {}},
        {"type": "redacted_thinking", "data": "x"},
    ]
    message = message_of({"role": "assistant", "content": content})
    assert message is not None
    assert message.parts == (
        ToolCall("1", "a", {"x": 1}),
        ToolCall("2", "b", {}, "{not json"),
        ToolCall("3", "c", {}, "[1]"),
        ToolCall("4", "d", {}),
    )
    assert message.origin == Origin("", "", "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["role", "content", "type", "text", "usage", "cost", "total", "input", "toolCallId",
             "timestamp", "summary", "arguments", "id", "name", "data"]
        ),
        inner | st.sampled_from(["user", "assistant", "toolResult", "text", "image", "toolCall"]),
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@given(json_values, st.sampled_from(["message", "custom_message", "branch_summary", "compaction"]))
def test_decode_of_any_json_never_raises(value: Json, kind: str) -> None:
    data = value if isinstance(value, dict) else {}
    decode_message(TranscriptEntry("a", None, kind, 5, data))
    message = message_of(value)
    if message is not None and message.at_ms < 2**53:
        encode_entry(message_draft(message, 5).at("a", None, 5))


# --- drafts ------------------------------------------------------------------------------------


def test_new_entries_have_openclaw_fields() -> None:
    for draft, entry in zip(
        (
            model_change("mock", "mock-1"),
            thinking_level_change("off"),
            model_snapshot("mock", "openai-completions", "mock-1", 1794724639503),
        ),
        sample("agent"),
        strict=False,
    ):
        assert (draft.type, draft.data) == (entry.type, entry.data)


def test_new_id_is_eight_unused_hex_digits() -> None:
    taken: set[str] = set()
    for _ in range(100):
        made = new_id(taken)
        assert len(made) == 8 and int(made, 16) >= 0 and made not in taken
        taken.add(made)


# --- the tree ----------------------------------------------------------------------------------


def said(entry_id: str, parent: str | None, role: str = "user") -> TranscriptEntry:
    message = user_message(entry_id) if role == "user" else Message("assistant", (Text(entry_id),))
    return message_draft(message, 5).at(entry_id, parent, 5)


def spoken(path: list[Message]) -> list[str]:
    return [message.text for message in path]


@st.composite
def trees(draw: st.DrawFn) -> list[TranscriptEntry]:
    entries: list[TranscriptEntry] = []
    for number in range(draw(st.integers(0, 12))):
        above = [entry.id for entry in entries]
        parent = draw(st.none() | st.sampled_from(above)) if above else None
        entries.append(said(f"{number:08x}", parent))
    return entries


@given(trees(), st.data())
def test_path_leads_from_root_to_leaf(entries: list[TranscriptEntry], data: st.DataObject) -> None:
    if not entries:
        assert linearise(entries, None) == []
        return
    leaf = data.draw(st.sampled_from(entries))
    path = EntryTree(entries, leaf.id).path()
    assert path[0].parent is None and path[-1] == leaf
    assert all(child.parent == parent.id for parent, child in itertools.pairwise(path))
    assert spoken(linearise(entries, leaf.id)) == [entry.id for entry in path]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdefgh")), max_size=8))
def test_path_ends_at_cycle_or_missing_parent(pairs: list[tuple[str, str]]) -> None:
    entries = [said(entry_id, parent) for entry_id, parent in pairs]
    for leaf in "abcdefgh":
        path = EntryTree(entries, leaf).path()
        assert len({entry.id for entry in path}) == len(path)


def test_compaction_replaces_summarised_messages() -> None:
    path = [
        said("a", None),
        said("b", "a"),
        compaction("first", "a", 10).at("s", "b", 5),
        said("c", "s"),
        said("d", "c"),
        compaction("second", "c", 20).at("t", "d", 5),
        said("e", "t"),
    ]
    found = spoken(linearise(path, "e"))
    assert "second" in found[0] and "first" not in " ".join(found)
    assert found[1:] == ["c", "d", "e"]
    assert "first" in spoken(linearise(path, "d"))[0]
    assert spoken(linearise(path, "d"))[1:] == ["a", "b", "c", "d"]


def test_compaction_with_unknown_first_entry_keeps_none_before() -> None:
    path = [said("a", None), compaction("sum", "zz", 1).at("s", "a", 5), said("b", "s")]
    assert spoken(messages_of(path))[1:] == ["b"]


def test_branch_summaries_are_in_context_and_notes_are_not() -> None:
    path = [
        TranscriptEntry("a", None, "branch_summary", 5, {"fromId": "x", "summary": "we tried"}),
        TranscriptEntry("b", "a", "custom_message", 5, {"customType": "x", "content": "seen"}),
        TranscriptEntry("c", "b", "custom", 5, {"customType": "x", "data": {"text": "unseen"}}),
        TranscriptEntry("d", "c", "label", 5, {"targetId": "a", "label": "unseen"}),
        TranscriptEntry("e", "d", "session_info", 5, {"name": "unseen"}),
        TranscriptEntry("f", "e", "something_new", 5, {"content": "unseen"}),
    ]
    found = spoken(linearise(path, "f"))
    assert len(found) == 2 and "we tried" in found[0] and found[1] == "seen"


def test_model_state_is_the_last_recorded() -> None:
    path = [
        model_change("a", "1").at("a", None, 5),
        thinking_level_change("low").at("b", "a", 5),
        model_change("b", "2").at("c", "b", 5),
    ]
    assert model_state_of(path) == TranscriptModelState("b", "2", "low")
    assert model_state_of(sample("chat")) == TranscriptModelState("mock", "mock-1", "off")


def test_orphan_is_found_with_its_parent() -> None:
    answered = [said("a", None), said("b", "a", "assistant")]
    assert orphan_of(answered) is None
    assert orphan_of(answered[:1]) == OrphanedMessage("a", None)
    asked = [*answered, said("c", "b"), model_change("x", "y").at("d", "c", 5)]
    assert orphan_of(asked) == OrphanedMessage("c", "b")
    assert orphan_of([]) is None


def call(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(one, "t", {}) for one in ids), 9)


def result(call_id: str) -> Message:
    return Message("tool", (ToolResult(call_id, "t", (Text("done"),)),), 9)


def test_pair_calls_puts_results_right_after_calls() -> None:
    talk = [
        user_message("go"),
        call("1", "2"),
        result("2"),
        user_message("x"),
        result("1"),
        call("3"),
    ]
    paired = pair_calls(talk)
    assert unpaired_calls(paired) == ()
    assert [message.role for message in paired] == [
        "user", "assistant", "tool", "tool", "user", "assistant", "tool",
    ]  # fmt: skip
    made = paired[3].parts[0]
    assert isinstance(made, ToolResult) and made.is_error and "interrupted" in made.text
    assert pair_calls(paired) == paired


@given(st.lists(st.one_of(
    st.just(user_message("u")),
    st.lists(st.sampled_from("123"), max_size=3, unique=True).map(lambda ids: call(*ids)),
    st.sampled_from("123").map(result),
), max_size=10))  # fmt: skip
def test_pair_calls_leaves_no_open_call_and_other_messages(talk: list[Message]) -> None:
    paired = pair_calls(talk)
    assert unpaired_calls(paired) == ()
    spoken_before = [message for message in talk if message.role != "tool"]
    assert [message for message in paired if message.role != "tool"] == spoken_before
    assert pair_calls(paired) == paired
