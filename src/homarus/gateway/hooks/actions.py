"""What a hook request does: leave a notice in the main session, or start a run of its own. Pure.

A mapping makes the fields of an action from the values of a request; a transform may replace them;
then they are checked as if they had come in the body of `/hooks/wake` or `/hooks/agent`.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import repair_surrogates
from homarus.core.untrusted import neutralize, wrap_untrusted
from homarus.gateway.hook_requests import (
    DEFAULT_NAME,
    AgentRequest,
    KeySource,
    WakeMode,
    parse_agent_request,
    parse_wake,
)
from homarus.gateway.hooks.github_events import describe_event
from homarus.gateway.hooks.gmail_messages import PATH as GMAIL_PATH
from homarus.gateway.hooks.gmail_messages import describe_mails, find_mails, mail_id
from homarus.gateway.hooks.settings import HookMapping, HookSettings
from homarus.gateway.hooks.templates import (
    MAX_RENDERED_CHARS,
    HookValues,
    RenderedText,
    render_message,
    render_template,
)

TAINT_KIND: Final = "hook"
_GITHUB_LEAD: Final = "An event of GitHub arrived by a webhook.\n"
_GMAIL_LEAD: Final = "Mail arrived by a webhook.\n"


@dataclass(frozen=True, slots=True)
class WakeAction:
    """A notice for the main session of an agent."""

    text: RenderedText
    mode: WakeMode
    name: str = "wake"
    agent: str = ""
    is_trusted: bool = False  # hooks.mappings[].allowUnsafeExternalContent


@dataclass(frozen=True, slots=True)
class AgentAction:
    """A run of its own. `request.message` is what `text` was made from."""

    text: RenderedText
    request: AgentRequest
    key_source: KeySource
    is_trusted: bool = False


HookAction: TypeAlias = WakeAction | AgentAction


def wake_action(payload: Mapping[str, Json]) -> WakeAction:
    """Return the action of `/hooks/wake`."""
    found = parse_wake(payload)
    return WakeAction(RenderedText("", found.text), found.mode)


def agent_action(payload: Mapping[str, Json]) -> AgentAction:
    """Return the action of `/hooks/agent`."""
    found = parse_agent_request(payload)
    if len(found.message) > MAX_RENDERED_CHARS:
        raise InvalidRequestError(f"message is longer than {MAX_RENDERED_CHARS} characters")
    return AgentAction(RenderedText("", found.message), found, "request")


def mapped_action(
    mapping: HookMapping,
    values: HookValues,
    settings: HookSettings,
    changes: Mapping[str, Json],
) -> HookAction:
    """Return the action of a mapping; `changes` are what its transform returned."""
    text, fields = _mapping_fields(mapping, values, settings)
    kind = changes.get("kind", mapping.config.action)
    if kind not in {"wake", "agent"}:
        raise InvalidRequestError("kind must be wake or agent")
    field = "text" if kind == "wake" else "message"
    if field in changes:  # the function may have taken it from the request
        if not isinstance(changes[field], str):
            raise InvalidRequestError(f"{field} must be text")
        text = RenderedText("", changes[field])
    if text.is_blank:
        raise InvalidRequestError(f"hook mapping requires {field}")
    if len(text.lead) + len(text.body) > MAX_RENDERED_CHARS:
        raise InvalidRequestError(f"{field} is longer than {MAX_RENDERED_CHARS} characters")
    fields = {**fields, **changes, field: f"{text.lead}{text.body}"}
    is_trusted = _is_trusted(mapping, settings, changes)
    if kind == "wake":
        mode = fields.get("mode", fields.get("wakeMode"))
        wake = parse_wake({"text": fields["text"], "mode": mode})
        agent = fields.get("agentId") or ""
        name = fields.get("name") or mapping.name
        return WakeAction(text, wake.mode, str(name), str(agent), is_trusted)
    return AgentAction(text, parse_agent_request(fields), "mapping", is_trusted)


def _mapping_fields(
    mapping: HookMapping, values: HookValues, settings: HookSettings
) -> tuple[RenderedText, dict[str, Json]]:
    """Return the text of a mapping's action and its other fields."""
    gmail = {"model": settings.gmail.model, "thinking": settings.gmail.thinking}
    if mapping.preset == "gmail":
        key = f"hook:gmail:{mail_id(find_mails(values.payload)[0])}"
        text = RenderedText(_GMAIL_LEAD, describe_mails(values.payload))
        return text, {"name": "Gmail", "sessionKey": key, **gmail}
    if mapping.preset == "github":
        event = values.headers.get("x-github-event", "")
        delivery = values.headers.get("x-github-delivery", "")
        named = {"sessionKey": f"hook:github:{delivery}"} if delivery else {}
        text = RenderedText(_GITHUB_LEAD, describe_event(event[:100], values.payload))
        return text, {"name": "GitHub", **named}
    config = mapping.config
    templates = {
        "name": config.name or DEFAULT_NAME,
        "sessionKey": config.session_key,
        "to": config.to,
        "model": config.model,
        "thinking": config.thinking,
    }
    fields: dict[str, Json] = {
        name: render_template(text, values) for name, text in templates.items() if text
    }
    fixed = {
        "agentId": config.agent_id,
        "wakeMode": config.wake_mode,
        "deliver": config.deliver,
        "channel": config.channel,
        "timeoutSeconds": config.timeout_seconds,
    }
    fields |= {name: value for name, value in fixed.items() if value is not None}
    if values.path == GMAIL_PATH:  # as for the preset, unless the mapping has its own
        fields = gmail | fields
    template = config.text_template if config.action == "wake" else config.message_template
    return render_message(template or "", values), fields


def _is_trusted(mapping: HookMapping, settings: HookSettings, changes: Mapping[str, Json]) -> bool:
    if mapping.preset == "gmail":
        return settings.gmail.allow_unsafe_external_content
    if changes.get("allowUnsafeExternalContent") is False:  # a transform may only narrow it
        return False
    return mapping.config.allow_unsafe_external_content


def format_text(text: RenderedText, origin: str, *, is_trusted: bool) -> str:
    """Return a hook's text as the model reads it: what others wrote is between markers."""
    if is_trusted:
        return neutralize(f"{text.lead}{text.body}").strip()
    lead = repair_surrogates(text.lead).strip()
    if not text.body.strip():
        return lead
    wrapped = wrap_untrusted(text.body.strip(), TAINT_KIND, origin)
    return f"{lead}\n{wrapped}" if lead else wrapped
