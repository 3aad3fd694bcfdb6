"""Which agent and session a request of the HTTP API is for.

The agent is that of a header, else of the field `model`. The session is that of the header
`x-openclaw-session-key`, else one for each `user`, else a new one for this request alone.
"""

from typing import Final
from urllib.parse import quote

from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import agent_id_of
from homarus.gateway.http_api.agent_models import DEFAULT_MODEL, check_agent, get_agent
from homarus.gateway.http_api.endpoint import ApiCall, ApiHeader
from homarus.gateway.run_request import resolve_session_key

AGENT_HEADERS: Final = ("x-openclaw-agent-id", "x-openclaw-agent")
SESSION_HEADER: Final = "x-openclaw-session-key"
MODEL_HEADER: Final = "x-openclaw-model"
RUN_HEADERS: Final = (
    ApiHeader(AGENT_HEADERS[0], "The agent that answers, in place of that of `model`"),
    ApiHeader(AGENT_HEADERS[1], f"The same as {AGENT_HEADERS[0]}"),
    ApiHeader(SESSION_HEADER, "The session that the message goes to, in place of that of `user`"),
    ApiHeader(MODEL_HEADER, "The model that answers in this run; needs operator.admin"),
)
_PLAIN: Final = "@._-+=~"  # of a user, besides letters and digits; else it is %-encoded


@dataclass(frozen=True, slots=True)
class RunTarget:
    """An agent, and the key of a session that exists for longer; "" for one of the request."""

    agent: str
    session_key: str = ""
    prefix: str = ""  # of the sessions of single requests

    @property
    def is_single(self) -> bool:
        """Whether the session is for this request alone, so that it brings the conversation."""
        return not self.session_key

    def key_for(self, run_id: str) -> str:
        return self.session_key or f"agent:{self.agent}:{self.prefix}:{run_id}"


def resolve_target(call: ApiCall, model: str, user: str | None, prefix: str) -> RunTarget:
    """Return the agent and the session of a request; `prefix` is that of its endpoint's sessions.

    Raises ApiError (400, 404), InvalidRequestError and UserError.
    """
    agent = _resolve_agent(call, model)
    if name := call.header(SESSION_HEADER):
        is_any = model.strip().lower() == DEFAULT_MODEL and not _names_agent(call)
        names_own = is_any and name.lower().startswith("agent:")
        key = resolve_session_key(call.method_call, name, None if names_own else agent)
        return RunTarget(agent_id_of(key) if names_own else agent, key, prefix)
    if user is None or not user.strip():
        return RunTarget(agent, "", prefix)
    # A colon would make it a session of another kind.
    name = quote(user.strip().lower().encode("utf-8", "replace"), safe=_PLAIN)
    key = resolve_session_key(call.method_call, f"agent:{agent}:{prefix}-user:{name}", agent)
    return RunTarget(agent, key, prefix)


def _resolve_agent(call: ApiCall, model: str) -> str:
    config = call.services.loaded.config
    for header in AGENT_HEADERS:
        if name := call.header(header):
            return check_agent(config, name, param=header)
    return get_agent(config, model)


def _names_agent(call: ApiCall) -> bool:
    return any(call.header(header) for header in AGENT_HEADERS)
