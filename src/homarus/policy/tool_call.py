"""The values that the policy decides on: a tool, a call of it, who makes the call, the decision."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.policy.exec_settings import ExecSettings

ToolAction: TypeAlias = Literal["allow", "ask", "deny"]
# What a call would change outside the conversation. Rules about untrusted content name these.
Effect: TypeAlias = Literal["exec", "send", "identity", "config", "schedule"]
ISOLATED_LEVEL: Final = "L2"  # of sandboxes: from here on a command cannot change this machine
BUILTIN: Final = "builtin"  # the source of the program's own tools


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """What a tool says about itself; rules are matched against it.

    `groups` are the names without the prefix, as `fs` for `group:fs`. `source` is `builtin`, or
    the plugin, skill or server that the tool comes from. `is_owner_only` tools are only for
    messages of the owner. A list that allows a name or group of `implied_by` allows the tool too.
    """

    name: str
    groups: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    source: str = BUILTIN
    is_owner_only: bool = False
    implied_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecEvaluation:
    """What is known about a command before it is decided: the result of evaluating its plan.

    `is_parsed`: the grammar understood the complete command. `matches` has, for each simple command
    of it, what allows it without a question (`safe-bin:head`, `allowlist:<entry id>`,
    `skill:<name>`), or "". `reason` says why the command is not satisfied.
    """

    is_parsed: bool
    matches: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_satisfied(self) -> bool:
        """Return whether every simple command is allowed without a question."""
        return self.is_parsed and bool(self.matches) and all(self.matches)


@dataclass(frozen=True, slots=True)
class ToolCallFacts:
    """One call of a tool, with what its preparation found out.

    `own_verdict` is what a setting of the tool itself says about the call, as `tools.message` about
    a chat that is new; it is one layer among the others. `sandbox_level` is the measured level of
    the sandbox that a command would run in, "" for one on this machine.
    """

    tool: ToolDeclaration
    args: Mapping[str, Json] = field(default_factory=dict)
    effects: frozenset[Effect] = frozenset()
    exec: ExecEvaluation | None = None
    own_verdict: "LayerVerdict | None" = None
    sandbox_level: str = ""


@dataclass(frozen=True, slots=True)
class TaintSource:
    """Untrusted content that a run has read: its kind (`web`, `mail`, `file`, `mcp`) and origin."""

    kind: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class LayerVerdict:
    """What one layer of the policy says; `action` None: it has no rule for the call."""

    layer: str
    action: ToolAction | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """The decision, the reason of the layer that made it, and the verdicts of all layers."""

    action: ToolAction
    reason: str
    layer: str = ""
    verdicts: tuple[LayerVerdict, ...] = ()
    is_allowed_by_fallback: bool = False  # for "ask": when no approver can be reached


@dataclass(frozen=True, slots=True)
class CallerFacts:
    """Who makes a call, from where, with which settings.

    With several senders, `sender` is "" and `is_owner` holds for all of them.
    `is_elevated_allowed`: `tools.elevated` names the sender. `is_sandboxed`: the settings want the
    session in a sandbox. `depth` is 0 in a session that is not a sub-agent's.
    """

    agent_id: str
    session_key: str
    channel: str = ""
    sender: str = ""
    is_owner: bool = True
    provider: str = ""
    model: str = ""
    exec: ExecSettings = ExecSettings()
    elevated: Literal["off", "on", "ask", "full"] = "off"
    is_elevated_allowed: bool = False
    taint: tuple[TaintSource, ...] = ()
    is_sandboxed: bool = False
    depth: int = 0
