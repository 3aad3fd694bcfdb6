"""Make the input of a run from what both endpoints for runs have in their requests."""

from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import ClientOptions, Json
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.client_run import RunInput
from homarus.gateway.http_api.conversation import SentConversation, encode_history
from homarus.gateway.http_api.endpoint import ApiCall
from homarus.gateway.http_api.requested_tools import RequestedTools
from homarus.gateway.http_api.run_target import MODEL_HEADER
from homarus.gateway.http_api.sent_files import read_sent_parts
from homarus.gateway.methods.chat import clean
from homarus.gateway.run_request import parse_run_options

MAX_PROMPT_CHARS: Final = 200_000
_EFFORTS: Final = {"none": "off"}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the model is asked in one run; None leaves it to the agent's settings."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    effort: str | None = None
    disables_tools: bool = False

    @property
    def params(self) -> dict[str, Json]:
        given: dict[str, Json] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": list(self.stop) or None,
        }
        return {name: value for name, value in given.items() if value is not None}


async def make_run_input(
    call: ApiCall,
    conversation: SentConversation,
    tools: RequestedTools,
    settings: RunSettings,
    *,
    param: str,
) -> RunInput:
    """Return the input of a run, with its images and files read; raises ApiError (400, 413)."""
    prompt = "\n\n".join(part for part in (conversation.system, tools.prompt) if part)
    if len(prompt) > MAX_PROMPT_CHARS:
        raise ApiError(400, f"system messages may have {MAX_PROMPT_CHARS} characters", param=param)
    sent = (*conversation.earlier, *conversation.results, *conversation.questions)
    files = await read_sent_parts(call, sent, param)
    client = ClientOptions(
        tools=tools.tools,
        disables_tools=settings.disables_tools,
        results=encode_history(conversation.results, files.decoded),
        history=encode_history(conversation.earlier, files.decoded),
        params=settings.params,
    )
    effort = settings.effort and _EFFORTS.get(settings.effort, settings.effort)
    options = replace(
        parse_run_options(effort, None),
        model=_backend_model(call),
        extra_system_prompt=clean(prompt),
        client=client,
    )
    images = tuple(
        image for message in conversation.questions for image in files.decoded.of(message)
    )
    return RunInput(clean(conversation.text), options, images, files.media)


def _backend_model(call: ApiCall) -> str | None:
    """Return the model that a header names for this run; needs the admin scope."""
    name = call.header(MODEL_HEADER)
    if not name:
        return None
    if not call.caller.may("admin"):
        raise ApiError(403, f"{MODEL_HEADER} needs operator.admin", reason="missing_scope")
    try:
        return call.services.models.check_typed(name).ref
    except UserError as exc:
        raise ApiError(400, exc.message, param=MODEL_HEADER, fix=exc.fix) from None
