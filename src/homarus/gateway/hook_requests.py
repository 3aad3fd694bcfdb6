"""Parse webhook requests, and decide which session and agent they may reach. All pure.

The text of a hook comes from an unknown sender. It reaches a session and an agent of its own unless
the config allows more; the session key and agent that it requests are checked here.
"""

import math
import unicodedata
from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeAlias
from uuid import uuid4

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.session_keys import (
    check_key,
    is_acp,
    is_cron,
    is_subagent,
    normalize_agent_id,
    parse_agent_key,
)
from homarus.core.text import one_line

WakeMode: TypeAlias = Literal["now", "next-heartbeat"]
KeySource: TypeAlias = Literal["request", "mapping"]
DEFAULT_NAME: Final = "Hook"
MAX_NAME_CHARS: Final = 100
MAX_FIELD_CHARS: Final = 500
MAX_TIMEOUT_S: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class WakeRequest:
    """A message for the main session: at once, or at the next heartbeat."""

    text: str
    mode: WakeMode


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A message that a run of its own answers: the body of `/hooks/agent`, or what a mapping made.

    Empty fields mean the setting of the agent. `agent` and `session_key` are as they were
    requested: whether they are allowed is decided elsewhere.
    """

    message: str
    name: str = DEFAULT_NAME
    agent: str = ""
    session_key: str = ""
    wake_mode: WakeMode = "now"
    delivers: bool = True
    channel: str = "last"
    to: str = ""
    model: str = ""
    thinking: str = ""
    timeout_s: float = 0.0


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


def parse_agent_request(payload: Mapping[str, Json]) -> AgentRequest:
    """Parse the body of `/hooks/agent`; raises InvalidRequestError with the field that is wrong."""
    message = payload.get("message")
    if not isinstance(message, str) or not message.strip():
        raise InvalidRequestError("message required")
    deliver = payload.get("deliver", True)
    if not isinstance(deliver, bool):
        raise InvalidRequestError("deliver must be true or false")
    is_later = payload.get("wakeMode") == "next-heartbeat"
    return AgentRequest(
        message=message.strip(),
        name=one_line(_text(payload, "name"), MAX_NAME_CHARS) or DEFAULT_NAME,
        agent=_text(payload, "agentId"),
        session_key=_text(payload, "sessionKey"),
        wake_mode="next-heartbeat" if is_later else "now",
        delivers=deliver,
        channel=_text(payload, "channel").lower() or "last",
        to=_text(payload, "to"),
        model=_text(payload, "model"),
        thinking=_text(payload, "thinking"),
        timeout_s=_seconds(payload.get("timeoutSeconds")),
    )


def _text(payload: Mapping[str, Json], name: str) -> str:
    value = payload.get(name)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):  # ids of chats are often numbers
        value = str(value)
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name} must be text")
    if len(value) > MAX_FIELD_CHARS:
        raise InvalidRequestError(f"{name} is longer than {MAX_FIELD_CHARS} characters")
    return value.strip()


def _seconds(value: Json) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequestError("timeoutSeconds must be a number")
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequestError("timeoutSeconds must be above 0")
    return min(float(value), MAX_TIMEOUT_S)


def hook_session_key(rules: HookKeyRules, source: KeySource, requested: str | None = None) -> str:
    """Return a hook's session key: the requested one if allowed, else the default or a new one."""
    key = (requested or "").strip()
    if not key:
        return rules.default or f"hook:{uuid4()}"
    if source == "request" and not rules.allow_request:
        raise InvalidRequestError(
            "sessionKey is disabled for external /hooks/agent payloads; "
            "set hooks.allowRequestSessionKey=true to enable"
        )
    if rules.prefixes and not has_prefix(key, rules.prefixes):
        prefixes = ", ".join(rules.prefixes)
        raise InvalidRequestError(f"sessionKey must start with one of: {prefixes}")
    return check_key(key)


def has_prefix(key: str, prefixes: Collection[str]) -> bool:
    """Return whether a key starts with one of these texts, in whatever letters."""
    # A full-width letter may be folded to a plain one elsewhere, so the prefix is compared folded.
    folded = unicodedata.normalize("NFKC", key).lower()
    return folded.startswith(tuple(prefix.lower() for prefix in prefixes))


def check_key_owner(key: str, agent: str) -> None:
    """Raise InvalidRequestError for the session of another agent, of a job or of a sub-agent."""
    folded = unicodedata.normalize("NFKC", key).lower()
    if folded.startswith("agent:"):
        parsed = parse_agent_key(folded)
        if parsed is None or normalize_agent_id(parsed.agent) != normalize_agent_id(agent):
            raise InvalidRequestError(f"sessionKey must name a session of the agent {agent}")
    if is_subagent(folded) or is_cron(folded) or is_acp(folded) or folded.startswith("cron:"):
        raise InvalidRequestError("sessionKey must not name the session of a job or a sub-agent")


def is_agent_allowed(
    allowed: Collection[str] | None, requested: str | None, known: Collection[str], default: str
) -> bool:
    """Return whether a hook may run this agent; an unknown one means the default agent."""
    if not (requested or "").strip() or allowed is None or "*" in allowed:
        return True
    agent = normalize_agent_id(requested)
    target = agent if agent in known else normalize_agent_id(default)
    return target in {normalize_agent_id(name) for name in allowed}
