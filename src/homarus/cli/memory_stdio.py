"""`homarus memory bench-stdio`: queries in as JSON lines, responses out, in one process.

    {"id": "q1", "query": "When did Ada move?", "k": 10}
    {"id": "q1", "results": [{"path": …, "startLine": …}], "ms": 3.1}

A line that cannot be parsed is answered with an error, and the next one is read.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from homarus.core.errors import HomarusError, UserError
from homarus.core.message import Json
from homarus.memory.serialize import result_json

if TYPE_CHECKING:
    from homarus.memory.agent_memory import AgentMemory
    from homarus.memory.base import SearchOptions

MAX_LINE_BYTES: Final = 1 << 20
_MAX_RESULTS = 1000


async def serve(
    memory: "AgentMemory", options: "SearchOptions", source: BinaryIO, sink: TextIO
) -> None:
    """Answer until the input ends. Each response is written before the next line is read."""
    for line in _lines(source):
        if line is not None and not line.strip():
            continue
        response = await _answer(memory, options, line)
        sink.write(json.dumps(response, ensure_ascii=False) + "\n")
        sink.flush()


def _lines(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines; None for one that is too long."""
    while line := source.readline(MAX_LINE_BYTES):
        if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(MAX_LINE_BYTES)
        yield None


async def _answer(
    memory: "AgentMemory", options: "SearchOptions", line: bytes | None
) -> dict[str, Json]:
    request_id: Json = None
    try:
        request = _read(line)
        request_id = request.get("id")
        query, k = _checked(request, options.max_results)
        began_s = time.perf_counter()
        answer = await memory.search(query, replace(options, max_results=k))
    except HomarusError as exc:
        return {"id": request_id, "error": exc.message}
    took_ms = round((time.perf_counter() - began_s) * 1000, 3)
    return {
        "id": request_id,
        "results": [result_json(one) for one in answer.results],
        "ms": took_ms,
    }


def _read(line: bytes | None) -> dict[str, Json]:
    if line is None:
        raise UserError(f"a line is longer than {MAX_LINE_BYTES} bytes")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError("a line is not JSON") from None
    if not isinstance(request, dict):
        raise UserError("a line is not a JSON object")
    return request


def _checked(request: dict[str, Json], default_results: int) -> tuple[str, int]:
    query, k = request.get("query"), request.get("k", default_results)
    if not isinstance(query, str) or not query.strip():
        raise UserError("query must be words")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= _MAX_RESULTS:
        raise UserError(f"k must be a whole number from 1 to {_MAX_RESULTS}")
    return query, k
