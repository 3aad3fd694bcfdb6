"""`/v1/chat/completions`: run an agent on a conversation, in OpenAI's older form."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from homarus.agent.reply.payloads import arguments_text
from homarus.core.message import Json, ToolCall, Usage
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.chat_models import (
    AnsweredFunction,
    AnsweredToolCall,
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionRequest,
    ChatFile,
    ChatImage,
    ChatMessage,
    ChatRefusal,
    ChatReply,
    ChatText,
    NamedToolChoice,
    SystemMessage,
    ToolMessage,
)
from homarus.gateway.http_api.client_run import ClientRun, RunInput, open_run
from homarus.gateway.http_api.conversation import (
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
from homarus.gateway.http_api.event_stream import DONE, RunEventStream, encode_event, stream_run
from homarus.gateway.http_api.requested_tools import RequestedTools, choose_tools
from homarus.gateway.http_api.run_answer import RunAnswer
from homarus.gateway.http_api.run_input import RunSettings, make_run_input
from homarus.gateway.http_api.run_target import RUN_HEADERS, resolve_target

_PREFIX: Final = "openai"  # of the keys of sessions
_LIMITS: Final = EndpointLimits()


@api_endpoint(
    "POST",
    "/v1/chat/completions",
    scope="write",
    request=ChatCompletionRequest,
    response=ChatCompletion,
    limits=_LIMITS,
    headers=(KEY_HEADER, *RUN_HEADERS),
    streams=True,
    errors=(404, 409, 422, 500, 502, 504),
)
async def create_chat_completion(
    call: ApiCall, body: ChatCompletionRequest
) -> ApiResponse | RunEventStream:
    """Answer a conversation with an agent, at once or as a stream."""
    target = resolve_target(call, body.model, body.user, _PREFIX)
    tools = _choose_tools(body)
    system = [_text(each.content) for each in body.messages if isinstance(each, SystemMessage)]
    sent = [_as_sent(one) for one in body.messages if not isinstance(one, SystemMessage)]
    conversation = split_conversation(system, sent, is_single=target.is_single, param="messages")

    async def prepare() -> RunInput:
        return await make_run_input(call, conversation, tools, _settings(body), param="messages")

    run = await open_run(call, target, prepare, streams=bool(body.stream))
    if body.stream:
        options = body.stream_options
        has_usage = bool(options and options.include_usage)
        return await stream_run(run, ChatStreamEncoder(run, body.model, tools, has_usage=has_usage))
    try:
        answer = await run.answer()
    finally:
        run.close()
    tools.check(answer)
    message = ChatReply(
        content=answer.text if answer.text or not answer.calls else None,
        tool_calls=[_encode_call(each) for each in answer.calls] or None,
    )
    choice = ChatChoice(message=message, finish_reason=_finish_reason(answer))
    return ChatCompletion(
        id=_name(run), created=run.created_s, model=body.model, choices=[choice],
        usage=encode_chat_usage(answer.usage),
    )  # fmt: skip


class ChatStreamEncoder:
    """Encodes a run as chunks of a chat completion."""

    def __init__(
        self, run: ClientRun, model: str, tools: RequestedTools, *, has_usage: bool
    ) -> None:
        self._tools, self._has_usage = tools, has_usage
        self._head: dict[str, Json] = {
            "id": _name(run),
            "object": "chat.completion.chunk",
            "created": run.created_s,
            "model": model,
        }

    def begin(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def add_text(self, text: str) -> Iterator[bytes]:
        yield self._chunk({"content": text})

    def end(self, answer: RunAnswer) -> Iterator[bytes]:
        try:
            self._tools.check(answer)
        except ApiError as exc:
            yield from self.fail(exc)
            return
        for index, each in enumerate(answer.calls):
            call = _encode_call(each).model_dump()
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        yield self._chunk({}, _finish_reason(answer))
        if self._has_usage:
            usage = encode_chat_usage(answer.usage)
            yield encode_event({**self._head, "choices": [], "usage": usage})
        yield DONE

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield encode_event(error.body)

    def _chunk(self, delta: dict[str, Json], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        more: dict[str, Json] = {"usage": None} if self._has_usage else {}
        return encode_event({**self._head, "choices": [choice], **more})


def encode_chat_usage(usage: Usage) -> dict[str, Json]:
    """Return the tokens of all model calls of a run."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _name(run: ClientRun) -> str:
    return f"chatcmpl_{run.id}"


def _finish_reason(answer: RunAnswer) -> Literal["stop", "length", "tool_calls"]:
    return "tool_calls" if answer.calls else "length" if answer.is_cut else "stop"


def _encode_call(call: ToolCall) -> AnsweredToolCall:
    function = AnsweredFunction(name=call.name, arguments=arguments_text(call))
    return AnsweredToolCall(id=call.id, function=function)


def _choose_tools(body: ChatCompletionRequest) -> RequestedTools:
    declared = [tool.function for tool in body.tools or ()]
    if isinstance(body.tool_choice, NamedToolChoice):
        return choose_tools(declared, "auto", body.tool_choice.function.name)
    return choose_tools(declared, body.tool_choice or "auto")


def _settings(body: ChatCompletionRequest) -> RunSettings:
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return RunSettings(
        body.temperature,
        body.top_p,
        body.max_completion_tokens or body.max_tokens,
        tuple(word for word in stop if word),
        body.reasoning_effort,
        bool(body.disable_tools),
    )


def _as_sent(message: ChatMessage) -> SentMessage:
    """Return a message of the request, which is none of the system."""
    match message:
        case ToolMessage():
            return SentMessage("tool", _text(message.content), call_id=message.tool_call_id)
        case AssistantMessage():
            calls = tuple(
                parse_call(each.id, each.function.name, each.function.arguments)
                for each in message.tool_calls or ()
            )
            text = _text(message.content or ()) or message.refusal or ""
            return SentMessage("assistant", text, calls=calls)
        case _:
            content = message.content
            parts = () if isinstance(content, str) else tuple(_parts(content))
            return SentMessage("user", _text(content), parts)


def _text(content: str | Sequence[object]) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, ChatText):
            texts.append(part.text)
        elif isinstance(part, ChatRefusal):
            texts.append(part.refusal)
    return "\n".join(texts)


def _parts(content: Sequence[object]) -> Iterator[SentPart]:
    for part in content:
        if isinstance(part, ChatImage):
            url = part.image_url.url
            yield SentPart("image", url, is_url=url[:5].lower() != "data:")
        elif isinstance(part, ChatFile):
            yield SentPart("file", part.file.file_data, name=part.file.filename or "")
