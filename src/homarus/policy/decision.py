"""Decide about a tool call: the only place where one is allowed, asked about or denied.

Every layer of the policy gives its verdict, also after another one has decided, so that
`homarus policy explain` can show each. A denial wins over a question, a question over permission;
of several that deny or ask, the first one decides.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from homarus.policy.approvals import is_allowed_by_fallback
from homarus.policy.sandbox_settings import elevated_level
from homarus.policy.taint import taint_verdict
from homarus.policy.tool_call import (
    ISOLATED_LEVEL,
    CallerFacts,
    LayerVerdict,
    ToolCallFacts,
    ToolDecision,
    ToolDeclaration,
)
from homarus.policy.tool_policy import (
    PolicyRules,
    ToolRules,
    find_allow,
    find_match,
    find_skill,
    subagent_deny,
)

NO_RULES: Final = PolicyRules()
EXEC_TOOL: Final = "exec"


def decide_tool_call(
    call: ToolCallFacts, caller: CallerFacts, rules: PolicyRules = NO_RULES
) -> ToolDecision:
    """Return whether the call is allowed, needs approval or is denied, with every verdict."""
    lists = (*rules.lists, *rules.chat)
    verdicts = (
        _judge_profile(call.tool, rules.profile),
        _judge_allow(call.tool, lists),
        _judge_deny(call.tool, lists),
        _judge_owner(call.tool, caller),
        _judge_provider(call.tool, caller, rules),
        _judge_elevated(call, caller),
        _judge_session(call.tool, caller, rules),
        call.own_verdict or LayerVerdict("tool", None, "the tool has no rule of its own"),
        _judge_exec(call, caller),
        taint_verdict(call, caller),
    )
    for action in ("deny", "ask"):
        for verdict in verdicts:
            if verdict.action == action:
                fallback = _has_fallback(call, caller, verdicts)
                return ToolDecision(action, verdict.reason, verdict.layer, verdicts, fallback)
    last = next((each for each in reversed(verdicts) if each.action), None)
    reason = last.reason if last else "no rule forbids it"
    return ToolDecision("allow", reason, last.layer if last else "default", verdicts)


def _has_fallback(
    call: ToolCallFacts, caller: CallerFacts, verdicts: Sequence[LayerVerdict]
) -> bool:
    """Return whether `askFallback` allows a command that only the settings for commands ask for."""
    asking = {verdict.layer for verdict in verdicts if verdict.action == "ask"}
    return asking == {"exec"} and is_allowed_by_fallback(caller.exec, call.exec)


def is_tool_offered(tool: ToolDeclaration, caller: CallerFacts, rules: PolicyRules) -> bool:
    """Return whether a call of the tool could be allowed: only then the model is offered it."""
    return decide_tool_call(ToolCallFacts(tool), caller, rules).action != "deny"


def _judge_profile(tool: ToolDeclaration, profile: ToolRules | None) -> LayerVerdict:
    if profile is None:
        return LayerVerdict("profile", None, "no profile is set")
    if entry := find_allow(tool, profile.allow):
        return LayerVerdict("profile", "allow", f"{profile.origin} has {entry}")
    reason = f"{tool.name} is not on the allow list of the {profile.origin}"
    return LayerVerdict("profile", "deny", reason)


def _judge_allow(
    tool: ToolDeclaration, lists: Sequence[ToolRules], layer: str = "allow"
) -> LayerVerdict:
    """Return the verdict of allow lists, each of which must allow the tool, and of ask lists."""
    found, asked = "", ""
    for rules in lists:
        if rules.allow:
            entry = find_allow(tool, rules.allow)
            if not entry:
                reason = f"{tool.name} is not on the allow list{_of(rules)}"
                return LayerVerdict(layer, "deny", reason)
            found = found or f"allowed by {entry!r}{_of(rules)}"
        if rules.ask and (entry := find_match(tool, rules.ask)):
            asked = asked or f"{tool.name} needs approval by {entry!r}{_of(rules)}"
    if asked:
        return LayerVerdict(layer, "ask", asked)
    return LayerVerdict(layer, "allow" if found else None, found or "no allow list is set")


def _judge_deny(
    tool: ToolDeclaration, lists: Sequence[ToolRules], layer: str = "deny"
) -> LayerVerdict:
    for rules in lists:
        if rules.deny and (entry := find_match(tool, rules.deny)):
            return LayerVerdict(layer, "deny", f"{tool.name} is denied by {entry!r}{_of(rules)}")
        skill = find_skill(tool)
        if skill is not None and rules.skills is not None and skill not in rules.skills:
            reason = f"the skill {skill} is not one of the skills{_of(rules)}"
            return LayerVerdict(layer, "deny", reason)
    return LayerVerdict(layer, None, "no deny list names it")


def _of(rules: ToolRules) -> str:
    return f" of {rules.origin}" if rules.origin else ""


def _judge_owner(tool: ToolDeclaration, caller: CallerFacts) -> LayerVerdict:
    if not tool.is_owner_only:
        return LayerVerdict("owner-only", None, "the tool is not for the owner alone")
    if caller.is_owner:
        return LayerVerdict("owner-only", "allow", "the message is the owner's")
    reason = f"{tool.name} is only for the owner, and not every sender of this run is one"
    return LayerVerdict("owner-only", "deny", reason)


def _judge_provider(tool: ToolDeclaration, caller: CallerFacts, rules: PolicyRules) -> LayerVerdict:
    layer = "byProvider"
    lists = rules.get_model_rules(caller.provider, caller.model) if caller.provider else ()
    if not lists:
        return LayerVerdict(layer, None, "no rules for the provider or the model")
    denied = _judge_deny(tool, lists, layer)
    return denied if denied.action else _judge_allow(tool, lists, layer)


def is_command(call: ToolCallFacts) -> bool:
    """Return whether a call runs a command."""
    return call.exec is not None or "exec" in call.effects


def _requested_elevated(call: ToolCallFacts) -> bool | None:
    requested = call.args.get("elevated")
    return requested if isinstance(requested, bool) else None


def _may_not_leave_sandbox(call: ToolCallFacts, caller: CallerFacts) -> bool:
    """Return whether a command was prepared to run outside its sandbox, and is not elevated.

    Input for a command that left the sandbox needs a sender who may have elevated commands.
    """
    if not caller.is_sandboxed or call.exec is None or call.sandbox_level:
        return False
    requested = _requested_elevated(call) if call.tool.name == EXEC_TOOL else True
    return elevated_level(caller, requested=requested) == "off"


def _judge_elevated(call: ToolCallFacts, caller: CallerFacts) -> LayerVerdict:
    layer, requested = "elevated", _requested_elevated(call)
    if _may_not_leave_sandbox(call, caller):
        # It was when the call was prepared: a sender joined since, or a setting changed.
        reason = "the command would run outside the sandbox, and it is not elevated"
        return LayerVerdict(layer, "deny", reason)
    if not is_command(call) or (caller.elevated == "off" and not requested):
        return LayerVerdict(layer, None, "the call is not elevated")
    if not caller.is_elevated_allowed:
        if requested:
            reason = "tools.elevated does not allow elevated commands for this sender"
            return LayerVerdict(layer, "deny", reason)
        return LayerVerdict(layer, None, "tools.elevated does not name the sender: not elevated")
    level = elevated_level(caller, requested=requested)
    if level == "off" or call.sandbox_level:
        return LayerVerdict(layer, None, "the call itself is not to be elevated")
    outside = ", outside the sandbox" if caller.is_sandboxed else ""
    if level == "full":
        reason = f"elevated is full: commands need no approval{outside}"
        return LayerVerdict(layer, "allow", reason)
    return LayerVerdict(layer, None, f"elevated is {level}: commands need approval{outside}")


def _judge_session(tool: ToolDeclaration, caller: CallerFacts, rules: PolicyRules) -> LayerVerdict:
    """Return the verdict for the kind of session: of a sub-agent, or in a sandbox."""
    layer = "sandbox/sub-agent"
    lists = tuple(_session_rules(caller, rules))
    if not lists:
        return LayerVerdict(layer, None, "no sandbox, no sub-agent")
    denied = _judge_deny(tool, lists, layer)
    return denied if denied.action else _judge_allow(tool, lists, layer)


def _session_rules(caller: CallerFacts, rules: PolicyRules) -> Iterator[ToolRules]:
    if caller.is_sandboxed:
        yield from rules.sandbox
    if caller.depth > 0:
        denied = subagent_deny(caller.depth, rules.max_spawn_depth)
        yield ToolRules(deny=denied, origin="sub-agents")
        yield rules.subagents


def _judge_exec(call: ToolCallFacts, caller: CallerFacts) -> LayerVerdict:
    """Return the verdict about a command: deny, full, sandbox, safe bins, allowlist, ask off, ask.

    A command in a sandbox is not asked about: it cannot change this machine. One that is measured
    to isolate less than the files, processes and the network is judged as if there were none.
    """
    layer, settings, found = "exec", caller.exec, call.exec
    if not is_command(call):
        return LayerVerdict(layer, None, "the call runs no command")
    if settings.security == "deny":
        reason = "exec denied: commands are switched off (security is deny)"
        return LayerVerdict(layer, "deny", reason)
    level = elevated_level(caller, requested=_requested_elevated(call))
    if level == "full" and not call.sandbox_level:
        return LayerVerdict(layer, "allow", "elevated is full: commands need no approval")
    if settings.ask == "always":
        return LayerVerdict(layer, "ask", "every command needs approval (ask is always)")
    if call.sandbox_level >= ISOLATED_LEVEL:
        reason = f"the command runs in a sandbox of level {call.sandbox_level}"
        return LayerVerdict(layer, "allow", reason)
    if settings.security == "full":
        return LayerVerdict(layer, "allow", "every command may run (security is full)")
    if found and found.is_satisfied:
        names = ", ".join(dict.fromkeys(found.matches))
        return LayerVerdict(layer, "allow", f"every part of the command is allowed: {names}")
    reason = (found.reason if found else "") or "the command is not on the allowlist"
    if settings.ask == "off":
        return LayerVerdict(layer, "deny", f"exec denied: {reason} (ask is off)")
    return LayerVerdict(layer, "ask", reason)
