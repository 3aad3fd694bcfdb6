"""Which tools a rule matches: by name, other names, group, source and glob."""

import pytest

from homarus.config.tools_schema import AgentToolsConfig, GlobalToolsConfig
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, ToolCallFacts, ToolDeclaration
from homarus.policy.tool_policy import (
    PROFILES,
    PolicyRules,
    ToolRules,
    declared_groups,
    find_allow,
    find_match,
    make_policy_rules,
    normalize_tool_name,
    sandbox_rules,
    subagent_deny,
)

EXEC = ToolDeclaration("exec", ("runtime",), ("bash", "shell", "code_run"))
WRITE = ToolDeclaration("write", ("fs",), ("file_write",))
PATCH = ToolDeclaration("apply_patch", ("fs",), implied_by=("exec", "bash", "group:runtime"))
MEMORY = ToolDeclaration("memory_get", ("memory",))
PLUGIN = ToolDeclaration("llm-task", ("text",), source="Lobster-Kit")


@pytest.mark.parametrize(
    ("tool", "entry"),
    [
        (EXEC, "exec"), (EXEC, " Bash "), (EXEC, "SHELL"), (EXEC, "code_*"),
        (EXEC, "group:runtime"),
        (WRITE, "file_*"), (WRITE, "w?ite"), (WRITE, " Group:FS "), (PATCH, "apply-patch"),
        (MEMORY, "group:openclaw"), (MEMORY, "*"),
        (PLUGIN, "llm_task"), (PLUGIN, "lobster-kit"), (PLUGIN, "group:plugins"),
        (PLUGIN, "group:text"),
    ],
)  # fmt: skip
def test_rule_matches_tool_by_any_of_its_names(tool: ToolDeclaration, entry: str) -> None:
    assert find_match(tool, ("other", entry))


@pytest.mark.parametrize(
    ("tool", "entry"),
    [
        (EXEC, "exe"), (EXEC, "group:openclaw"), (WRITE, "group:openclaw"), (EXEC, "group:*"),
        (MEMORY, "group:plugins"), (PLUGIN, "group:openclaw"), (PATCH, "exec"), (EXEC, ""),
    ],
)  # fmt: skip
def test_rule_of_another_name_does_not_match(tool: ToolDeclaration, entry: str) -> None:
    assert not find_match(tool, (entry,))


@pytest.mark.parametrize("entry", ["exec", "bash", "group:runtime", "ex*"])
def test_rule_that_allows_exec_allows_apply_patch(entry: str) -> None:
    assert find_allow(PATCH, (entry,)) and not find_match(PATCH, (entry,))


def test_profiles_name_groups_that_tools_declare() -> None:
    from homarus.tools.catalog import known_declarations

    known = declared_groups(known_declarations())
    named = {entry for entries in PROFILES.values() for entry in entries if ":" in entry}
    assert named <= known


def test_subagent_deny_depends_on_depth() -> None:
    assert "sessions_spawn" in subagent_deny(1, 1) and "sessions_spawn" not in subagent_deny(1, 2)
    assert "cron" in subagent_deny(1, 5)


def rules(*, plugins: frozenset[str] = frozenset(), **tools: object) -> PolicyRules:
    return make_policy_rules(GlobalToolsConfig.model_validate(tools), plugins=plugins)


def test_allow_list_of_plugin_tools_alone_restricts_nothing() -> None:
    plugins = frozenset({"lobster-kit", "llm-task"})
    assert rules(allow=["Llm_Task", "group:plugins"], plugins=plugins).lists == ()
    assert rules(allow=["llm-task"]).lists == (ToolRules(allow=("llm-task",)),)  # not known


def test_model_rules_use_entry_of_model_before_provider() -> None:
    by_provider = {"Ollama": {"deny": ["exec"]}, "ollama/Big": {"deny": ["write"]}}
    found = rules(byProvider=by_provider)
    assert found.get_model_rules("ollama", "big") == (ToolRules(deny=("write",)),)
    assert found.get_model_rules("OLLAMA", "small") == (ToolRules(deny=("exec",)),)
    assert found.get_model_rules("other", "big") == ()


@pytest.mark.parametrize(
    "name", ["ｅｘｅｃ", "exec\u200b", "\ufeffEXEC", "ex\u00adec", "\u00a0exec "]
)
def test_name_with_wide_or_invisible_characters_is_denied(name: str) -> None:
    assert normalize_tool_name(name) == "exec"
    assert find_match(EXEC, (name,)) == "exec"
    assert normalize_tool_name("ехес") != "exec"  # other letters are another name


MESSAGE = ToolDeclaration("message", ("messaging",), ("dm_send",))
CRON = ToolDeclaration("cron", ("automation",))


def sandbox_allows(
    tool: ToolDeclaration, common: object, own: object = None, plugins: frozenset[str] = frozenset()
) -> bool:
    """Return whether a session with a sandbox may use a tool, by the lists of the config."""
    tools = GlobalToolsConfig.model_validate({"sandbox": {"tools": common}})
    mine = AgentToolsConfig.model_validate({"sandbox": {"tools": own}}) if own else None
    found = make_policy_rules(tools, mine, plugins)
    caller = CallerFacts("main", "agent:main:x", is_sandboxed=True)
    return decide_tool_call(ToolCallFacts(tool), caller, found).action == "allow"


@pytest.mark.parametrize(
    ("tool", "common", "own", "allowed"),
    [
        (EXEC, {}, None, True),
        (MESSAGE, {}, None, False),
        (MESSAGE, {"alsoAllow": ["dm_send"]}, None, True),
        (MESSAGE, {"alsoAllow": ["group:messaging"]}, None, True),
        (MESSAGE, {"alsoAllow": ["message"]}, {"alsoAllow": []}, False),
        (EXEC, {"alsoAllow": ["message"]}, None, True),
        (CRON, {"alsoAllow": ["cron"]}, None, True),  # it is on the default list of denied ones
        (CRON, {"alsoAllow": ["cron"], "deny": ["cron"]}, None, False),
        (CRON, {"allow": []}, None, False),
        (MESSAGE, {"allow": []}, None, True),
        (MESSAGE, {"allow": None}, None, False),
        (EXEC, {"allow": ["read"]}, None, False),
        (EXEC, {"allow": ["read"]}, {"allow": ["bash"]}, True),
        (EXEC, {"allow": ["exec"]}, {"allow": ["read"]}, False),
        (EXEC, {"allow": ["read"]}, {"alsoAllow": ["exec"]}, True),
        (EXEC, {"deny": ["bash"]}, None, False),
        (EXEC, {"deny": ["group:runtime"]}, None, False),
        (EXEC, {"deny": ["exec"]}, {"deny": []}, True),
        (CRON, {"allow": ["cron"], "deny": []}, None, True),
    ],
)
def test_sandbox_rules_of_config(
    tool: ToolDeclaration, common: object, own: object, *, allowed: bool
) -> None:
    assert sandbox_allows(tool, common, own) == allowed


def test_sandbox_allow_list_of_plugin_tools_extends_the_default() -> None:
    plugins, tool = frozenset({"llm-task"}), ToolDeclaration("llm-task", source="llm-task")
    lists = {"allow": ["llm-task"]}
    assert sandbox_allows(tool, lists, plugins=plugins)
    assert sandbox_allows(EXEC, lists, plugins=plugins)
    assert not sandbox_allows(MESSAGE, lists, plugins=plugins)


def test_sandbox_rules_name_where_they_are_set() -> None:
    common = GlobalToolsConfig.model_validate({"sandbox": {"tools": {"deny": ["write"]}}})
    own = AgentToolsConfig.model_validate({"sandbox": {"tools": {"allow": ["read"]}}})
    deny, allow = sandbox_rules(common, own)
    assert (deny.origin, deny.deny) == ("tools.sandbox.tools", ("write",))
    assert (allow.origin, allow.allow) == ("the agent's tools.sandbox.tools", ("read",))
    assert {each.origin for each in sandbox_rules(GlobalToolsConfig())} == {
        "the default tools of sandboxes"
    }
