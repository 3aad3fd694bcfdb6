"""Jobs that go as a file of lines and come back as one: OpenAI's way, and Voyage's.

Both files are deleted afterwards: they hold what the notes say.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.memory.embed.answer import Part, read_part
from homarus.memory.embed.jobs import (
    MAX_FILE_BYTES,
    MAX_JOB_TEXTS,
    Look,
    Parts,
    Read,
    ask_briefly,
    ask_json,
    ask_whole,
    checked_id,
    send_file,
)
from homarus.memory.embed.link import Link

ENDPOINT = "/v1/embeddings"
_OVER = frozenset({"completed", "failed", "expired", "cancelled", "canceled"})
_MAX_ERROR_TEXTS = 1  # the error file's size is bounded like that of a small result


class _Job(Part):
    id: str
    status: str = ""
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: Any = None


class _Response(Part):
    status_code: int = 0
    body: Any = None


class _Line(Part):
    custom_id: str
    response: _Response | None = None


@dataclass(frozen=True, slots=True)
class FileJobs:
    """`line` is one request in the file, `request` what begins a job beside its file."""

    line: Callable[[Sequence[str]], Mapping[str, Any]]
    request: Mapping[str, Any]
    read: Callable[[bytes], Read]
    max_texts: int = MAX_JOB_TEXTS
    max_bytes: int = MAX_FILE_BYTES
    price_share: float = 0.5

    async def submit(self, link: Link, parts: Parts) -> str:
        """Upload the requests and begin the job."""
        lines = [
            json.dumps({"custom_id": str(number), **self.line(texts)})
            for number, texts in parts.items()
        ]
        file = await send_file(link, "\n".join(lines).encode() + b"\n")
        told = await ask_json(link, "POST", "/batches", {**self.request, "input_file_id": file})
        return checked_id(read_part(_Job, told).id)

    async def look(self, link: Link, job: str) -> Look:
        """Whether it is over; then the names of its three files."""
        told = read_part(_Job, await ask_json(link, "GET", f"/batches/{checked_id(job)}"))
        if told.status not in _OVER:
            return Look(over=False)
        files = (told.output_file_id, told.error_file_id, told.input_file_id)
        trouble = "" if told.status == "completed" else f"it is {one_line(told.status, 40)}"
        if told.errors:
            trouble = f"{trouble} {one_line(json.dumps(told.errors), 160)}".strip()
        named = " ".join(checked_id(file) if file else "-" for file in files)
        return Look(over=True, output=named if any(files[:2]) else "", trouble=trouble)

    async def results(self, link: Link, look: Look, parts: Parts) -> dict[int, Read]:
        """The lines that succeeded. ValueError with what was wrong when there is not one."""
        output, errors, given = look.output.split(" ")
        found: dict[int, Read] = {}
        trouble = look.trouble
        if output != "-":
            texts = sum(map(len, parts.values()))
            data = await ask_whole(link, "GET", f"/files/{output}/content", texts)
            for line in data.splitlines():
                number, read = self._line_of(line, parts)
                if read:
                    found.setdefault(number, read)
        if errors != "-" and not found:
            told = await ask_whole(link, "GET", f"/files/{errors}/content", _MAX_ERROR_TEXTS)
            trouble = one_line(told.decode("utf-8", "replace"), 160)
        for file in {output, errors, given} - {"-"}:
            await ask_briefly(link, "DELETE", f"/files/{file}")
        if not found:
            raise ValueError(trouble or "no line of it succeeded")
        return found

    def _line_of(self, line: bytes, parts: Parts) -> tuple[int, Read | None]:
        """A line's part, and what it brought; a line that is none brought nothing."""
        try:
            told = read_part(_Line, line)
            number = int(told.custom_id)
            answered = told.response
            if number not in parts or answered is None or answered.status_code != 200:
                return -1, None
            return number, self.read(json.dumps(answered.body).encode())
        except ValueError:
            return -1, None

    async def cancel(self, link: Link, job: str) -> None:
        """Call a job off."""
        await ask_json(link, "POST", f"/batches/{checked_id(job)}/cancel", {})
