"""Prompts composed from a workspace: which files they have, and that they are stable."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homarus.agent.agent import Agent, make_agent
from homarus.agent.prompt.chat_context import (
    NO_CHAT,
    ChatContext,
    resolve_chat_context,
    with_memory,
)
from homarus.agent.prompt.composer import PromptComposer
from homarus.agent.prompt.injection import WorkspaceFile
from homarus.agent.prompt.report import ReportContext, format_report, read_report
from homarus.agent.workspace import seed_workspace
from homarus.channels.registry import find_traits
from homarus.config.agent_settings import resolve_agent_settings
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.installation import find_docs
from homarus.core.message import Address
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import ToolCallFacts, ToolDeclaration
from homarus.policy.tool_policy import PolicyRules
from homarus.policy.workspace_access import FULL_ACCESS, NO_ACCESS, FileScope
from homarus.providers.base import ToolSpec
from homarus.providers.catalog import ModelInfo

TOOLS = (ToolSpec("read", "Read a file. More.", {"type": "object", "properties": {"path": {}}}),)
MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:1"
LARGE = ModelInfo("mock", "mock-1")
SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    seed_workspace(tmp_path)
    (tmp_path / "MEMORY.md").write_text("- Ann's door code is 4711.")
    return tmp_path


def agent(workspace: Path, *, is_named: bool = False) -> Agent:
    return Agent("main", "Homarus", workspace, timezone="Europe/Berlin", is_named=is_named)


def test_composer_group_prompt_omits_private_files(home: Path) -> None:
    composer = PromptComposer()
    assert "4711" in composer.compose(agent(home), MAIN, LARGE, TOOLS).text
    text = composer.compose(agent(home), GROUP, LARGE, TOOLS).text
    assert "4711" not in text and "BOOTSTRAP" not in text and "a group on telegram" in text


def test_composer_group_activation_is_in_prompt(home: Path) -> None:
    entry = {"groupActivation": "always"}
    text = PromptComposer().compose(agent(home), GROUP, LARGE, TOOLS, entry=entry).text
    assert "You hear everything" in text


def test_composer_name_from_config_else_identity_file(home: Path) -> None:
    composer = PromptComposer()
    assert composer.compose(agent(home), MAIN, LARGE, ()).text.startswith("You are Homarus,")
    (home / "IDENTITY.md").write_text("- Name: Ada\n")
    assert composer.compose(agent(home), MAIN, LARGE, ()).text.startswith("You are Ada,")
    named = agent(home, is_named=True)
    assert composer.compose(named, MAIN, LARGE, ()).text.startswith("You are Homarus,")


def test_composer_configured_identity_is_in_prompt(home: Path) -> None:
    words = {"creature": "space\nlobster", "vibe": "sharp, precise", "emoji": "🦞"}
    config = Config.model_validate({"agents": {"list": [{"id": "main", "identity": words}]}})
    paths = Paths.find({"HOME": str(home)})
    own = make_agent(resolve_agent_settings(config, paths, "main"), config.tools)
    composer = PromptComposer()
    line = "Your identity: creature: space lobster; vibe: sharp, precise; emoji: 🦞.\n"
    own = replace(own, workspace=home)
    assert line in composer.compose(own, MAIN, LARGE, ()).text
    assert line not in composer.compose(own, "agent:main:subagent:1", LARGE, ()).text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.text("abc.-", min_size=1, max_size=8), max_size=6), st.booleans())
def test_composer_unrelated_changes_keep_prompt_bytes(
    home: Path, names: list[str], fresh: bool
) -> None:
    """Other files, another directory order, other sessions, another process."""
    composer = PromptComposer()
    first = composer.compose(agent(home), MAIN, LARGE, TOOLS).text
    for name in names:
        other = home / f"note-{name}.md"
        other.write_text(name)
    composer.compose(agent(home), GROUP, LARGE, TOOLS)
    (home / "memory").mkdir(exist_ok=True)
    (home / "memory" / "2026-04-15.md").write_text("a new day")
    again = PromptComposer() if fresh else composer
    assert again.compose(agent(home), MAIN, LARGE, TOOLS).text == first


def test_composer_same_facts_return_cached_prompt(home: Path) -> None:
    composer = PromptComposer()
    first = composer.compose(agent(home), MAIN, LARGE, TOOLS)
    assert composer.compose(agent(home), MAIN, LARGE, TOOLS) is first
    (home / "SOUL.md").write_text("Be terse.")
    assert "Be terse." in composer.compose(agent(home), MAIN, LARGE, TOOLS).text


def test_composer_hook_replaces_files(home: Path) -> None:
    composer = PromptComposer()
    files = [
        WorkspaceFile("SOUL.md", file.path, "You are a pirate.") if file.name == "SOUL.md" else file
        for file in composer.files(agent(home), MAIN)
    ]
    text = composer.compose(agent(home), MAIN, LARGE, TOOLS, files=files).text
    assert "You are a pirate." in text and "Be useful before" not in text


def test_composer_small_window_gets_small_prompt_and_no_tools(home: Path) -> None:
    composer = PromptComposer()
    (home / "AGENTS.md").write_text("x" * 30_000)
    small = composer.compose(agent(home), MAIN, ModelInfo("m", "s", window=8_192), TOOLS)
    assert small.profile == "small" and len(small.text) < 4_096
    tiny = ModelInfo("m", "t", window=4_096, calls_tools=False)
    embedded = composer.compose(agent(home), MAIN, tiny, TOOLS)
    assert embedded.profile == "embedded" and embedded.facts.tools == ()
    assert len(embedded.text) < 900
    told = composer.compose(agent(home), MAIN, tiny, TOOLS, extra="Speak Latin.")
    assert told.text == f"{embedded.text}\n\nSpeak Latin."
    dumb = composer.compose(agent(home), MAIN, ModelInfo("m", "d", calls_tools=False), TOOLS)
    assert dumb.profile == "full" and "## Tools" not in dumb.text


def test_composer_files_take_at_most_a_quarter_of_window(home: Path) -> None:
    for name in ("AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md"):
        (home / name).write_text("x" * 100_000)
    made = PromptComposer().compose(agent(home), MAIN, ModelInfo("m", "w", window=32_768), TOOLS)
    assert sum(len(file.text) for file in made.facts.files) <= 32_768


def test_composer_missing_workspace_raises_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        PromptComposer().compose(agent(tmp_path / "gone"), MAIN, LARGE, TOOLS)


# --- the report ----------------------------------------------------------------------------------


def test_prompt_report_round_trips_with_every_part(home: Path) -> None:
    (home / "AGENTS.md").write_text("x" * 30_000)
    (home / "USER.md").unlink()
    composer = PromptComposer()
    prompt = composer.compose(agent(home), MAIN, LARGE, TOOLS)
    report = composer.report(ReportContext(MAIN, "id-1", "mock", "mock-1", 17))
    stored = json.loads(json.dumps(report.to_json()))
    assert read_report(stored) == report
    assert report.chars == len(prompt.text)
    assert sum(part.chars for part in report.sections) + 2 * (len(report.sections) - 1) == (
        report.chars
    )
    files = {file.name: file for file in report.files}
    assert files["AGENTS.md"].truncated and files["AGENTS.md"].raw_chars == 30_000
    assert files["AGENTS.md"].injected_chars <= 20_000 and files["USER.md"].missing
    assert [(tool.name, tool.properties) for tool in report.tools] == [("read", 1)]
    shown = format_report(report, detail=True)
    for piece in ("AGENTS.md: ", " of 30,000, cut", "USER.md: missing", "Safety: ", "read: "):
        assert piece in shown


def test_prompt_report_equals_itself_at_another_time(home: Path) -> None:
    composer = PromptComposer()
    composer.compose(agent(home), MAIN, LARGE, TOOLS)
    kept = composer.report(ReportContext(MAIN, at_ms=1)).entry()
    stored = {"systemPromptReport": kept}
    assert composer.report_changes(ReportContext(MAIN, at_ms=2), stored) == {}
    other = ReportContext(MAIN, session_id="other", at_ms=3)
    changed = {"systemPromptReport": composer.report(other).entry()}
    assert composer.report_changes(other, stored) == changed
    assert list(changed["systemPromptReport"]) == list(kept), "in OpenClaw's order"
    assert composer.report_changes(other, {}) == changed
    (home / "AGENTS.md").write_text("Other rules.")
    composer.compose(agent(home), MAIN, LARGE, TOOLS)
    assert composer.report_changes(ReportContext(MAIN, at_ms=2), stored) != {}


def test_prompt_report_of_openclaw_is_read_and_has_same_keys(home: Path) -> None:
    entries = json.loads((SAMPLES / "sessions.json").read_text("utf-8"))
    theirs = next(e["systemPromptReport"] for e in entries.values() if "systemPromptReport" in e)
    report = read_report(theirs)
    assert report and report.chars == theirs["systemPrompt"]["chars"]
    assert len(report.tools) == len(theirs["tools"]["entries"])
    composer = PromptComposer()
    composer.compose(agent(home), MAIN, LARGE, TOOLS)
    ours = composer.report(ReportContext(MAIN)).entry()
    assert theirs.keys() == ours.keys()
    for part in ("systemPrompt", "skills", "tools"):
        assert theirs[part].keys() == ours[part].keys()
    for part in ("injectedWorkspaceFiles",):
        assert theirs[part][0].keys() == ours[part][0].keys()
    assert theirs["tools"]["entries"][0].keys() == ours["tools"]["entries"][0].keys()


@pytest.mark.parametrize("kept", [None, 5, [], {}, {"systemPrompt": 3}, {"systemPrompt": {},
    "tools": {"entries": [None, {"name": 4}]}, "sections": "x"}])  # fmt: skip
def test_read_report_damaged_value_is_tolerated(kept: object) -> None:
    report = read_report(kept)
    assert report is None or format_report(report, detail=True)


def test_chat_context_joins_prompts_of_group_and_topic(home: Path) -> None:
    channels = {
        "telegram": {
            "groups": {
                "-1": {"systemPrompt": "Be kind. ", "topics": {"5": {"systemPrompt": "Be brief."}}},
                "*": {"systemPrompt": "Be wary."},
            },
            "accounts": {"Work": {"reactionLevel": "extensive"}},
        }
    }

    config = Config.model_validate({"channels": channels})

    def chat_context(*place: str, thread: str | None = None, group: bool = True) -> ChatContext:
        chat, account = place
        return resolve_chat_context(
            config,
            Address("telegram", chat, account, thread),
            find_traits=find_traits,
            group=group,
        )

    assert (
        chat_context("-1", "default")
        == chat_context("telegram:-1", "default")
        == ChatContext("Be kind.")
    )
    assert chat_context("-1", "default", thread="5") == ChatContext("Be kind.\n\nBe brief.")
    assert chat_context("-2", "work", thread="5") == ChatContext("Be wary.", "extensive")
    assert chat_context("42", "work", group=False) == ChatContext(
        "", "extensive"
    )  # no group at all
    assert (
        resolve_chat_context(config, Address("irc", "-1"), find_traits=find_traits, group=True)
        == NO_CHAT
    )
    empty = Config.model_validate({"channels": {"x": None}})
    assert (
        resolve_chat_context(empty, Address("x", "1"), find_traits=find_traits, group=True)
        == NO_CHAT
    )
    text = (
        PromptComposer()
        .compose(agent(home), GROUP, LARGE, TOOLS, extra="Now.", chat=chat_context("-1", "default"))
        .text
    )
    assert "Be kind.\n\nNow." in text


def test_composer_message_tool_adds_reply_tags_and_reactions(home: Path) -> None:
    spec = ToolSpec("message", "Write.", {"type": "object", "properties": {}})
    chat = ChatContext(reactions="minimal")
    without = PromptComposer().compose(agent(home), MAIN, LARGE, TOOLS, chat=chat).text
    assert "## Reply Tags" not in without and "## Reactions" not in without
    text = PromptComposer().compose(agent(home), MAIN, LARGE, (*TOOLS, spec), chat=chat).text
    assert "## Reply Tags" in text and "## Reactions" in text and "Use `message`" in text


EXEC = ToolSpec("exec", "Run.", {"type": "object", "properties": {}})
WRITE = ToolSpec("write", "Write.", {"type": "object", "properties": {}})


def test_composer_notes_follow_session_files_and_tools(home: Path) -> None:
    def notes(key: str, *tools: ToolSpec, chat: ChatContext = NO_CHAT) -> tuple[str, ...]:
        return PromptComposer().compose(agent(home), key, LARGE, tools, chat=chat).facts.notes

    (home / ".git").mkdir(exist_ok=True)
    assert "commit what you change" in notes(MAIN, EXEC)[0]
    assert notes(MAIN, WRITE) == () and "read-only" in notes(GROUP, WRITE)[0]
    assert notes(GROUP, EXEC) == ()  # groups are not given BOOTSTRAP.md
    assert notes(GROUP, WRITE, chat=ChatContext(access=FULL_ACCESS)) == ()
    (home / "BOOTSTRAP.md").unlink()
    assert notes(MAIN, EXEC) == ()


def test_composer_levels_are_those_of_session(home: Path) -> None:
    def facts(key: str = MAIN, **entry: Any) -> tuple[str, str]:
        made = PromptComposer().compose(agent(home), key, LARGE, TOOLS, entry=entry).facts
        return made.thinking, made.reasoning

    assert facts() == (LARGE.default_thinking, "off")
    assert facts(thinkingLevel="high", reasoningLevel="stream") == ("high", "stream")
    assert facts(thinkingLevel="x\n## Safety", reasoningLevel=["on"]) == facts()
    assert facts("agent:main:cron:backup")[1] == ""  # no person sets it there
    low = replace(agent(home), thinking="low")
    assert PromptComposer().compose(low, MAIN, LARGE, TOOLS).facts.thinking == "low"


def test_composer_documentation_needs_tool_that_reads_it(home: Path) -> None:
    def docs(maker: Agent, *tools: ToolSpec) -> str:
        return PromptComposer().compose(maker, MAIN, LARGE, tools).facts.docs

    free, folder = replace(agent(home), docs=find_docs()), str(find_docs())
    assert docs(free, *TOOLS) == docs(agent(home), EXEC) == folder
    assert docs(agent(home), *TOOLS) == docs(free, WRITE) == ""


def test_composer_default_model_alias_is_resolved(home: Path) -> None:
    maker = replace(agent(home), model="quick", aliases=(("quick", "mock/mock-2"),))
    facts = PromptComposer().compose(maker, MAIN, LARGE, TOOLS).facts
    assert (facts.model, facts.default_model) == ("mock/mock-1", "mock/mock-2")


def test_composer_open_file_scope_is_in_the_prompt_of_the_owner(home: Path) -> None:
    line = "File tools take absolute paths outside it too."
    opened = replace(agent(home), file_scope=FileScope(protected=()))
    for access, is_told in ((FULL_ACCESS, True), (NO_ACCESS, False)):
        chat = ChatContext(access=access)
        for maker, expected in ((opened, is_told), (agent(home), False)):
            text = PromptComposer().compose(maker, MAIN, LARGE, TOOLS, chat=chat).text
            assert (line in text) is expected


def test_agent_docs_are_unreadable_with_workspace_only(tmp_path: Path) -> None:
    def docs(**tools: Any) -> Path | None:
        config = Config.model_validate({"tools": tools})
        settings = resolve_agent_settings(config, Paths.find({}, tmp_path), "main")
        return make_agent(settings, config.tools).docs

    assert docs() == docs(fs={"workspaceOnly": False}) == find_docs()
    assert docs(fs={"workspaceOnly": True}) is None


REMEMBERING = tuple(
    ToolSpec(name, f"Does {name}.", {"type": "object", "properties": {}})
    for name in ("memory_search", "memory_get", "memory_write")
)


def there(key: str, *, group: bool = False, channel: str = "", **memory: Any) -> tuple[bool, str]:
    """Return whether a session has memory tools, and its citation mode."""
    config = Config.model_validate({"memory": memory})
    chat = with_memory(NO_CHAT, config, key, channel, group=group)
    rules = PolicyRules().for_chat(chat.rules)

    def judge(name: str) -> str:
        return decide_tool_call(ToolCallFacts(ToolDeclaration(name)), chat.caller, rules).action

    judged = {judge(spec.name) for spec in REMEMBERING}
    assert len(judged) == 1 and judge("read") == "allow"
    return judged == {"allow"}, chat.citations


def test_chat_context_memory_tools_follow_scope() -> None:
    everywhere = {"scope": {"default": "allow"}}
    assert there(MAIN) == there("agent:main:telegram:direct:1") == (True, "auto")
    assert there(MAIN, citations="on") == (True, "on")
    assert there(GROUP)[0] is there("agent:main:slack:channel:c1")[0] is False
    assert there(MAIN, group=True)[0] is False  # others may read it
    assert there(GROUP, qmd=everywhere) == (True, "off")
    assert there(GROUP, qmd=everywhere, citations="on") == (True, "on")
    assert there("agent:main:subagent:1", qmd=everywhere)[0] is False
    deny = {"action": "deny", "match": {"channel": "irc"}}
    no_irc = {"scope": {"default": "allow", "rules": [deny]}}
    assert there(MAIN, channel="irc", qmd=no_irc)[0] is False
    assert there(MAIN, channel="telegram", qmd=no_irc)[0] is True


def test_composer_citations_follow_chat(home: Path) -> None:
    def composed(chat: ChatContext) -> str:
        return PromptComposer().compose(agent(home), MAIN, LARGE, REMEMBERING, chat=chat).text

    assert "Name your source with each" in composed(ChatContext(citations="on"))
    assert "Name no file" in composed(ChatContext(citations="off"))
    assert "where that helps" in composed(NO_CHAT)


def test_composer_final_tag_hint_depends_on_provider(home: Path) -> None:
    hint = "answer inside <final>…</final>"
    composer = PromptComposer()
    assert hint not in composer.compose(agent(home), MAIN, LARGE, ()).text
    for key in (MAIN, "agent:main:subagent:1"):
        assert hint in composer.compose(agent(home), key, ModelInfo("minimax", "m1"), ()).text
