"""Method for the system prompt of a session and its parts."""

from homarus.agent.prompt.preview import PreviewServices, preview
from homarus.core.keys import agent_of
from homarus.core.message import Json
from homarus.gateway.method import Call, Params, method
from homarus.gateway.params import Name


class GetParams(Params):
    """The session, by default an agent's main one; `text` returns the prompt itself too."""

    session_key: Name | None = None
    agent_id: Name | None = None
    text: bool = True


@method("prompt.get", scope="admin", params=GetParams, advertised=False)
async def get(call: Call, params: GetParams) -> Json:
    """What a conversation's model is told first, with figures by section, file and tool."""
    key = call.host.control.resolve_key(params.session_key, params.agent_id)
    return await show_prompt(call.host.preview, key, text=params.text)


async def show_prompt(services: PreviewServices, key: str, *, text: bool) -> dict[str, Json]:
    """Return the answer of `prompt.get`, with or without a gateway."""
    found = await preview(services, key)
    told: dict[str, Json] = {
        "sessionKey": key,
        "agentId": agent_of(key),
        "report": found.report.to_json(),
    }
    return {**told, "text": found.prompt.text} if text else told
