"""Rules for runs that have read untrusted content: which effects of a call need approval then."""

from collections.abc import Mapping
from typing import Final

from homarus.policy.tool_call import CallerFacts, Effect, LayerVerdict, ToolCallFacts

# What a run that has read untrusted content asks about first, by the effect of the call.
TAINT_RULES: Final[Mapping[Effect, str]] = {
    "exec": "a command on this machine",
    "send": "a message to a new recipient",
    "identity": "a change of the agent's own instructions",
    "config": "a change of the config",
    "schedule": "a change of the schedule",
}


def taint_verdict(call: ToolCallFacts, caller: CallerFacts) -> LayerVerdict:
    """Return what the taint rules say about a call; a sandboxed command needs no question."""
    if not caller.taint:
        return LayerVerdict("taint", None, "the run has read no untrusted content")
    effects = call.effects | {"exec"} if call.exec else call.effects
    effects = effects - {"exec"} if caller.sandbox else effects
    for effect, description in TAINT_RULES.items():
        if effect in effects:
            sources = ", ".join(dict.fromkeys(each.kind for each in caller.taint))
            reason = f"the run has read untrusted content ({sources}), and this is {description}"
            return LayerVerdict("taint", "ask", reason)
    return LayerVerdict("taint", None, "no rule for untrusted content names this call")
