"""OpenAI's embeddings, and those of any compatible server."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.memory.embed.backends import AutoSelection, AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.batch_jobs import BatchApi, EmbeddedTexts
from homarus.memory.embed.file_batches import ENDPOINT, FileBatchApi
from homarus.memory.embed.remote import EmbedRequestLimits, TextKind
from homarus.memory.embed.response import ResponseModel, parse_response
from homarus.memory.embed.vendor import EmbeddingVendor, create_remote

# Dimensions, and USD per million tokens.
_MODELS: Final[Mapping[str, tuple[int, float]]] = {
    "text-embedding-3-small": (1536, 0.02),
    "text-embedding-3-large": (3072, 0.13),
    "text-embedding-ada-002": (1536, 0.10),
}
# OpenAI's limits are 2,048 texts and 300,000 tokens; 8,192 tokens for one text.
_LIMITS: Final = EmbedRequestLimits(max_texts=512, max_chars=400_000, max_text_chars=16_000)


class _OpenAIVector(ResponseModel):
    index: int | None = None
    embedding: list[float]


class _OpenAIUsage(ResponseModel):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _OpenAIResponse(ResponseModel):
    data: list[_OpenAIVector]
    usage: _OpenAIUsage | None = None


def read_list(data: bytes) -> EmbeddedTexts:
    """Parse a list of numbered vectors; return them in the order of their numbers."""
    answer = parse_response(_OpenAIResponse, data)
    numbers = [item.index for item in answer.data]
    items = list(answer.data)
    if any(number is not None for number in numbers):
        if sorted(number for number in numbers if number is not None) != list(range(len(items))):
            raise ValueError("its vectors are numbered wrongly")
        items.sort(key=lambda item: item.index or 0)
    used = answer.usage
    tokens = (used.total_tokens or used.prompt_tokens) if used else None
    return EmbeddedTexts([item.embedding for item in items], tokens)


@dataclass(frozen=True, slots=True)
class OpenAIEmbeddingApi:
    """`POST /embeddings`."""

    model: str
    has_jobs: bool = True  # compatible servers have no batch API
    path: str = "/embeddings"
    key_header: str = "Authorization"
    unknown_fix: str = ""

    def body(self, texts: Sequence[str], kind: TextKind) -> bytes:
        return json.dumps(self._body(texts)).encode()

    def read(self, data: bytes) -> EmbeddedTexts:
        return read_list(data)

    @property
    def jobs(self) -> BatchApi | None:
        """Return the Batch API, at half the price."""
        if not self.has_jobs:
            return None
        return FileBatchApi(
            line=lambda texts: {"method": "POST", "url": ENDPOINT, "body": self._body(texts)},
            request={"endpoint": ENDPOINT, "completion_window": "24h"},
            read=read_list,
        )

    def _body(self, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "input": list(texts), "encoding_format": "float"}


VENDOR: Final = EmbeddingVendor(
    "OpenAI",
    "https://api.openai.com/v1",
    "text-embedding-3-small",
    _MODELS,
    _LIMITS,
    OpenAIEmbeddingApi,
    key_name="OPENAI_API_KEY",
    has_compatible_servers=True,
)
# An address without a provider is that of a server which answers as OpenAI does.
AUTO: Final = AutoSelection(order=20, takes_settings=True)


def create(request: EmbedderRequest) -> AvailableEmbedder:
    """Create the embedder; see EmbedderModule."""
    return create_remote(VENDOR, request)
