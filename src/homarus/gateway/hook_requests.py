"""Parse webhook requests, and decide which session and agent they may reach. All pure.

The text of a hook comes from an unknown sender. It reaches a session and an agent of its own unless
the config allows more; the session key and agent that it requests are checked here.
"""

import unicodedata
from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias
from uuid import uuid4

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.session_keys import check_key, normalize_agent_id

WakeMode: TypeAlias = Literal["now", "next-heartbeat"]


@dataclass(frozen=True, slots=True)
class WakeRequest:
    """A message for the main session: at once, or at the next heartbeat."""

    text: str
    mode: WakeMode


@dataclass(frozen=True, slots=True)
class HookKeyRules:
    """Which session keys hooks may use: `hooks.*SessionKey*` of the config."""

    allow_request: bool = False
    prefixes: tuple[str, ...] = ()
    default: str = ""


def parse_wake(payload: Mapping[str, Json]) -> WakeRequest:
    """Parse the body of `/hooks/wake`."""
    text = payload.get("text")
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError("text required")
    mode = payload.get("mode")
    return WakeRequest(text.strip(), "next-heartbeat" if mode == "next-heartbeat" else "now")


def hook_session_key(
    rules: HookKeyRules, source: Literal["request", "mapping"], requested: str | None = None
) -> str:
    """Return a hook's session key: the requested one if allowed, else the default or a new one."""
    key = (requested or "").strip()
    if not key:
        return rules.default or f"hook:{uuid4()}"
    if source == "request" and not rules.allow_request:
        raise InvalidRequestError(
            "sessionKey is disabled for external /hooks/agent payloads; "
            "set hooks.allowRequestSessionKey=true to enable"
        )
    # A full-width letter may be folded to a plain one elsewhere, so the prefix is compared folded.
    folded = unicodedata.normalize("NFKC", key).lower()
    if rules.prefixes and not folded.startswith(tuple(p.lower() for p in rules.prefixes)):
        prefixes = ", ".join(rules.prefixes)
        raise InvalidRequestError(f"sessionKey must start with one of: {prefixes}")
    return check_key(key)


def is_agent_allowed(
    allowed: Collection[str] | None, requested: str | None, known: Collection[str], default: str
) -> bool:
    """Return whether a hook may run this agent; an unknown one means the default agent."""
    if not (requested or "").strip() or allowed is None or "*" in allowed:
        return True
    agent = normalize_agent_id(requested)
    target = agent if agent in known else normalize_agent_id(default)
    return target in {normalize_agent_id(name) for name in allowed}
