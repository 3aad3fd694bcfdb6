"""`/v1/responses`: run an agent on a message or a conversation, in OpenAI's newer form."""

from collections.abc import Iterator, Sequence
from typing import Final

from homarus.config.gateway_schema import EndpointsConfig
from homarus.core.session_keys import agent_id_of
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.client_run import RunInput, open_run
from homarus.gateway.http_api.conversation import (
    PartKind,
    SentMessage,
    SentPart,
    parse_call,
    split_conversation,
)
from homarus.gateway.http_api.endpoint import (
    KEY_HEADER,
    ApiCall,
    ApiResponse,
    EndpointLimits,
    api_endpoint,
)
from homarus.gateway.http_api.event_stream import RunEventStream, stream_run
from homarus.gateway.http_api.requested_tools import RequestedTools, choose_tools
from homarus.gateway.http_api.response_encoding import ResponseEncoder, run_id_of
from homarus.gateway.http_api.response_models import (
    Base64Source,
    FileSource,
    FunctionCallItem,
    FunctionOutputItem,
    IgnoredItem,
    InputFile,
    InputImage,
    InputItem,
    InputMessage,
    InputPart,
    InputRefusal,
    InputText,
    NamedResponseTool,
    ResponseObject,
    ResponseRequest,
)
from homarus.gateway.http_api.run_input import RunSettings, make_run_input
from homarus.gateway.http_api.run_target import RUN_HEADERS, RunTarget, resolve_target

_PREFIX: Final = "openresponses"  # of the keys of sessions
_SYSTEM: Final = frozenset({"system", "developer"})


def _max_body_bytes(endpoints: EndpointsConfig) -> int:
    return endpoints.responses.max_body_bytes


@api_endpoint(
    "POST",
    "/v1/responses",
    scope="write",
    request=ResponseRequest,
    response=ResponseObject,
    limits=EndpointLimits(_max_body_bytes),
    headers=(KEY_HEADER, *RUN_HEADERS),
    streams=True,
    errors=(404, 409, 422, 500, 502, 504),
)
async def create_response(call: ApiCall, body: ResponseRequest) -> ApiResponse | RunEventStream:
    """Answer a message or a conversation with an agent, at once or as a stream."""
    target = resolve_target(call, body.model, body.user, _PREFIX)
    if body.previous_response_id:
        target = await _continue(call, target, body.previous_response_id)
    tools = _choose_tools(body)
    items: Sequence[InputItem] = (
        body.input
        if isinstance(body.input, list)
        else [InputMessage(role="user", content=body.input)]
    )
    system = [body.instructions or "", *_system_texts(items)]
    messages = list(_as_messages(items))
    conversation = split_conversation(system, messages, is_single=target.is_single, param="input")
    settings = RunSettings(
        body.temperature, body.top_p, body.max_output_tokens,
        effort=body.reasoning.effort if body.reasoning else None,
        disables_tools=bool(body.disable_tools),
    )  # fmt: skip

    async def prepare() -> RunInput:
        return await make_run_input(call, conversation, tools, settings, param="input")

    run = await open_run(call, target, prepare, streams=bool(body.stream))
    encoder = ResponseEncoder(run, body, tools)
    if body.stream:
        return await stream_run(run, encoder)
    try:
        return encoder.encode(await run.answer())
    finally:
        run.close()


async def _continue(call: ApiCall, target: RunTarget, name: str) -> RunTarget:
    """Return the session of an earlier response; raises ApiError (400, 404)."""
    run_id = run_id_of(name)
    row = await call.services.store.journal.inbox_record(run_id) if run_id else None
    if row is None:
        raise ApiError(
            404, "there is no such response, or not any more",
            reason="previous_response_not_found", param="previous_response_id",
        )  # fmt: skip
    if target.session_key not in {"", row.session} or agent_id_of(row.session) != target.agent:
        message = "it was of another session than this request is for"
        raise ApiError(400, message, param="previous_response_id")
    return RunTarget(target.agent, row.session, _PREFIX)


def _choose_tools(body: ResponseRequest) -> RequestedTools:
    if isinstance(body.tool_choice, NamedResponseTool):
        return choose_tools(body.tools or (), "auto", body.tool_choice.name)
    return choose_tools(body.tools or (), body.tool_choice or "auto")


def _system_texts(items: Sequence[InputItem]) -> Iterator[str]:
    for item in items:
        if isinstance(item, InputMessage) and item.role in _SYSTEM:
            yield _text(item.content)


def _as_messages(items: Sequence[InputItem]) -> Iterator[SentMessage]:
    """Yield the messages of a conversation; the calls of one answer are one message."""
    answer: SentMessage | None = None
    for item in items:
        match item:
            case InputMessage(role="assistant"):
                if answer:
                    yield answer
                answer = SentMessage("assistant", _text(item.content))
                continue
            case FunctionCallItem():
                called = parse_call(item.call_id, item.name, item.arguments)
                before = answer or SentMessage("assistant")
                answer = SentMessage("assistant", before.text, calls=(*before.calls, called))
                continue
            case IgnoredItem():
                continue
        if answer:
            yield answer
            answer = None
        match item:
            case FunctionOutputItem():
                parts = _parts(item.output)
                yield SentMessage("tool", _text(item.output), parts, call_id=item.call_id)
            case InputMessage(role="user"):
                yield SentMessage("user", _text(item.content), _parts(item.content))
    if answer:
        yield answer


def _text(content: str | Sequence[InputPart]) -> str:
    if isinstance(content, str):
        return content
    texts = list[str]()
    for part in content:
        if isinstance(part, InputText):
            texts.append(part.text)
        elif isinstance(part, InputRefusal):
            texts.append(part.refusal)
    return "\n".join(texts)


def _parts(content: str | Sequence[InputPart]) -> tuple[SentPart, ...]:
    if isinstance(content, str):
        return ()
    return tuple(
        _image(part) if isinstance(part, InputImage) else _file(part)
        for part in content
        if isinstance(part, InputImage | InputFile)
    )


def _image(part: InputImage) -> SentPart:
    if part.source is not None:
        return _from_source("image", part.source)
    if part.image_url is None:
        raise ApiError(400, "an input_image needs image_url", param="input")
    return SentPart("image", part.image_url, is_url=part.image_url[:5].lower() != "data:")


def _file(part: InputFile) -> SentPart:
    if part.source is not None:
        return _from_source("file", part.source, part.filename or "")
    if part.file_data is not None:
        return SentPart("file", part.file_data, name=part.filename or "")
    if part.file_url is None:
        raise ApiError(400, "an input_file needs file_data or file_url", param="input")
    return SentPart("file", part.file_url, is_url=True, name=part.filename or "")


def _from_source(kind: PartKind, source: FileSource, name: str = "") -> SentPart:
    if isinstance(source, Base64Source):
        mime, name = source.media_type or "", source.filename or name
        return SentPart(kind, source.data, mime=mime, name=name)
    return SentPart(kind, source.url, is_url=True, name=name)
