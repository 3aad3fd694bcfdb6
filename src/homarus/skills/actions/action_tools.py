"""Make the tools of a skill's actions for one agent.

A call is prepared from checked arguments: the request or the command is complete before it is
decided on, and a person who is asked sees it whole, with the names of keys in place of their
values. What comes back was written by others and is marked so by the tool's source.
"""

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

from homarus.config.network_policy import resolve_network_policy
from homarus.config.redaction import MASK
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Text
from homarus.core.text import clip_middle, one_line
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import LayerVerdict, ToolCallFacts, ToolDeclaration
from homarus.providers.base import ToolSpec
from homarus.skills.actions.definition import (
    CommandAction,
    HttpAction,
    SkillAction,
    make_action_name,
)
from homarus.skills.actions.keys import resolve_keys
from homarus.skills.actions.pins import ActionPins, action_digest
from homarus.skills.skill import Skill
from homarus.tools.exec.approval import escape_line
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import PreparedCall, Tool, ToolContext, ToolOutput, format_signature

SOURCE_NAME: Final = "skill"
GROUP: Final = "skills"
_MAX_DETAIL_CHARS: Final = 20_000
_MIN_HIDDEN_CHARS: Final = 4  # a shorter key is a part of ordinary words


def make_action_tools(
    found: Sequence[tuple[Skill, SkillAction]],
    context: ToolSourceContext,
    pins: ActionPins,
    reserved: Container[str] = (),
) -> list[Tool]:
    """Return the tools; `reserved` are the names of other tools."""
    tools: dict[str, Tool] = {}
    for skill, action in found:
        names = _TakenNames(reserved, tools)
        name = make_action_name(skill.name, action.name, names)
        tools[name] = _ActionTool(name, skill, action, context, pins).make()
    return list(tools.values())


@dataclass(frozen=True, slots=True)
class _TakenNames:
    reserved: Container[str]
    own: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.reserved or name in self.own


@dataclass(frozen=True, slots=True)
class _ActionTool:
    """Prepares the calls of one action."""

    name: str
    skill: Skill
    action: SkillAction
    context: ToolSourceContext
    pins: ActionPins

    @property
    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(self.name, (GROUP,), source=f"{SOURCE_NAME}:{self.skill.name}")

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.action.description, self.action.parameters)

    def make(self) -> Tool:
        spec, does = self.spec, self.action.does
        is_reading = isinstance(does, HttpAction) and does.is_reading
        # A request and a command have the timeouts of their definitions.
        return Tool(
            self.declaration,
            lambda: spec,
            None,
            self._run,
            serial=not is_reading,
            idempotent=is_reading,
            timeout_s=None,
            prepare=self._prepare,
            effects=self.action.effects,
            output="untrusted",
        )

    async def _run(self, ctx: ToolContext, args: Mapping[str, Json]) -> str | ToolOutput:
        raise ToolError(f"{self.name} is prepared before it is run")

    async def _prepare(self, ctx: ToolContext, args: Mapping[str, Json]) -> PreparedCall:
        """Return the call. Raises ToolError for arguments that the action cannot use."""
        self._check_names(args)
        keys = resolve_keys(
            self.skill, self.action.key_names, self.context.config, self.context.env
        )
        does = self.action.does
        facts = ToolCallFacts(
            self.declaration, args, self.action.effects, own_verdict=self._judge_pin()
        )
        if isinstance(does, CommandAction):
            return await self._prepare_command(ctx, does, facts, keys)
        return self._prepare_request(does, facts, keys)

    def _check_names(self, args: Mapping[str, Json]) -> None:
        known = self.action.parameters["properties"]
        unknown = [each for each in args if not isinstance(known, dict) or each not in known]
        if unknown:
            raise ToolError(
                f"{self.name}: {one_line(unknown[0], 60)} is an unknown argument",
                fix=format_signature(self.spec),
            )

    def _judge_pin(self) -> LayerVerdict | None:
        """Return "ask" for an action that no person has approved as it is."""
        if self.pins.is_approved(self.skill, self.action):
            return None
        change = "has changed" if self.pins.is_known(self.skill, self.action) else "is new"
        reason = f"the action {self.action.name} of the skill {self.skill.name} {change}"
        return LayerVerdict("tool", "ask", reason)

    def _accept(self, facts: ToolCallFacts) -> None:
        """Pin the definition: the call only runs when a person has approved it."""
        if facts.own_verdict is not None:
            self.pins.approve(self.skill, self.action)

    # Requests

    def _prepare_request(
        self, does: HttpAction, facts: ToolCallFacts, keys: Mapping[str, str]
    ) -> PreparedCall:
        from homarus.skills.actions.http_request import (
            check_key_transport,
            describe_http_call,
            format_response,
            make_http_call,
            send_http_call,
        )

        policy = resolve_network_policy(self.context.config.tools.web.fetch)
        check_key_transport(does, policy)
        call = make_http_call(does, facts.args, keys)

        async def run() -> ToolOutput:
            self._accept(facts)
            response = await send_http_call(does, call, policy)
            return _without_keys(format_response(does, response), keys)

        def ask() -> ApprovalQuestion:
            return self._question(facts, describe_http_call(does, facts.args))

        return PreparedCall(facts, ask, run)

    # Commands

    async def _prepare_command(
        self, ctx: ToolContext, does: CommandAction, facts: ToolCallFacts, keys: Mapping[str, str]
    ) -> PreparedCall:
        from homarus.skills.actions.action_command import prepare_command

        prepared = await prepare_command(
            self.context, ctx, self.skill, does, args=facts.args, keys=keys
        )
        facts = replace(facts, exec=prepared.evaluation, sandbox_level=prepared.sandbox_level)

        async def run() -> ToolOutput:
            self._accept(facts)
            own = replace(ctx, progress=lambda text: ctx.progress(hide_keys(text, keys)))
            return _without_keys(await prepared.run(own), keys)

        def ask() -> ApprovalQuestion:
            question = prepared.make_question()
            settings = ctx.caller.exec
            own = self._question(facts, question.detail)
            return replace(
                own,
                digest=hashlib.sha256(f"{own.digest}{question.digest}".encode()).hexdigest(),
                wire={**question.wire, "security": settings.security, "ask": settings.ask},
                always=question.always if facts.own_verdict is None else "",
                allow_always=question.allow_always if facts.own_verdict is None else None,
            )

        return PreparedCall(facts, ask, run, prepared.plan.close)

    def _question(self, facts: ToolCallFacts, shown: str) -> ApprovalQuestion:
        """Return the question, which shows what would be sent or run, and the skill behind it.

        `shown` has its deceptive characters escaped.
        """
        skill, action = self.skill, self.action
        title = f"May the agent use the action {action.name} of the skill {skill.name}?"
        about = [f"skill: {skill.name} ({skill.tier.value}), {skill.folder}"]
        if facts.own_verdict is not None:
            about.append(f"action: {facts.own_verdict.reason}; an answer allows it as it is now")
        about += [f"key: {name}" for name in action.key_names]
        detail = "\n".join([*map(escape_line, about), shown])
        args = json.dumps(dict(facts.args), sort_keys=True, ensure_ascii=True)
        data = f"{self.name}\n{action_digest(skill, action)}\n{args}".encode()
        detail = clip_middle(detail, _MAX_DETAIL_CHARS)
        return ApprovalQuestion(self.name, title, detail, hashlib.sha256(data).hexdigest())


def hide_keys(text: str, keys: Mapping[str, str]) -> str:
    """Replace the values of keys, also short ones, in what a service or command returned."""
    for value in sorted(keys.values(), key=len, reverse=True):
        if len(value) >= _MIN_HIDDEN_CHARS:
            text = text.replace(value, MASK)
    return text


def _without_keys(output: ToolOutput, keys: Mapping[str, str]) -> ToolOutput:
    if not keys:
        return output
    content = tuple(
        Text(hide_keys(part.text, keys)) if isinstance(part, Text) else part
        for part in output.content
    )
    details = {
        name: hide_keys(value, keys) if isinstance(value, str) else value
        for name, value in (output.details or {}).items()
    }
    return replace(output, content=content, details=details)
