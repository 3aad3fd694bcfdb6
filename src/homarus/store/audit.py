"""The audit log: append-only rows, each with the hash of the row before it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

# decision: of a tool call. approval: asked, answered, expired. execution: what ran, and how it
# ended. config: a change of config, policy, allowlist or session settings that affect it.
AuditKind: TypeAlias = Literal["decision", "approval", "execution", "config"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row of the audit log. `seq`, `previous` and `hash` are set when it is stored."""

    at_ms: int
    kind: AuditKind
    agent: str = ""
    session: str = ""
    tool: str = ""
    data: Mapping[str, Json] = field(default_factory=dict)
    seq: int = 0
    previous: str = ""
    hash: str = ""
