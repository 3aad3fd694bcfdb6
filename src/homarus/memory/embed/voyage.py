"""Voyage's embeddings: like OpenAI's, with texts marked as queries or documents."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.memory.embed.backends import AutoSelection, AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.batch_jobs import BatchApi, EmbeddedTexts
from homarus.memory.embed.file_batches import ENDPOINT, FileBatchApi
from homarus.memory.embed.openai import read_list
from homarus.memory.embed.remote import EmbedRequestLimits, TextKind
from homarus.memory.embed.vendor import EmbeddingVendor, create_remote

# Dimensions, and USD per million tokens (the first 200 million of an account are free).
_MODELS: Final[Mapping[str, tuple[int, float]]] = {
    "voyage-4-large": (1024, 0.12),
    "voyage-4": (1024, 0.06),
    "voyage-4-lite": (1024, 0.02),
    "voyage-3-large": (1024, 0.18),
    "voyage-3.5": (1024, 0.06),
    "voyage-3.5-lite": (1024, 0.02),
    "voyage-3": (1024, 0.06),
    "voyage-3-lite": (512, 0.02),
    "voyage-code-3": (1024, 0.18),
}
# Voyage's limits are 1,000 texts and, for the strictest model, 120,000 tokens.
_LIMITS: Final = EmbedRequestLimits(max_texts=512, max_chars=200_000, max_text_chars=32_000)
_KINDS: Mapping[TextKind, str] = {"note": "document", "question": "query"}


@dataclass(frozen=True, slots=True)
class VoyageEmbeddingApi:
    """`POST /embeddings` with an `input_type`; the service truncates texts that are too long."""

    model: str
    path: str = "/embeddings"
    key_header: str = "Authorization"
    unknown_fix: str = ""

    def body(self, texts: Sequence[str], kind: TextKind) -> bytes:
        said = {"model": self.model, "input": list(texts), "input_type": _KINDS[kind]}
        return json.dumps(said).encode()

    def read(self, data: bytes) -> EmbeddedTexts:
        return read_list(data)

    @property
    def jobs(self) -> BatchApi | None:
        """Return the batch API, at two thirds of the price."""
        params = {"model": self.model, "input_type": _KINDS["note"]}
        return FileBatchApi(
            line=lambda texts: {"body": {"input": list(texts)}},
            request={
                "endpoint": ENDPOINT,
                "completion_window": "12h",
                "request_params": params,
            },
            read=read_list,
            price_share=0.67,
        )


VENDOR: Final = EmbeddingVendor(
    "Voyage",
    "https://api.voyageai.com/v1",
    "voyage-3.5",
    _MODELS,
    _LIMITS,
    lambda model, _own: VoyageEmbeddingApi(model),
    key_name="VOYAGE_API_KEY",
)
AUTO: Final = AutoSelection(order=40)


def create(request: EmbedderRequest) -> AvailableEmbedder:
    """Create the embedder; see EmbedderModule."""
    return create_remote(VENDOR, request)
