"""`/v1/embeddings`: vectors of texts, by the embedder of an agent's memory."""

import base64
from array import array
from typing import Annotated, Final, Literal

from pydantic import Field

from homarus.core.text import one_line
from homarus.gateway.http_api.agent_models import check_agent, get_agent
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.embedding_pool import EmbedderChoiceRequest, EmbeddingPool
from homarus.gateway.http_api.endpoint import (
    MIB,
    ApiCall,
    ApiHeader,
    ApiRequest,
    ApiResponse,
    EndpointLimits,
    api_endpoint,
)

MAX_INPUTS: Final = 512
MAX_TEXT_CHARS: Final = 8_000  # every service reads as much of a text
MAX_INPUT_CHARS: Final = 400_000  # of all texts of a request
MODEL_HEADER: Final = "x-openclaw-model"
AGENT_HEADER: Final = "x-openclaw-agent-id"
_IS_LITTLE: Final = array("H", [1]).tobytes() == b"\x01\x00"


class EmbeddingRequest(ApiRequest):
    """Texts, and how their vectors are encoded. `user` and other fields have no effect."""

    model: Annotated[str, Field(min_length=1, max_length=200, examples=["openclaw"])]
    input: str | list[str] | list[int] | list[list[int]] = Field(
        description="A text or texts; tokens of OpenAI's models are refused"
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=100_000)] | None = None


class EmbeddingObject(ApiResponse):
    """The vector of one text: numbers, or base64 of little-endian 32-bit floats."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(ApiResponse):
    """The tokens of a request: those that the service counted, else characters by four."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(ApiResponse):
    """The vectors, in the order of the texts; `model` is the one that made them."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingUsage


@api_endpoint(
    "POST",
    "/v1/embeddings",
    scope="write",
    request=EmbeddingRequest,
    response=EmbeddingList,
    limits=EndpointLimits(lambda _endpoints: 4 * MIB),
    headers=(
        ApiHeader(AGENT_HEADER, "The agent whose embedder is used, instead of that of `model`"),
        ApiHeader(MODEL_HEADER, "Another embedder, as provider/model; needs operator.admin"),
    ),
    errors=(404, 502, 504),
)
async def create_embeddings(call: ApiCall, body: EmbeddingRequest) -> EmbeddingList:
    """Turn texts into vectors of length 1, by the embedder of an agent's memory settings."""
    texts = _texts(body)
    found = await call.part(EmbeddingPool).embed(_choose(call, body), texts)
    if body.dimensions not in {None, found.dims}:
        raise ApiError(
            400,
            f"the vectors of {found.model} have {found.dims} dimensions",
            param="dimensions",
            fix="leave dimensions out",
        )
    data = [
        EmbeddingObject(
            index=index, embedding=_base64(vector) if body.encoding_format == "base64" else vector
        )
        for index, vector in enumerate(found.vectors)
    ]
    usage = EmbeddingUsage(prompt_tokens=found.tokens, total_tokens=found.tokens)
    return EmbeddingList(data=data, model=found.model, usage=usage)


def _choose(call: ApiCall, body: EmbeddingRequest) -> EmbedderChoiceRequest:
    """Return which embedder a request is for; raises ApiError (400, 403, 404)."""
    config = call.services.loaded.config
    named = call.header(AGENT_HEADER)
    agent = check_agent(config, named, param=AGENT_HEADER) if named else ""
    agent = agent or get_agent(config, body.model)
    wanted = call.header(MODEL_HEADER)
    if not wanted:
        return EmbedderChoiceRequest(agent)
    if not call.caller.may("admin"):
        raise ApiError(
            403, f"missing scope: operator.admin for {MODEL_HEADER}", reason="missing_scope"
        )
    from homarus.config.memory import embedder_names

    provider, _, model = wanted.partition("/")
    if provider not in embedder_names():
        raise ApiError(
            400,
            f"there is no embedder {one_line(provider, 40)!r}",
            param=MODEL_HEADER,
            fix=f"use {', '.join(sorted(embedder_names()))}, then / and a model",
        )
    return EmbedderChoiceRequest(agent, provider, model)


def _texts(body: EmbeddingRequest) -> list[str]:
    """Return the texts of a request; raises ApiError (400)."""
    given = [body.input] if isinstance(body.input, str) else body.input
    texts = [each for each in given if isinstance(each, str)]
    if len(texts) != len(given):
        message = "tokens are not read: which model made them is not known"
        raise _invalid(message, "send texts")
    if not texts or any(not text.strip() for text in texts):
        raise _invalid("there is nothing to embed: a text is missing or blank", "")
    if len(texts) > MAX_INPUTS:
        raise _invalid(f"a request may have {MAX_INPUTS} texts", "send several requests")
    if any(len(text) > MAX_TEXT_CHARS for text in texts):
        raise _invalid(f"a text may have {MAX_TEXT_CHARS} characters", "send it in parts")
    if sum(map(len, texts)) > MAX_INPUT_CHARS:
        message = f"the texts of a request may have {MAX_INPUT_CHARS} characters"
        raise _invalid(message, "send several requests")
    return texts


def _invalid(message: str, fix: str) -> ApiError:
    return ApiError(400, message, param="input", fix=fix)


def _base64(vector: list[float]) -> str:
    floats = array("f", vector)
    if not _IS_LITTLE:
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode("ascii")
