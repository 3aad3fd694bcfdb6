"""Record the decision about one tool call, and what ran, in the audit log."""

import hashlib
import json
from collections.abc import Callable
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, ToolCall, ToolResult
from homarus.core.text import one_line
from homarus.plugins.values import HookContext
from homarus.policy.decision import is_command
from homarus.policy.sandbox_settings import elevated_level
from homarus.policy.tool_call import CallerFacts, TaintSource, ToolCallFacts, ToolDecision
from homarus.store.audit import AuditEntry, AuditKind, AuditLog

_MAX_ARGS_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class CallAudit:
    """Records the calls of one run. An entry is stored with the next transaction of the run."""

    log: AuditLog
    where: HookContext
    now_ms: Callable[[], int]

    def record_decision(
        self,
        call: ToolCall,
        tool: str,
        decision: ToolDecision,
        *,
        taint: tuple[TaintSource, ...] = (),
        facts: ToolCallFacts | None = None,
        place: str = "",
    ) -> None:
        """Record what was decided, by which rule, about which arguments.

        `place` is where a command of a session with a sandbox runs (`describe_place`).
        """
        args = dict(call.args)
        data: dict[str, Json] = {
            "call": call.id,
            "run": self.where.run_id,
            "action": decision.action,
            "rule": decision.layer or "tool policy",
            "reason": decision.reason,
            "digest": args_digest(args),
            "args": one_line(json.dumps(args, ensure_ascii=False, default=str), _MAX_ARGS_CHARS),
        }
        if facts and facts.effects:
            data["effects"] = sorted(facts.effects)
        if taint:
            data["taint"] = [f"{one.kind} {one.origin}".strip() for one in taint]
        if place:
            data["place"] = place
        self._record("decision", tool, data)

    def record_refusal(self, call: ToolCall, layer: str, reason: str) -> None:
        """Record a call that was refused before the policy saw it."""
        self.record_decision(call, call.name, ToolDecision("deny", reason, layer))

    def record_execution(
        self, call: ToolCall, tool: str, result: ToolResult, duration_ms: int, place: str = ""
    ) -> None:
        """Record what ran, where, how long, and how it ended."""
        details = result.details or {}
        data: dict[str, Json] = {
            "call": call.id,
            "run": self.where.run_id,
            "digest": args_digest(dict(call.args)),
            "outcome": "failed" if result.is_error else "done",
            "durationMs": duration_ms,
        }
        for name in ("exitCode", "status", "sessionId", "planDigest", "network"):
            if isinstance(details.get(name), int | str):
                data[name] = details[name]
        if place:
            data["place"] = place
        self._record("execution", tool, data)

    def _record(self, kind: AuditKind, tool: str, data: dict[str, Json]) -> None:
        where = self.where
        entry = AuditEntry(self.now_ms(), kind, where.agent, where.session_key, tool, data)
        self.log.record(entry)


def describe_place(facts: ToolCallFacts, caller: CallerFacts) -> str:
    """Return where a command of a session with a sandbox runs; "" for all other calls."""
    if not caller.is_sandboxed or not is_command(facts):
        return ""
    if facts.sandbox_level:
        return f"sandbox of level {facts.sandbox_level}"
    requested = facts.args.get("elevated")
    level = elevated_level(caller, requested=requested if isinstance(requested, bool) else None)
    return f"outside the sandbox (elevated {level})" if level != "off" else ""


def args_digest(args: dict[str, Json]) -> str:
    """Return the digest of a call's arguments."""
    text = json.dumps(args, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
