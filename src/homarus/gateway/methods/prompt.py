"""The system prompt of a conversation, and what it is made of."""

from homarus.agent.prompt.preview import preview
from homarus.agent.run import agent_of
from homarus.core.message import Json
from homarus.gateway.method import Call, Params, method
from homarus.gateway.params import Name


class GetParams(Params):
    """Which conversation; without one, the main one of an agent. `text`: the prompt itself too."""

    session_key: Name | None = None
    agent_id: Name | None = None
    text: bool = True


@method("prompt.get", scope="admin", params=GetParams, advertised=False)
async def get(call: Call, params: GetParams) -> Json:
    """What a conversation's model is told first, with figures by section, file and tool."""
    host = call.host
    key = host.key(params.session_key, params.agent_id)
    agent = host.agent(agent_of(key))
    session = await host.session(key)
    tools = host.tools(agent.id).specs()
    found = await preview(session, agent, host.models, tools, host.clock.now_ms())
    told: dict[str, Json] = {
        "sessionKey": key,
        "agentId": agent.id,
        "report": found.report.to_json(),
    }
    return {**told, "text": found.prompt.text} if params.text else told
