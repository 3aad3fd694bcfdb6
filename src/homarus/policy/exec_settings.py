"""The settings for commands that hold for one session."""

from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

ExecSecurity: TypeAlias = Literal["deny", "allowlist", "full"]
ExecAsk: TypeAlias = Literal["off", "on-miss", "always"]
ExecHost: TypeAlias = Literal["sandbox", "gateway", "node"]


@dataclass(frozen=True, slots=True)
class ExecSettings:
    """How commands of a session are judged, after config, approvals file and session are merged.

    `ask_fallback` is what holds when no approver can be reached or none answers in time.
    """

    security: ExecSecurity = "allowlist"
    ask: ExecAsk = "on-miss"
    ask_fallback: ExecSecurity = "deny"
    auto_allow_skills: bool = False
    host: ExecHost = "gateway"
