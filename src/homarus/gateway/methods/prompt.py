"""Method for the system prompt of a session and its parts."""

from homarus.agent.prompt.preview import preview
from homarus.core.keys import agent_of
from homarus.core.message import Json
from homarus.gateway.host import Host
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
    return await show_prompt(call.host, params.session_key, params.agent_id, text=params.text)


async def show_prompt(
    host: Host, asked: str | None, agent_id: str | None, *, text: bool
) -> dict[str, Json]:
    """Return the prompt report of a program, with or without a gateway."""
    key = host.key(asked, agent_id)
    found = await preview(host, key)
    told: dict[str, Json] = {
        "sessionKey": key,
        "agentId": agent_of(key),
        "report": found.report.to_json(),
    }
    return {**told, "text": found.prompt.text} if text else told
