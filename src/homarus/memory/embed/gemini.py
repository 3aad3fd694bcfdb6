"""Google's Gemini embeddings: many texts in a request, each marked as a query or a document."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.memory.embed.backends import AutoSelection, AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.batch_jobs import (
    MAX_JOB_TEXTS,
    BatchApi,
    BatchOutput,
    BatchParts,
    BatchStatus,
    EmbeddedTexts,
    checked_id,
)
from homarus.memory.embed.client import EmbeddingClient
from homarus.memory.embed.remote import EmbedRequestLimits, TextKind
from homarus.memory.embed.response import ResponseModel, parse_response
from homarus.memory.embed.vendor import EmbeddingVendor, create_remote

# Dimensions, and USD per million tokens. 001 returns 3,072 dimensions unless fewer are requested;
# the first 768 are nearly as good, and four times as many lines fit into memory.
_MODELS: Final[Mapping[str, tuple[int, float]]] = {
    "gemini-embedding-001": (768, 0.15),
}
_SHORTENED: Final = frozenset({"gemini-embedding-001"})
# 100 texts; 2,048 tokens for each, the rest of a text is ignored.
_LIMITS: Final = EmbedRequestLimits(max_texts=100, max_chars=200_000, max_text_chars=8_000)
_KINDS: Mapping[TextKind, str] = {"note": "RETRIEVAL_DOCUMENT", "question": "RETRIEVAL_QUERY"}
_MAX_INLINE_BYTES = 18 << 20  # Google accepts 20 MB with a job
_OVER = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"})


class _Vector(ResponseModel):
    values: tuple[float, ...] = ()


class _GeminiUsage(ResponseModel):
    promptTokenCount: int | None = None  # noqa: N815 - Google's own name


class _GeminiResponse(ResponseModel):
    embeddings: list[_Vector]
    usageMetadata: _GeminiUsage | None = None  # noqa: N815 - Google's own name


class _One(ResponseModel):
    embedding: _Vector | None = None
    tokenCount: int | str | None = None  # noqa: N815 - Google's own name


class _GeminiBatchLine(ResponseModel):
    response: _One | None = None
    error: Any = None


class _GeminiBatchLines(ResponseModel):
    inlinedResponses: tuple[_GeminiBatchLine, ...] = ()  # noqa: N815 - Google's own name


class _GeminiBatchOutput(ResponseModel):
    inlinedEmbedContentResponses: _GeminiBatchLines | None = None  # noqa: N815 - Google's own name


class _State(ResponseModel):
    state: str = ""
    output: _GeminiBatchOutput | None = None


class _Operation(ResponseModel):
    name: str
    done: bool = False
    metadata: _State | None = None
    response: _GeminiBatchOutput | None = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class GeminiEmbeddingApi:
    """`POST /models/<model>:batchEmbedContents`."""

    model: str
    key_header: str = "x-goog-api-key"
    unknown_fix: str = ""

    @property
    def path(self) -> str:
        return f"/models/{self.model}:batchEmbedContents"

    @property
    def jobs(self) -> BatchApi | None:
        return GeminiBatchApi(self)

    def body(self, texts: Sequence[str], kind: TextKind) -> bytes:
        return json.dumps({"requests": [self.request(text, kind) for text in texts]}).encode()

    def request(self, text: str, kind: TextKind) -> dict[str, Any]:
        """Return the request for one text."""
        request: dict[str, Any] = {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": _KINDS[kind],
        }
        if self.model in _SHORTENED:
            request["outputDimensionality"] = _MODELS[self.model][0]
        return request

    def read(self, data: bytes) -> EmbeddedTexts:
        answer = parse_response(_GeminiResponse, data)
        usage = answer.usageMetadata
        tokens = usage.promptTokenCount if usage else None
        return EmbeddedTexts([list(one.values) for one in answer.embeddings], tokens)


@dataclass(frozen=True, slots=True)
class GeminiBatchApi(BatchApi):
    """`asyncBatchEmbedContent`: the texts are sent with the job, the vectors with its status."""

    wire: GeminiEmbeddingApi
    max_texts: int = MAX_JOB_TEXTS
    max_bytes: int = _MAX_INLINE_BYTES
    price_share: float = 0.5
    cancel_suffix: str = ":cancel"

    @property
    def has_inline_results(self) -> bool:
        return True

    async def make_request(self, link: EmbeddingClient, parts: BatchParts) -> tuple[str, object]:
        requests = [
            {"request": self.wire.request(text, "note")} for part in parts.values() for text in part
        ]
        batch = {"displayName": "memory", "inputConfig": {"requests": {"requests": requests}}}
        return f"/models/{self.wire.model}:asyncBatchEmbedContent", {"batch": batch}

    def parse_id(self, data: bytes) -> str:
        return _id_of(parse_response(_Operation, data))

    def parse_status(self, data: bytes) -> BatchStatus:
        """Return the status; the output of a job that is over is this response itself."""
        job = parse_response(_Operation, data)
        state = job.metadata.state if job.metadata else ""
        state = state.removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
        if not (job.done or state in _OVER):
            return BatchStatus(over=False)
        trouble = one_line(json.dumps(job.error), 160) if job.error else f"it is {state}"
        output = (job.metadata and job.metadata.output) or job.response
        return BatchStatus(over=True, output=data.decode() if output else "", trouble=trouble)

    async def fetch_results(
        self, link: EmbeddingClient, look: BatchStatus, parts: BatchParts
    ) -> BatchOutput:
        """Return the parts of which every text has its vector."""
        job = parse_response(_Operation, look.output)
        output = (job.metadata and job.metadata.output) or job.response
        responses = output.inlinedEmbedContentResponses if output else None
        lines = responses.inlinedResponses if responses else ()
        if len(lines) != sum(map(len, parts.values())):
            raise ValueError(f"{len(lines)} answers for {sum(map(len, parts.values()))} texts")
        found: dict[int, EmbeddedTexts] = {}
        at = 0
        for number, part in parts.items():
            read = _read_lines(lines[at : at + len(part)])
            at += len(part)
            if read:
                found[number] = read
        return BatchOutput(found, [f"/batches/{_id_of(job)}"], _first_error(lines))


def _id_of(job: _Operation) -> str:
    return checked_id(job.name.removeprefix("batches/"))


def _read_lines(lines: Sequence[_GeminiBatchLine]) -> EmbeddedTexts | None:
    vectors: list[list[float]] = []
    tokens = 0
    for line in lines:
        if line.error or line.response is None or line.response.embedding is None:
            return None
        vectors.append(list(line.response.embedding.values))
        count = str(line.response.tokenCount or 0)
        tokens += int(count) if count.isascii() and count.isdigit() else 0
    return EmbeddedTexts(vectors, tokens or None)


def _first_error(lines: Sequence[_GeminiBatchLine]) -> str:
    error = next((line.error for line in lines if line.error), "no text of it has a vector")
    return one_line(json.dumps(error), 160)


def base_of(base_url: str) -> str:
    """Return Google's native address for one that may be of its OpenAI-compatible API."""
    return base_url.rstrip("/").removesuffix("/openai")


VENDOR: Final = EmbeddingVendor(
    "Google",
    "https://generativelanguage.googleapis.com/v1beta",
    "gemini-embedding-001",
    _MODELS,
    _LIMITS,
    lambda model, _own: GeminiEmbeddingApi(model),
    key_name="GEMINI_API_KEY",
    root=base_of,
    model_prefixes=("google/",),
    credential_provider="google",
)
AUTO: Final = AutoSelection(order=30)


def create(request: EmbedderRequest) -> AvailableEmbedder:
    """Create the embedder; see EmbedderModule."""
    return create_remote(VENDOR, request)
