"""Transcribe audio by the API of OpenAI, which many services have: `/audio/transcriptions`."""

import json
from contextlib import aclosing
from typing import Final
from uuid import uuid4

from homarus.core.clock import Clock
from homarus.core.errors import BadRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.mime import extension_for
from homarus.providers.endpoint import ProviderConnection, ProviderEndpoint

PATH: Final = "/audio/transcriptions"
MAX_ANSWER_BYTES: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """Audio to transcribe; `language` and `prompt` may help the model, and may be empty."""

    model: str
    content: bytes
    mime: str
    language: str = ""
    prompt: str = ""


async def transcribe_audio(
    connection: ProviderConnection, request: TranscriptionRequest, clock: Clock
) -> str:
    """Return the words of a recording. Raises ProviderError."""
    endpoint = ProviderEndpoint(connection, clock)
    boundary = uuid4().hex
    subject = endpoint.subject(request.model)
    headers = {
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Accept": "application/json",
    }
    answer = bytearray()
    try:
        body = encode_form(request, boundary)
        async with (
            endpoint.request("POST", PATH, body, subject, headers) as response,
            aclosing(response.iter_bytes()) as pieces,
        ):
            async for piece in pieces:
                answer += piece
                if len(answer) > MAX_ANSWER_BYTES:
                    break
    finally:
        await endpoint.close()
    text = _parse(bytes(answer))
    if text is None:
        raise BadRequestError(
            subject.describe("its answer has no transcript"),
            fix=f"check that {subject.url} serves {PATH}",
        )
    return text.strip()


def encode_form(request: TranscriptionRequest, boundary: str) -> bytes:
    """Return the request as a form: the fields that are set, and the file."""
    fields = {"model": request.model, "response_format": "json"}
    fields |= {"language": request.language} if request.language else {}
    fields |= {"prompt": request.prompt} if request.prompt else {}
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    name = f"audio{extension_for(request.mime) or '.ogg'}"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: {request.mime}\r\n\r\n"
    )
    return b"".join((*parts, head.encode(), request.content, f"\r\n--{boundary}--\r\n".encode()))


def _parse(answer: bytes) -> str | None:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    text = found.get("text") if isinstance(found, dict) else None
    return text if isinstance(text, str) else None
