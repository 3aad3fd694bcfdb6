"""Settings that restrict: whatever the config says, the agent gets no more than its owner wrote.

A case has a config, what is tried (a tool, `run`, `start` or `command`) and whether it is allowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from homarus.agent.agent import make_agent
from homarus.config.agent_settings import resolve_agent_settings
from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.policy.decision import decide_tool_call
from homarus.policy.exec_settings import resolve_exec_settings
from homarus.policy.restrictions import check_run_allowed, check_start_allowed
from homarus.policy.sandbox_settings import resolve_exec_place
from homarus.policy.tool_call import CallerFacts, ExecEvaluation, ToolCallFacts, ToolDeclaration
from homarus.tools.catalog import builtin_tools, find_declaration
from tests.attacks.cases import Case, Judge

_MAIN = "agent:main:main"


@contextmanager
def world() -> Iterator[Judge]:
    yield _judge


def _judge(case: Case) -> str:
    checked = check_config(case["config"])
    if checked.config is None:
        return "" if case["expected"] == "reject config" else f"rejected: {checked.problems}"
    outcome = "allow" if _is_allowed(case, checked.config) else "refuse"
    return "" if outcome == case["expected"] else outcome


def _is_allowed(case: Case, config: Config) -> bool:
    tried, key = case["tried"], case.get("session", _MAIN)
    try:
        if tried == "start":
            check_start_allowed(config)
            return True
        check_run_allowed(config, "main", builtin_tools().known_groups)
    except UserError:
        return False
    if tried == "run":
        return True
    if tried == "command on this machine":
        return resolve_exec_place(config, CallerFacts("main", key)) == "gateway"
    if tried == "command":
        approvals = [case.get("approvals", {})]
        found = resolve_exec_settings(config, approvals, "main", {}, is_owner=True)
        unlisted = ExecEvaluation(is_parsed=True, matches=("",))
        command = ToolCallFacts(ToolDeclaration("exec"), exec=unlisted)
        caller = CallerFacts("main", key, exec=found)
        return decide_tool_call(command, caller).action != "deny"
    settings = resolve_agent_settings(config, Paths.find({"HOME": "/nowhere"}), "main")
    agent = make_agent(settings, config.tools)
    provider, model = case.get("model", "mock/m").split("/")
    call = ToolCallFacts(find_declaration(tried) or ToolDeclaration(tried))
    caller = CallerFacts("main", key, provider=provider, model=model)
    return decide_tool_call(call, caller, agent.rules).action == "allow"
