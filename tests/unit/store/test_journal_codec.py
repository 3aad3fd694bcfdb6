import json
from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import CorruptDataError
from homarus.core.message import (
    Address,
    Authority,
    Button,
    ChatKind,
    ClientOptions,
    ClientTool,
    Extras,
    HeartbeatOptions,
    Image,
    Inbound,
    InboundMetadata,
    InputProvenance,
    Media,
    MediaKind,
    Poll,
    ProvenanceKind,
    RunOptions,
    TextStyle,
)
from homarus.store.journal import PREVIEW_CHARS
from homarus.store.journal_codec import (
    decode_body,
    decode_extras,
    decode_inbound,
    digest_of,
    encode_extras,
    encode_inbound,
    new_inbox_record,
    preview_of,
    storable_ids,
    to_storable,
)
from homarus.store.transcript_codec import dump_json, load_json

words = st.text(max_size=20)
whole_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def heartbeats(text: st.SearchStrategy[str]) -> st.SearchStrategy[HeartbeatOptions]:
    made = {
        one.name: text if one.default == "" else st.booleans() for one in fields(HeartbeatOptions)
    }
    return st.builds(HeartbeatOptions, **{**made, "ack_max_chars": st.integers(0, 2**31)})


def run_options(text: st.SearchStrategy[str]) -> st.SearchStrategy[RunOptions]:
    asked = {field.name: st.none() | text for field in fields(RunOptions)}
    chat = st.lists(text, max_size=4).map(tuple)
    kinds = st.sampled_from(get_args(ProvenanceKind))
    source = st.none() | st.builds(InputProvenance, kinds, text, text, text)
    given = {
        "timeout_s": st.none() | st.floats(0, 1e9),
        "deliver_to": chat,
        "extra_system_prompt": text,
        "provenance": source,
        "taint": st.lists(st.tuples(text, text), max_size=2).map(tuple),
        "lane": text,
        "heartbeat": st.none() | heartbeats(text),
        "client": st.none() | clients(text),
    }
    return st.builds(RunOptions, **{**asked, **given})


def clients(text: st.SearchStrategy[str]) -> st.SearchStrategy[ClientOptions]:
    values = st.dictionaries(text, text, max_size=2)
    tools = st.lists(st.builds(ClientTool, text, text, values), max_size=2).map(tuple)
    messages = st.lists(values, max_size=2).map(tuple)
    return st.builds(ClientOptions, tools, st.booleans(), messages, messages, values)


def metadata(text: st.SearchStrategy[str]) -> st.SearchStrategy[InboundMetadata]:
    kinds, flag = st.sampled_from(get_args(ChatKind)), st.booleans()
    made = {one.name: text if one.default == "" else flag for one in fields(InboundMetadata)}
    words = st.lists(text, max_size=2).map(tuple)
    return st.builds(InboundMetadata, **{**made, "kind": kinds, "roles": words, "slugs": words})


def medias(text: st.SearchStrategy[str]) -> st.SearchStrategy[Media]:
    made = {one.name: text for one in fields(Media)}
    kinds = st.sampled_from(get_args(MediaKind))
    return st.builds(Media, **{**made, "kind": kinds, "size": st.integers(0, 2**53)})


def extras(text: st.SearchStrategy[str]) -> st.SearchStrategy[Extras]:
    rows = st.lists(st.builds(Button, text, text), max_size=2).map(tuple)
    numbers = st.integers(0, 2**31)
    made = {
        "reply_to": text,
        "replaces": text,
        "media": st.lists(medias(text), max_size=2).map(tuple),
        "as_voice": st.booleans(),
        "buttons": st.lists(rows, max_size=2).map(tuple),
        "silent": st.booleans(),
        "recipient": text,
        "poll": st.none() | st.builds(Poll, text, st.lists(text, max_size=3).map(tuple)),
        "styles": st.lists(st.builds(TextStyle, numbers, numbers, text), max_size=2).map(tuple),
        "subject": text,
        "thread_title": text,
        "thread_from": text,
        "thread_on": text,
    }
    assert {field.name for field in fields(Extras)} == set(made), "a new field must be kept too"
    return st.builds(Extras, **made)


def inbounds(text: st.SearchStrategy[str]) -> st.SearchStrategy[Inbound]:
    made = {
        "id": text,
        "address": st.builds(Address, text, text, text, st.none() | text),
        "sender": text,
        "text": text,
        "images": st.lists(st.builds(Image, text, text), max_size=2).map(tuple),
        "at_ms": st.integers(0, 2**53),
        "options": run_options(text),
        "run_id": text,
        "authority": st.sampled_from(get_args(Authority)),
        "metadata": metadata(text),
        "media": st.lists(medias(text), max_size=2).map(tuple),
        "group_history": text,
        "copy_for": text,
        "matched_by": text,
    }
    assert {field.name for field in fields(Inbound)} == set(made), "a new field must be kept too"
    return st.builds(Inbound, **made)


# Every field set, written once as it is stored. This text never changes: it is on users' disks.
FULL_MEDIA = Media("voice", "audio/ogg", "note.ogg", 7, "file-9", "/media/note.ogg", "too large")
FULL_MEDIA_JSON = (
    '{"kind":"voice","mime":"audio/ogg","name":"note.ogg","size":7,"ref":"file-9",'
    '"path":"/media/note.ogg","problem":"too large"}'
)
FULL_INBOUND = Inbound(
    "m1",
    Address("telegram", "42", "work", "7"),
    "ann",
    "hello",
    (Image("AAAA", "image/png"),),
    1_000,
    RunOptions(
        *("openai/gpt-5", "high", 2.5, "on", "off", ("irc", "#room", "default", "")),
        "Be brief.",
        InputProvenance("inter_session", "agent:ops:main", "irc", "sessions_send"),
        *("gateway", "full", "always", "ask"),
        *("weather", "in Oslo"),
        (("web", "a.example"),),
        "nested",
        HeartbeatOptions(20, True, False, "Rain!", "agent:main:main", True, True),
        ClientOptions(
            (ClientTool("weather", "Rain?", {"type": "object"}),),
            True,
            ({"role": "toolResult"},),
            ({"role": "user"},),
            {"top_p": 0.5},
        ),
    ),
    "run-1",
    "owner",
    InboundMetadata(
        *("group", "Team", "Ann", "@ann", True, True, True, False, "m0", True),
        *("before", "Bob", "41", "album-1", "guild-1", "team-1", ("admin", "dev")),
        *("gif", True, "~ann@home", "ap-1 deny", True, "friends", ("plans", "boat")),
        quotes_others=True,
    ),
    (FULL_MEDIA,),
    "earlier words",
    "main",
    "binding.peer",
)
FULL_SOURCE_JSON = (
    ',"extra_system_prompt":"Be brief.","provenance":{"kind":"inter_session",'
    '"session_key":"agent:ops:main","channel":"irc","tool":"sessions_send"}'
)
FULL_EXEC_JSON = (
    ',"exec_host":"gateway","exec_security":"full","exec_ask":"always","elevated":"ask"'
)
FULL_SKILL_JSON = ',"skill":"weather","skill_input":"in Oslo"'
FULL_LANE_JSON = ',"taint":[["web","a.example"]],"lane":"nested"'
FULL_HEARTBEAT_JSON = (
    ',"heartbeat":{"ack_max_chars":20,"shows_ok":true,"shows_alerts":false,"last_alert":"Rain!",'
    '"session":"agent:main:main","is_light":true,"suppresses_tool_errors":true}'
)
FULL_CLIENT_JSON = (
    ',"client":{"tools":[["weather","Rain?",{"type":"object"}]],"disables_tools":true,'
    '"results":[{"role":"toolResult"}],"history":[{"role":"user"}],"params":{"top_p":0.5}}'
)
FULL_INBOUND_JSON = (
    '{"id":"m1","channel":"telegram","account":"work","chat":"42","sender":"ann","text":"hello",'
    '"at":1000,"thread":"7","images":[{"mime":"image/png","data":"AAAA"}],'
    '"wishes":{"model":"openai/gpt-5","thinking":"high","timeout":2.5,"verbose":"on",'
    '"reasoning":"off","deliver_to":["irc","#room","default",""]'
    + FULL_SOURCE_JSON
    + FULL_EXEC_JSON
    + FULL_SKILL_JSON
    + FULL_LANE_JSON
    + FULL_HEARTBEAT_JSON
    + FULL_CLIENT_JSON
    + '},"run":"run-1",'
    '"authority":"owner",'
    '"occasion":{"kind":"group","title":"Team","name":"Ann","handle":"@ann","is_bot":true,'
    '"mentioned":true,"elsewhere":true,"detects":false,"reply_to":"m0",'
    '"answers_us":true,"quoted":"before","forwarded":"Bob","parent":"41","album":"album-1",'
    '"guild":"guild-1","team":"team-1","roles":["admin","dev"],"via_bot":"gif","is_press":true,'
    '"holder":"~ann@home","approval":"ap-1 deny","is_limited":true,'
    '"guild_slug":"friends","slugs":["plans","boat"],"quotes_others":true},'
    f'"media":[{FULL_MEDIA_JSON}],"before":"earlier words","copyFor":"main",'
    '"matchedBy":"binding.peer"}'
)
FULL_INBOUND_DIGEST = "f29119d9d4a3af613a8da20f124add9d2a04221d5be78ca7f7820da0a1ae112d"
BEFORE_CLIENTS_DIGEST = "1ef0952432d96d62be404513ea508a4003bf0445de53b3638d1e3d6243dff3de"
BEFORE_HEARTBEATS_DIGEST = "90b26b3f65006466a62dd80f795ab0f092fd2ea2e45a7f9e58f1063c4405e99e"
BEFORE_LANES_DIGEST = "891deaa23d5b0cc588bcbb59cc38838e5ba36110f2e16bf75eed19f919d69f48"
BEFORE_EXEC_DIGEST = "a15da3dceae0d4dd97a9807424cec65f9d60fe9a2eaec4df731e4d80800b9442"
BEFORE_DIGEST = "4e9ca02b572b2b82602ab3885f30bef279963f9e79787da953acedbf19750df3"
STORED_BEFORE_CLIENTS = FULL_INBOUND_JSON.replace(FULL_CLIENT_JSON, "")
STORED_BEFORE_HEARTBEATS = STORED_BEFORE_CLIENTS.replace(FULL_HEARTBEAT_JSON, "")
STORED_BEFORE_LANES = STORED_BEFORE_HEARTBEATS.replace(FULL_SKILL_JSON + FULL_LANE_JSON, "")
STORED_BEFORE_EXEC = STORED_BEFORE_LANES.replace(FULL_EXEC_JSON, "")
OPTIONS_BEFORE_CLIENTS = replace(FULL_INBOUND.options, client=None)
OPTIONS_BEFORE_HEARTBEATS = replace(OPTIONS_BEFORE_CLIENTS, heartbeat=None)
OPTIONS_BEFORE_LANES = replace(
    OPTIONS_BEFORE_HEARTBEATS, skill="", skill_input=None, taint=(), lane=""
)
OPTIONS_BEFORE = replace(
    OPTIONS_BEFORE_LANES, exec_host=None, exec_security=None, exec_ask=None, elevated=None
)
FULL_EXTRAS = Extras(
    "m1",
    "m0",
    (FULL_MEDIA,),
    True,
    ((Button("Yes", "y"),),),
    True,
    "~ann@home",
    Poll("Q", ("a", "b"), 60, True),
    (TextStyle(0, 2, "BOLD"),),
    "Lunch",
    "Plans",
    "run-1:0",
    "m1",
)
FULL_EXTRAS_JSON = (
    f'{{"reply_to":"m1","replaces":"m0","media":[{FULL_MEDIA_JSON}],"as_voice":true,'
    '"buttons":[[["Yes","y"]]],"silent":true,"recipient":"~ann@home","poll":["Q",["a","b"],60,true],'
    '"styles":[[0,2,"BOLD"]],"subject":"Lunch","thread_title":"Plans","thread_from":"run-1:0",'
    '"thread_on":"m1"}'
)


def test_codec_full_inbound_matches_stored_json() -> None:
    assert dump_json(encode_inbound(FULL_INBOUND)) == FULL_INBOUND_JSON
    assert decode_inbound(load_json(FULL_INBOUND_JSON)) == FULL_INBOUND
    assert digest_of("agent:main:main", FULL_INBOUND) == FULL_INBOUND_DIGEST


def test_codec_inbound_stored_without_text_origin_is_read() -> None:
    before = FULL_INBOUND_JSON.replace(',"via_bot":"gif","is_press":true,"holder":"~ann@home"', "")
    metadata = replace(FULL_INBOUND.metadata, via_bot="", is_press=False, holder="")
    assert decode_inbound(load_json(before)) == replace(FULL_INBOUND, metadata=metadata)


def test_codec_inbound_stored_without_source_keeps_digest() -> None:
    before = decode_inbound(load_json(STORED_BEFORE_EXEC.replace(FULL_SOURCE_JSON, "")))
    assert before.options == replace(OPTIONS_BEFORE, extra_system_prompt="", provenance=None)
    assert digest_of("agent:main:main", before) == BEFORE_DIGEST


def test_codec_inbound_stored_without_exec_options_keeps_digest() -> None:
    before = decode_inbound(load_json(STORED_BEFORE_EXEC))
    assert before == replace(FULL_INBOUND, options=OPTIONS_BEFORE)
    assert digest_of("agent:main:main", before) == BEFORE_EXEC_DIGEST


def test_codec_inbound_stored_without_skill_and_lane_keeps_digest() -> None:
    before = decode_inbound(load_json(STORED_BEFORE_LANES))
    assert before == replace(FULL_INBOUND, options=OPTIONS_BEFORE_LANES)
    assert digest_of("agent:main:main", before) == BEFORE_LANES_DIGEST


def test_codec_inbound_stored_without_heartbeat_keeps_digest() -> None:
    before = decode_inbound(load_json(STORED_BEFORE_HEARTBEATS))
    assert before == replace(FULL_INBOUND, options=OPTIONS_BEFORE_HEARTBEATS)
    assert digest_of("agent:main:main", before) == BEFORE_HEARTBEATS_DIGEST


def test_codec_inbound_stored_without_client_keeps_digest() -> None:
    before = decode_inbound(load_json(STORED_BEFORE_CLIENTS))
    assert before == replace(FULL_INBOUND, options=OPTIONS_BEFORE_CLIENTS)
    assert digest_of("agent:main:main", before) == BEFORE_CLIENTS_DIGEST


def test_codec_full_extras_matches_stored_json() -> None:
    assert encode_extras(FULL_EXTRAS) == FULL_EXTRAS_JSON
    assert decode_extras(FULL_EXTRAS_JSON) == FULL_EXTRAS


def test_codec_golden_values_set_every_field() -> None:
    for value in (FULL_INBOUND, FULL_INBOUND.metadata, FULL_INBOUND.options, FULL_MEDIA):
        unset = [
            field.name for field in fields(value) if getattr(value, field.name) == field.default
        ]
        assert unset == []


HELLO = Inbound("m1", Address("telegram", "42"), "ann", "hello")


@given(inbounds(words))
def test_inbound_json_any_message_round_trips(inbound: Inbound) -> None:
    assert decode_inbound(encode_inbound(inbound)) == inbound


@given(extras(words))
def test_extras_any_value_round_trips(carried: Extras) -> None:
    assert decode_extras(encode_extras(carried)) == carried


def test_extras_default_value_is_empty_column() -> None:
    assert encode_extras(Extras()) == ""


@pytest.mark.parametrize("text", ["[]", "{", '{"colour": "red"}', '{"buttons": [[["a"]]]}', "7"])
def test_read_extras_foreign_text_raises_corrupt(text: str) -> None:
    with pytest.raises(CorruptDataError):
        decode_extras(text)


def test_digest_media_downloaded_or_not_is_equal() -> None:
    offered = replace(HELLO, media=(Media("image", ref="f1"),))
    had = replace(offered, images=(Image("a", "image/png"),), group_history="context")
    assert digest_of("s", had) == digest_of("s", offered)
    assert digest_of("s", replace(HELLO, media=(Media("image", ref="f2"),))) != digest_of("s", had)


@given(inbounds(whole_words))
def test_inbound_json_as_text_round_trips(inbound: Inbound) -> None:
    assert decode_body(dump_json(encode_inbound(inbound))) == inbound
    assert decode_inbound(json.loads(json.dumps(encode_inbound(inbound)))) == inbound


@given(inbounds(words))
def test_new_record_any_message_is_storable(inbound: Inbound) -> None:
    arrival = new_inbox_record("agent:main:main", inbound, 7)
    row = arrival.record
    for text in (row.id, row.message_id, row.sender, row.preview, row.channel):
        assert "\0" not in text
        text.encode()
    arrival.body.encode()
    assert row.id and row.message_id
    kept = decode_body(arrival.body)
    assert kept is not None and kept.at_ms == inbound.at_ms
    others = [other.record for other in arrival.as_conflict()]
    marks, ids = {other.message_id for other in others}, {other.id for other in others}
    assert len(marks) == len(ids) == 3 and row.id not in ids
    assert all(other.state == "parked" and other.why for other in others)


@given(inbounds(words), words, st.integers(), words)
def test_digest_same_text_at_another_time_is_equal(
    inbound: Inbound, session: str, at_ms: int, sender: str
) -> None:
    other = replace(inbound, at_ms=at_ms, sender=sender, run_id="r", id="i")
    assert digest_of(session, other) == digest_of(session, inbound)


@pytest.mark.parametrize(
    "other",
    [
        replace(HELLO, text="hello "),
        replace(HELLO, address=replace(HELLO.address, chat="43")),
        replace(HELLO, images=(Image("a", "image/png"),)),
        replace(HELLO, images=(Image("image/png", "a"),)),
        replace(HELLO, options=RunOptions(model="x")),
        replace(HELLO, options=RunOptions(thinking="x")),
        replace(HELLO, options=RunOptions(timeout_s=1.0)),
    ],
)
def test_digest_different_content_differs(other: Inbound) -> None:
    assert digest_of("s", other) != digest_of("s", HELLO)
    assert digest_of("s2", HELLO) != digest_of("s", HELLO)


def test_digest_parts_moved_between_fields_differs() -> None:
    one = Inbound("m", Address("t", "a"), "x", "bc")
    other = Inbound("m", Address("t", "ab"), "x", "c")
    assert digest_of("s", one) != digest_of("s", other)
    assert digest_of("sa", one) != digest_of("s", replace(one, address=Address("t", "aa")))


@pytest.mark.parametrize(
    "bad",
    [None, [], "x", 7, {}, {"id": "m"}, {**encode_inbound(HELLO), "images": [7]},
     {**encode_inbound(HELLO), "wishes": "x"}],
)  # fmt: skip
def test_read_inbound_foreign_json_raises_corrupt(bad: object) -> None:
    with pytest.raises(CorruptDataError):
        decode_inbound(bad)
    assert decode_body(json.dumps(bad)) is None


def test_read_body_invalid_json_returns_none() -> None:
    assert decode_body("{") is None
    assert decode_body(None) is None


def test_preview_long_text_is_one_short_line() -> None:
    assert preview_of("  hello\n\n world ") == "hello world"
    assert preview_of("") == "" and preview_of(" \n" * 500) == ""
    long = preview_of("word " * 10_000)
    assert len(long) == PREVIEW_CHARS and long.endswith("…")
    assert preview_of("a\u202eb\0") == "a\\u{202e}b\\u{0}"


@given(words)
def test_storable_text_changes_only_unstorable_characters(text: str) -> None:
    assert to_storable(to_storable(text)) == to_storable(text)
    assert len(to_storable(text)) == len(text)
    assert [new for old, new in zip(text, to_storable(text), strict=True) if old != new] == [
        "\ufffd" for ch in text if ch == "\0" or "\ud800" <= ch <= "\udfff"
    ]


def test_storable_ids_keeps_order_without_repeats() -> None:
    assert storable_ids(["b", "a\0", "b", "a\ufffd"]) == ("b", "a\ufffd")
    assert load_json(dump_json({"a": "b"})) == {"a": "b"}


def test_new_record_copies_for_agents_have_distinct_ids() -> None:
    first, other = (
        new_inbox_record("s", HELLO, 7).record,
        new_inbox_record("s2", replace(HELLO, copy_for="ops"), 7).record,
    )
    assert (first.message_id, other.message_id) == ("m1", "m1@ops")
    assert other.inbound is not None and other.inbound.id == "m1"
