from hypothesis import given
from hypothesis import strategies as st

from homarus.policy.tool_groups import GROUPS, expand_tool_names
from homarus.policy.tool_policy import ToolRules, decide_tool_call

NAMES = st.sampled_from(["read", "write", "exec", "memory_get", "web_fetch"])
GLOBS = st.lists(st.sampled_from(["*", "read", "w*", "exec", "memory_?et"]), max_size=3).map(tuple)
RULES = st.builds(ToolRules, allow=GLOBS, ask=GLOBS, deny=GLOBS)


def test_decide_without_rules_allows() -> None:
    assert decide_tool_call("read").action == "allow"
    assert decide_tool_call("read", ToolRules()).action == "allow"


def test_decide_deny_wins_over_ask_over_allow() -> None:
    assert (
        decide_tool_call("exec", ToolRules(allow=("*",), ask=("exec",), deny=("ex*",))).action
        == "deny"
    )
    assert decide_tool_call("exec", ToolRules(allow=("exec",), ask=("*",))).action == "ask"


def test_decide_tool_not_on_allow_list_is_denied() -> None:
    verdict = decide_tool_call("exec", ToolRules(allow=("read",)))
    assert verdict.action == "deny" and "allow list" in verdict.reason


@given(NAMES, st.lists(RULES, max_size=3), RULES)
def test_decide_more_rules_never_allow_more(
    name: str, layers: list[ToolRules], more: ToolRules
) -> None:
    strictness = ["allow", "ask", "deny"]
    before, after = decide_tool_call(name, *layers), decide_tool_call(name, *layers, more)
    assert strictness.index(after.action) >= strictness.index(before.action)


def test_expand_tool_names_resolves_groups_and_aliases() -> None:
    assert expand_tool_names(["group:runtime", " Bash ", "x*"]) == ("exec", "process", "x*")
    assert expand_tool_names(["group:unknown"]) == ("group:unknown",)
    assert all(name not in GROUPS for names in GROUPS.values() for name in names)
