"""Entries in lists of tools that mean nothing are warned about, with the closest name."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.config.schema import Config
from homarus.policy.tool_call import ToolDeclaration
from homarus.policy.unknown_names import named_tool_lists, unknown_name_warnings
from homarus.process import open_app
from homarus.tools import catalog
from homarus.tools.catalog import describe_list_problems

GROUP = {"-1": {"tools": {"deny": ["exce"]}, "toolsBySender": {"7": {"allow": ["raed"]}}}}


def warnings(tree: dict[str, Any]) -> tuple[str, ...]:
    return describe_list_problems(Config.model_validate(tree))


@pytest.mark.parametrize(
    ("tree", "place", "hint"),
    [
        ({"tools": {"deny": ["file_wriet"]}}, "tools.deny: 'file_wriet'", "file_write"),
        ({"tools": {"allow": ["group:filez"]}}, "tools.allow: 'group:filez'", "group:fs"),
        ({"tools": {"deny": ["zzz*"]}}, "tools.deny: 'zzz*'", "no tool"),
        ({"tools": {"profile": "full", "alsoAllow": ["brwoser"]}}, "tools.alsoAllow", "browser"),
        ({"tools": {"byProvider": {"x": {"deny": ["execc"]}}}}, "tools.byProvider.x.deny", "exec"),
        ({"tools": {"subagents": {"tools": {"deny": ["cronn"]}}}}, "tools.subagents", "cron"),
        ({"tools": {"sandbox": {"tools": {"alsoAllow": ["web_fecth"], "deny": ["discord"]}}}},
         "tools.sandbox.tools.alsoAllow: 'web_fecth'", "web_fetch"),
        ({"agents": {"list": [{"id": "a", "tools": {"sandbox": {"tools": {"deny": ["exce"]}}}}]}},
         "tools.sandbox.tools of agent a.deny: 'exce'", "exec"),
        ({"agents": {"list": [{"id": "a", "tools": {"deny": ["reed"]}}]}}, "agent a", "read"),
        ({"agents": {"list": [{"id": "a", "tools": {"policy": {"deny": ["reed"]}}}]}},
         "tools.policy of agent a", "read"),
        ({"agents": {"defaults": {"contextPruning": {"tools": {"deny": ["reed"]}}}}},
         "contextPruning.tools.deny", "read"),
    ],
)  # fmt: skip
def test_unknown_name_is_warned_about(tree: dict[str, Any], place: str, hint: str) -> None:
    (text,) = warnings(tree)
    assert place in text and hint in text


@pytest.mark.parametrize("entry", ["group:skills", "skill:notes", "skill:*", "Skill:My Notes"])
def test_names_of_skills_are_known_and_restrict(entry: str) -> None:
    assert warnings({"tools": {"deny": [entry]}}) == warnings({"tools": {"allow": [entry]}}) == ()


def test_unknown_names_of_groups_and_senders_are_warned_about() -> None:
    channels = {"telegram": {"groups": GROUP, "accounts": {"b": {"groups": GROUP}}}}
    places = [text.partition(": '")[0] for text in warnings({"channels": channels})]
    base = ("channels.telegram", "channels.telegram.accounts.b")
    assert places == [
        f"{path}.groups.-1.{rest}"
        for path in base
        for rest in ("tools.deny", "toolsBySender.7.allow")
    ]


def test_known_names_are_not_warned_about() -> None:
    names = ["exec", "Shell", "file_*", "*", "group:fs", "group:plugins", "ui_prompt", "terminal"]
    assert warnings({"tools": {"deny": names}}) == ()


def test_allow_list_of_plugins_alone_is_warned_about() -> None:
    tools = [ToolDeclaration("read"), ToolDeclaration("forecast", source="weather")]
    for names in (["weather"], ["group:plugins"]):
        (text,) = unknown_name_warnings([("tools", "allow", names)], tools)
        assert "restricts nothing" in text
    assert not [*unknown_name_warnings([("tools", "allow", ["weather", "read"])], tools)]


def test_config_without_lists_loads_no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "known_declarations", None)
    assert named_tool_lists(Config()) == () and describe_list_problems(Config()) == ()


async def test_unknown_name_is_warned_about_at_load_and_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".openclaw").mkdir()
    tree = {"tools": {"deny": ["shel"]}, "logging": {"level": "silent"}}
    (tmp_path / ".openclaw/openclaw.json").write_text(json.dumps(tree))
    warned = list[str]()
    async with open_app({"HOME": str(tmp_path)}, warn=warned.append) as app:
        assert any("'shel' is no tool" in text for text in warned)
        monkeypatch.setattr(catalog.log, "warning", lambda _form, text: warned.append(text))
        warned.clear()
        await app.reload(app.loaded)
    assert any("'shel' is no tool" in text for text in warned)
