"""Method for the system prompt of a session and its parts."""

from homarus.agent.prompt.preview import PreviewServices, preview_prompt
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name


class PromptGetParams(Params):
    """The session, by default an agent's main one; `text` returns the prompt itself too."""

    session_key: Name | None = None
    agent_id: Name | None = None
    text: bool = True


@method("prompt.get", scope="admin", params=PromptGetParams, advertised=False)
async def get(call: MethodCall, params: PromptGetParams) -> Json:
    """What a conversation's model is told first, with figures by section, file and tool."""
    key = call.services.control.resolve_key(params.session_key, params.agent_id)
    return await show_prompt(call.services.preview, key, text=params.text)


async def show_prompt(services: PreviewServices, key: str, *, text: bool) -> dict[str, Json]:
    """Return the answer of `prompt.get`, with or without a gateway."""
    found = await preview_prompt(services, key)
    told: dict[str, Json] = {
        "sessionKey": key,
        "agentId": agent_id_of(key),
        "report": found.report.to_json(),
    }
    return {**told, "text": found.prompt.text} if text else told
