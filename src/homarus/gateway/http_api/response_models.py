"""What `/v1/responses` takes and returns, as OpenAI's clients know it."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from homarus.gateway.http_api.chat_models import CallId, ShortText
from homarus.gateway.http_api.endpoint import ApiRequest, ApiResponse
from homarus.gateway.http_api.requested_tools import ChoiceWord, FunctionDeclaration

MAX_ITEMS = 2_000
NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]


class InputText(ApiRequest):
    """Text of a message."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class InputRefusal(ApiRequest):
    """A refusal of an earlier answer."""

    type: Literal["refusal"]
    refusal: str


class Base64Source(ApiRequest):
    """A file in base64."""

    type: Literal["base64"]
    data: NonEmpty
    media_type: ShortText | None = None
    filename: ShortText | None = None


class UrlSource(ApiRequest):
    """A file at an address, which is fetched."""

    type: Literal["url"]
    url: NonEmpty


FileSource: TypeAlias = Annotated[Base64Source | UrlSource, Field(discriminator="type")]


class InputImage(ApiRequest):
    """An image: a `data:` URL or an address in `image_url`, or a source."""

    type: Literal["input_image"]
    image_url: NonEmpty | None = None
    source: FileSource | None = None


class InputFile(ApiRequest):
    """A document: `file_data` in base64, an address in `file_url`, or a source."""

    type: Literal["input_file"]
    file_data: NonEmpty | None = None
    file_url: NonEmpty | None = None
    filename: ShortText | None = None
    source: FileSource | None = None


InputPart: TypeAlias = Annotated[
    InputText | InputRefusal | InputImage | InputFile, Field(discriminator="type")
]


class InputMessage(ApiRequest):
    """A message of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[InputPart]


class FunctionCallItem(ApiRequest):
    """A call of an earlier answer; its arguments are JSON in a string."""

    type: Literal["function_call"]
    call_id: CallId
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: str


class FunctionOutputItem(ApiRequest):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: str | list[InputPart]


class IgnoredItem(ApiRequest):
    """Reasoning of an earlier answer, or a reference: the session has it."""

    type: Literal["reasoning", "item_reference"]


def _item_kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return str(kind or "message")


InputItem: TypeAlias = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionOutputItem, Tag("function_call_output")]
    | Annotated[IgnoredItem, Tag("reasoning")]
    | Annotated[IgnoredItem, Tag("item_reference")],
    Discriminator(_item_kind),
]


class ResponseTool(FunctionDeclaration):
    """A function that the model may call, and the client runs."""

    type: Literal["function"]


class NamedResponseTool(ApiRequest):
    """The function that must be called."""

    type: Literal["function"]
    name: Annotated[str, Field(min_length=1, max_length=64)]


class AnswerFormat(ApiRequest):
    """The form of the answer: text is the only one that is supported."""

    type: Literal["text"]


class TextConfig(ApiRequest):
    """How the text of the answer is written."""

    format: AnswerFormat | None = None


class ReasoningConfig(ApiRequest):
    """How much the model thinks."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class ResponseRequest(ApiRequest):
    """What is said to an agent, and how it is to be answered.

    Fields that are not listed are ignored: `include`, `metadata`, `store`, `truncation`,
    `service_tier`, `safety_identifier`, `prompt_cache_key` and others.
    """

    model: ShortText
    input: NonEmpty | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_ITEMS)]
    instructions: str | None = None
    stream: bool | None = None
    user: Annotated[str, Field(max_length=256)] | None = None
    previous_response_id: Annotated[str, Field(max_length=128)] | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: ChoiceWord | NamedResponseTool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    reasoning: ReasoningConfig | None = None
    # Ours: the agent's own tools are left out, so that only those of the request are offered.
    disable_tools: Annotated[bool | None, Field(alias="disableTools")] = None
    # What restricts the answer is obeyed or refused: these have one value that changes nothing.
    text: TextConfig | None = None
    parallel_tool_calls: Literal[True] | None = None
    background: Literal[False] | None = None
    max_tool_calls: Literal[None] = None
    conversation: Literal[None] = None
    prompt: Literal[None] = None


class ResponseObject(ApiResponse):
    """The answer. `incomplete` with function calls: the client runs them and sends the results."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    instructions: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    previous_response_id: str | None = None
    parallel_tool_calls: Literal[True] = True
    tool_choice: Any = "auto"
    tools: list[dict[str, Any]] = Field(default_factory=list)
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
