"""Embeddings of a local Ollama server."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.memory.embed.backends import AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.batch_jobs import BatchApi, EmbeddedTexts
from homarus.memory.embed.remote import EmbedRequestLimits, TextKind
from homarus.memory.embed.response import ResponseModel, parse_response
from homarus.memory.embed.vendor import EmbeddingVendor, create_remote

# Dimensions; it is free. Of another model, the first response tells them.
_MODELS: Final[Mapping[str, tuple[int, float]]] = {
    "nomic-embed-text": (768, 0.0),
    "mxbai-embed-large": (1024, 0.0),
    "all-minilm": (384, 0.0),
    "bge-m3": (1024, 0.0),
    "embeddinggemma": (768, 0.0),
}
_LIMITS: Final = EmbedRequestLimits(max_texts=64, max_chars=100_000, max_text_chars=8_000)
# The prefix that a model was trained with.
_BEFORE: Mapping[str, Mapping[TextKind, str]] = {
    "nomic-embed-text": {"note": "search_document: ", "question": "search_query: "},
    "mxbai-embed-large": {
        "question": "Represent this sentence for searching relevant passages: ",
    },
}


class _OllamaResponse(ResponseModel):
    embeddings: list[list[float]]
    prompt_eval_count: int | None = None


@dataclass(frozen=True, slots=True)
class OllamaEmbeddingApi:
    """`POST /api/embed`; the server truncates texts that are too long."""

    model: str
    path: str = "/api/embed"
    key_header: str = "Authorization"

    @property
    def unknown_fix(self) -> str:
        return f"run `ollama pull {self.model}`"

    @property
    def jobs(self) -> BatchApi | None:
        return None

    def body(self, texts: Sequence[str], kind: TextKind) -> bytes:
        before = _BEFORE.get(self.model.partition(":")[0], {}).get(kind, "")
        said = [before + text for text in texts]
        return json.dumps({"model": self.model, "input": said, "truncate": True}).encode()

    def read(self, data: bytes) -> EmbeddedTexts:
        answer = parse_response(_OllamaResponse, data)
        return EmbeddedTexts(answer.embeddings, answer.prompt_eval_count)


def root_of(base_url: str) -> str:
    """Return the server's root for an address that may be of its OpenAI-compatible API."""
    return base_url.rstrip("/").removesuffix("/v1").removesuffix("/api")


VENDOR: Final = EmbeddingVendor(
    "Ollama",
    "http://127.0.0.1:11434",
    "nomic-embed-text",
    _MODELS,
    _LIMITS,
    lambda model, _own: OllamaEmbeddingApi(model),
    root=root_of,
)
AUTO: Final = None  # only if the config names it


def create(request: EmbedderRequest) -> AvailableEmbedder:
    """Create the embedder; see EmbedderModule."""
    return create_remote(VENDOR, request)
