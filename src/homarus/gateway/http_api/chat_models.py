"""What `/v1/chat/completions` takes and returns, as OpenAI's clients know it."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from homarus.gateway.http_api.endpoint import ApiRequest, ApiResponse
from homarus.gateway.http_api.requested_tools import ChoiceWord, FunctionDeclaration

ShortText: TypeAlias = Annotated[str, Field(max_length=256)]
CallId: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
MAX_MESSAGES = 2_000


class ChatText(ApiRequest):
    """Text."""

    type: Literal["text"]
    text: str


class ChatRefusal(ApiRequest):
    """A refusal of an earlier answer."""

    type: Literal["refusal"]
    refusal: str


class ImageUrl(ApiRequest):
    """Where an image is: a `data:` URL with it, or an address to fetch."""

    url: Annotated[str, Field(min_length=1)]


class ChatImage(ApiRequest):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageUrl


class FileContent(ApiRequest):
    """A file in base64, or a `data:` URL with it."""

    file_data: Annotated[str, Field(min_length=1)]
    filename: ShortText | None = None


class ChatFile(ApiRequest):
    """A document: a text file or a PDF."""

    type: Literal["file"]
    file: FileContent


UserPart: TypeAlias = Annotated[ChatText | ChatImage | ChatFile, Field(discriminator="type")]
AssistantPart: TypeAlias = Annotated[ChatText | ChatRefusal, Field(discriminator="type")]


class SystemMessage(ApiRequest):
    """Instructions for this run."""

    role: Literal["system", "developer"]
    content: str | list[ChatText]


class UserMessage(ApiRequest):
    """A message of the user."""

    role: Literal["user"]
    content: str | list[UserPart]


class CalledFunction(ApiRequest):
    """A function that an earlier answer called; its arguments are JSON in a string."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: str


class SentToolCall(ApiRequest):
    """A call of an earlier answer."""

    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(ApiRequest):
    """An earlier answer."""

    role: Literal["assistant"]
    content: str | list[AssistantPart] | None = None
    refusal: str | None = None
    tool_calls: list[SentToolCall] | None = None


class ToolMessage(ApiRequest):
    """The result of a call."""

    role: Literal["tool"]
    content: str | list[ChatText]
    tool_call_id: CallId


ChatMessage: TypeAlias = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class ChatTool(ApiRequest):
    """A function that the model may call, and the client runs."""

    type: Literal["function"]
    function: FunctionDeclaration


class NamedFunction(ApiRequest):
    """The name of a function."""

    name: Annotated[str, Field(min_length=1, max_length=64)]


class NamedToolChoice(ApiRequest):
    """The function that must be called."""

    type: Literal["function"]
    function: NamedFunction


class StreamOptions(ApiRequest):
    """What a stream has besides the answer."""

    include_usage: bool | None = None


class TextFormat(ApiRequest):
    """The form of the answer: text is the only one that is supported."""

    type: Literal["text"]


class ChatCompletionRequest(ApiRequest):
    """A conversation, and how it is to be answered.

    Fields that are not listed are ignored: `frequency_penalty`, `presence_penalty`, `logit_bias`,
    `seed`, `store`, `metadata`, `service_tier`, `prediction`, `verbosity` and others.
    """

    model: ShortText
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Field(max_length=256)] | None = None
    tools: list[ChatTool] | None = None
    tool_choice: ChoiceWord | NamedToolChoice | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    # Ours: the agent's own tools are left out, so that only those of the request are offered.
    disable_tools: Annotated[bool | None, Field(alias="disableTools")] = None
    # What restricts the answer is obeyed or refused: these have one value that changes nothing.
    n: Literal[1] | None = None
    response_format: TextFormat | None = None
    parallel_tool_calls: Literal[True] | None = None
    logprobs: Literal[False] | None = None
    modalities: list[Literal["text"]] | None = None
    functions: Literal[None] = None
    function_call: Literal[None] = None
    audio: Literal[None] = None
    web_search_options: Literal[None] = None


class AnsweredFunction(ApiResponse):
    """A function that the answer calls; its arguments are JSON in a string."""

    name: str
    arguments: str


class AnsweredToolCall(ApiResponse):
    """A call that the client is to run."""

    id: str
    type: Literal["function"] = "function"
    function: AnsweredFunction


class ChatReply(ApiResponse):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[AnsweredToolCall] | None = None


class ChatChoice(ApiResponse):
    """The one answer of a run, and why it ended."""

    index: Literal[0] = 0
    message: ChatReply
    logprobs: None = None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(ApiResponse):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: dict[str, Any]
