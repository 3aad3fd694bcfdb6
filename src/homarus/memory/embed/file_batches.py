"""Batch jobs whose requests and results are JSONL files: OpenAI's and Voyage's.

All files are deleted afterwards, as they contain the text of the notes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.memory.embed.batch_jobs import (
    MAX_FILE_BYTES,
    MAX_JOB_TEXTS,
    BatchApi,
    BatchOutput,
    BatchParts,
    BatchStatus,
    EmbeddedTexts,
    checked_id,
    request_results,
    send_file,
)
from homarus.memory.embed.client import EmbeddingClient
from homarus.memory.embed.response import ResponseModel, parse_response

ENDPOINT = "/v1/embeddings"
_OVER = frozenset({"completed", "failed", "expired", "cancelled", "canceled"})
_MAX_ERROR_TEXTS = 1  # bounds the size of the error file like that of a small result


class _BatchJob(ResponseModel):
    id: str
    status: str = ""
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: Any = None


class _Response(ResponseModel):
    status_code: int = 0
    body: Any = None


class _BatchResultLine(ResponseModel):
    custom_id: str
    response: _Response | None = None


@dataclass(frozen=True, slots=True)
class FileBatchApi(BatchApi):
    """`line` makes one request of the file, `request` is what starts a job besides its file."""

    line: Callable[[Sequence[str]], Mapping[str, Any]]
    request: Mapping[str, Any]
    read: Callable[[bytes], EmbeddedTexts]
    max_texts: int = MAX_JOB_TEXTS
    max_bytes: int = MAX_FILE_BYTES
    price_share: float = 0.5
    cancel_suffix: str = "/cancel"

    async def make_request(self, link: EmbeddingClient, parts: BatchParts) -> tuple[str, object]:
        lines = [
            json.dumps({"custom_id": str(number), **self.line(texts)})
            for number, texts in parts.items()
        ]
        file = await send_file(link, "\n".join(lines).encode() + b"\n")
        return "/batches", {**self.request, "input_file_id": file}

    def parse_id(self, data: bytes) -> str:
        return checked_id(parse_response(_BatchJob, data).id)

    def parse_status(self, data: bytes) -> BatchStatus:
        """Return the status; the output of a job that is over is the ids of its three files."""
        job = parse_response(_BatchJob, data)
        if job.status not in _OVER:
            return BatchStatus(over=False)
        files = (job.output_file_id, job.error_file_id, job.input_file_id)
        trouble = "" if job.status == "completed" else f"it is {one_line(job.status, 40)}"
        if job.errors:
            trouble = f"{trouble} {one_line(json.dumps(job.errors), 160)}".strip()
        named = " ".join(checked_id(file) if file else "-" for file in files)
        return BatchStatus(over=True, output=named if any(files[:2]) else "", trouble=trouble)

    async def fetch_results(
        self, link: EmbeddingClient, look: BatchStatus, parts: BatchParts
    ) -> BatchOutput:
        """Return the lines that succeeded."""
        output, errors, requests = look.output.split(" ")
        found: dict[int, EmbeddedTexts] = {}
        trouble = look.trouble
        if output != "-":
            texts = sum(map(len, parts.values()))
            data = await request_results(link, "GET", f"/files/{output}/content", texts)
            for line in data.splitlines():
                number, read = self._line_of(line, parts)
                if read:
                    found.setdefault(number, read)
        if errors != "-" and not found:
            data = await request_results(link, "GET", f"/files/{errors}/content", _MAX_ERROR_TEXTS)
            trouble = one_line(data.decode("utf-8", "replace"), 160)
        files = {output, errors, requests} - {"-"}
        trouble = trouble or "no line of it succeeded"
        return BatchOutput(found, [f"/files/{file}" for file in files], trouble)

    def _line_of(self, line: bytes, parts: BatchParts) -> tuple[int, EmbeddedTexts | None]:
        """Return the part of a result line and its vectors; -1 and None if it has none."""
        try:
            result = parse_response(_BatchResultLine, line)
            number = int(result.custom_id)
            response = result.response
            if number not in parts or response is None or response.status_code != 200:
                return -1, None
            return number, self.read(json.dumps(response.body).encode())
        except ValueError:
            return -1, None
