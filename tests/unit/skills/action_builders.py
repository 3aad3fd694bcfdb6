"""Build skills with actions, and call them through the pipeline of tool calls."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from homarus.config.schema import Config
from homarus.core.message import ToolCall, ToolResult
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.decision import NO_RULES, decide_tool_call
from homarus.policy.tool_call import CallerFacts, TaintSource, ToolCallFacts, ToolDecision
from homarus.policy.tool_policy import PolicyRules
from homarus.skills.actions.action_files import find_actions
from homarus.skills.actions.action_tools import make_action_tools
from homarus.skills.actions.pins import ActionPins
from homarus.skills.frontmatter import read_frontmatter
from homarus.skills.skill import Skill, SkillTier, make_skill
from homarus.testing.approvals import AskingApprovals
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext

LOOPBACK = {"tools": {"web": {"fetch": {"ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}}}}}


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of arguments; those in `required` are texts unless they are given."""
    known = {name: {"type": "string"} for name in required} | properties
    return {"type": "object", "properties": known, "required": list(required)}


def http(url: str, **keys: Any) -> dict[str, Any]:
    """Return an action `get` that requests a URL; `args` are the names of its arguments."""
    args = keys.pop("args", ())
    parameters = keys.pop("parameters", None) or schema(*args)
    return {
        "name": "get",
        "description": "Get something.",
        "parameters": parameters,
        "http": {"method": "GET", "url": url, **keys},
    }


def command(*argv: Any, parameters: Mapping[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Return an action `do` that runs a program."""
    return {
        "name": "do",
        "description": "Do something.",
        "parameters": parameters or schema(),
        "command": {"argv": list(argv), **keys},
    }


def write_skill(
    folder: Path,
    actions: Sequence[Any],
    *,
    name: str = "tester",
    metadata: Mapping[str, Any] | None = None,
    tier: SkillTier = SkillTier.WORKSPACE,
) -> Skill:
    """Write a skill with actions, and return it."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    own = json.dumps({"openclaw": dict(metadata or {})})
    text = f"---\nname: {name}\ndescription: For tests.\nmetadata: {own}\n---\nUse it.\n"
    (place / "SKILL.md").write_text(text, encoding="utf-8")
    (place / "actions.json").write_text(json.dumps({"actions": actions}), encoding="utf-8")
    return make_skill(read_frontmatter(text), tier, place / "SKILL.md")


@dataclass
class ActionCaller:
    """Calls the actions of skills as a run does; a person answers every question."""

    home: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    answer: bool = True
    taint: tuple[TaintSource, ...] = ()
    rules: PolicyRules = NO_RULES
    questions: list[ApprovalQuestion] = field(default_factory=list)
    decisions: list[ToolDecision] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        (self.home / "workspace").mkdir(parents=True, exist_ok=True)
        return self.home / "workspace"

    def tools(self, *skills: Skill) -> list[Tool]:
        config = Config.model_validate(dict(self.settings))
        context = ToolSourceContext(
            "main", config, lambda _key: config.tools, state=self.home / "state", env=self.env
        )
        pins = ActionPins(self.home / "state")
        return make_action_tools(find_actions(skills), context, pins, {"exec", "read"})

    async def call(self, skill: Skill, action: str, args: Mapping[str, Any]) -> ToolResult:
        """Call an action by its name, and return what the model gets."""
        tools = self.tools(skill)
        name = next(tool.name for tool in tools if tool.name.endswith(f"_{action}"))
        context = ToolContext("agent:main:main", "main", self.workspace)
        context = replace(context, approvals=AskingApprovals(self._ask), get_caller=self._caller)
        return await execute_tool_call(
            ToolRegistry(tools), context, ToolCall("c1", name, args), self._decide
        )

    def _caller(self) -> CallerFacts:
        return CallerFacts("main", "agent:main:main", taint=self.taint)

    async def _decide(self, facts: ToolCallFacts) -> ToolDecision:
        self.decisions.append(decide_tool_call(facts, self._caller(), self.rules))
        return self.decisions[-1]

    async def _ask(self, question: ApprovalQuestion) -> bool:
        self.questions.append(question)
        return self.answer
