"""`agents.files.preview`: what the prompt keeps of the workspace files of an agent."""

import asyncio
from typing import Annotated

from pydantic import Field

from homarus.agent.agent import Agent
from homarus.agent.prompt.workspace_files import MAX_BYTES
from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name


class AgentFilesPreviewParams(Params):
    """The agent; with a name and a content, one file is previewed as if it were saved."""

    agent_id: Name
    name: Name | None = None
    content: Annotated[str, Field(max_length=MAX_BYTES)] | None = None


@method("agents.files.preview", scope="admin", params=AgentFilesPreviewParams, advertised=False)
async def preview(call: MethodCall, params: AgentFilesPreviewParams) -> Json:
    """What a prompt of the agent's main session includes of its files. Ours.

    `kept` is the text that remains of the file that is named. A small model gets less.
    """
    from homarus.agent.prompt.injection import ORDER
    from homarus.config.agent_settings import agent_ids
    from homarus.core.session_keys import normalize_agent_id

    agent_id = normalize_agent_id(params.agent_id)
    if agent_id not in agent_ids(call.services.loaded.config):
        raise InvalidRequestError("invalid agents.files.preview params: at agentId: unknown agent")
    if params.name and params.name not in ORDER:
        raise InvalidRequestError(
            "invalid agents.files.preview params: at name: not a file of prompts",
            fix=f"one of {', '.join(ORDER)}",
        )
    return await asyncio.to_thread(_preview, call.services.agent(agent_id), params)


def _preview(agent: Agent, params: AgentFilesPreviewParams) -> dict[str, Json]:
    from homarus.agent.prompt.injection import file_names_for, inject, texts_of, with_texts
    from homarus.agent.prompt.workspace_files import WorkspaceFileReader

    files = WorkspaceFileReader().load(agent.workspace, file_names_for("main"))
    if params.name and params.content is not None:
        files = with_texts(files, {**texts_of(files), params.name: params.content.strip()})
    injected = inject(files, agent.max_file_chars, agent.max_total_chars)
    kept = next((one.text for one in injected if one.name == params.name), None)
    rows: list[Json] = [
        {
            "name": one.name,
            "missing": one.missing,
            "rawChars": one.raw_chars,
            "keptChars": 0 if one.missing else len(one.text),
            "truncated": one.truncated,
        }
        for one in injected
    ]
    shown: dict[str, Json] = {
        "agentId": agent.id,
        "maxFileChars": agent.max_file_chars,
        "maxTotalChars": agent.max_total_chars,
        "files": rows,
    }
    return shown if kept is None else {**shown, "kept": kept}
