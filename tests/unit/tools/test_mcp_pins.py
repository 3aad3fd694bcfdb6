"""Names of servers' tools, and what is trusted of their descriptions."""

import json
from pathlib import Path

import pytest

from homarus.policy.tool_policy import normalize_tool_name
from homarus.tools.catalog import describe_list_problems
from homarus.tools.mcp.record_store import McpRecordStore
from homarus.tools.mcp.server_settings import resolve_server
from homarus.tools.mcp.tool_names import make_tool_name
from homarus.tools.mcp.tool_pins import (
    MAX_DESCRIPTION_CHARS,
    ServerListing,
    ServerRecord,
    accept_tool,
    decode_record,
    describe_change,
    encode_record,
    merge_listing,
    read_tool_text,
)
from tests.unit.tools.mcp_builders import make_config

PLAIN = {"type": "object", "properties": {"a": {"type": "string", "description": "Some text."}}}


def listing(**descriptions: str) -> ServerListing:
    texts = {name: read_tool_text(about, PLAIN) for name, about in descriptions.items()}
    return ServerListing({name: text for name, text in texts.items() if text})


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("read_file", "files__read_file"),
        ("read/file.v2 ☃", "files__read_file_v2__"),
        ("get-sum", "files__get-sum"),
    ],
)
def test_tool_name_has_letters_that_all_services_accept(tool: str, name: str) -> None:
    assert make_tool_name("files", tool) == name


def test_tool_names_that_are_long_or_taken_get_a_stable_suffix() -> None:
    long = make_tool_name("files", "x" * 100)
    assert len(long) == 64 and long == make_tool_name("files", "x" * 100)
    assert long != make_tool_name("files", f"{'x' * 100}y")
    taken = {normalize_tool_name("files__a-b")}
    other = make_tool_name("files", "a.b", taken)
    assert other.startswith("files__a_b_") and other == make_tool_name("files", "a.b", taken)


def test_colliding_tools_keep_their_names_when_others_are_added() -> None:
    first = merge_listing(None, "s", listing(**{"z-b": "Zb."}))
    second = merge_listing(first, "s", listing(**{"z-b": "Zb.", "z.b": "Other.", "Z_B": "More."}))
    names = {tool.name: tool.call_name for tool in second.tools}
    assert names["z-b"] == "s__z-b"
    assert len({normalize_tool_name(each) for each in names.values()}) == 3
    utility = merge_listing(None, "s", listing(resources_read="Mine."))
    assert utility.tools[0].call_name != "s__resources_read"


def test_description_and_schema_texts_are_limited_and_escaped() -> None:
    text = read_tool_text("a\u202eb\x1b[31m\u200b" + "x" * 5_000, PLAIN)
    assert text and len(text.description) == MAX_DESCRIPTION_CHARS
    assert text.description.startswith("a\\u{202e}b\\u{1b}[31m\\u{200b}x")
    hidden = {"type": "object", "properties": {"a\u202e": {"description": "\U000e0041"}}}
    escaped = read_tool_text("", hidden)
    assert escaped and json.dumps(escaped.schema).isascii()
    assert "\U000e0041" not in json.dumps(escaped.schema, ensure_ascii=False)
    assert read_tool_text("", {"type": "array"}) is None
    assert read_tool_text("", {**PLAIN, "description": "x" * 20_000}) is None


def test_change_beyond_the_limit_of_a_description_is_noticed() -> None:
    before = merge_listing(None, "s", listing(a="x" * 2_000 + "1"))
    after = merge_listing(before, "s", listing(a="x" * 2_000 + "2"))
    assert after.pending and after.tools[0].shown == before.tools[0].trusted


def test_new_tool_shows_no_text_of_its_server_until_accepted() -> None:
    record = merge_listing(merge_listing(None, "s", listing(a="A.")), "s", listing(a="A.", b="B."))
    [tool] = record.pending
    assert "hidden" in tool.shown.description
    assert tool.shown.schema["properties"] == {"a": {"type": "string"}}
    assert "+B." in describe_change(tool) and tool.pending
    assert accept_tool(record, "b", "another digest") == record
    accepted = accept_tool(record, "b", tool.pending.digest)
    assert not accepted.pending and accepted.tools[1].shown.description == "B."
    assert decode_record(json.loads(json.dumps(encode_record(record)))) == record


def test_records_are_read_again_after_another_process_wrote_them(tmp_path: Path) -> None:
    ours, theirs = McpRecordStore(tmp_path), McpRecordStore(tmp_path)
    assert ours.find("s") is None
    before = ours.revision
    theirs.update("s", lambda known: merge_listing(known, "s", listing(a="A.")))
    assert ours.revision != before
    found = ours.find("s")
    assert found and found.tools[0].call_name == "s__a"
    (tmp_path / "mcp" / "s.json").write_text("{", encoding="utf-8")
    assert McpRecordStore(tmp_path).find("s") is None
    ours.update("s", lambda known: known or ServerRecord("s"))
    theirs.remove("s")
    assert McpRecordStore(tmp_path).find("s") is None


def test_place_of_a_server_has_no_secrets() -> None:
    url = "https://user:secret@a.example/mcp?token=secret"
    entry = {"url": url, "headers": {"Authorization": "Bearer secret"}, "timeout": 3}
    settings = resolve_server(make_config({"s": entry}), "s")
    assert settings.place == "https://a.example/mcp" and settings.request_s == 3
    assert (
        "secret"
        not in resolve_server(
            make_config({"s": {"command": "npx", "args": ["--key", "secret"]}}), "s"
        ).place
    )


def test_lists_of_tools_may_name_servers_and_their_tools() -> None:
    deny = ["files", "files__x", "files__*", "group:mcp", "nope"]
    config = make_config({"files": {"command": "a"}}, tools={"deny": deny})
    [warning] = describe_list_problems(config)
    assert "'nope'" in warning
