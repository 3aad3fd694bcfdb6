"""Methods for the log: its lines since a cursor."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from homarus.config.log_files import find_log_file, open_log_to_read
from homarus.config.redaction import redact
from homarus.core.errors import UnavailableError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Ms

_MAX_LINE_CHARS = 8_000


class LogTailParams(Params):
    """The cursor, and how much to return at most."""

    cursor: Ms | None = None
    limit: Annotated[int, Field(ge=1, le=5_000)] = 500
    max_bytes: Annotated[int, Field(ge=1, le=1_000_000)] = 250_000


@method("logs.tail", scope="read", params=LogTailParams)
async def tail(call: MethodCall, params: LogTailParams) -> Json:
    """The newest lines of the log, or those after `cursor`. Secrets are blotted out."""
    file = find_log_file(call.services.loaded.config, call.services.paths.logs)
    try:
        size, start, reset, data = _read(file, params.cursor, params.max_bytes)
    except FileNotFoundError:
        return {"file": str(file), "cursor": 0, "size": 0, "lines": []}
    except OSError as exc:
        raise UnavailableError(f"the log cannot be read: {exc.strerror}") from None
    # A line that is still being written is left for the next call.
    whole, _, rest = data.rpartition(b"\n")
    lines = [_shown(line) for line in whole.split(b"\n")] if whole else []
    cut = params.cursor is None or reset
    return {
        "file": str(file),
        "cursor": size - len(rest),
        "size": size,
        "lines": lines[-params.limit :],
        **({"truncated": True} if (cut and start > 0) or len(lines) > params.limit else {}),
        **({"reset": True} if reset else {}),
    }


def _read(file: Path, cursor: int | None, max_bytes: int) -> tuple[int, int, bool, bytes]:
    """Return size, start offset, whether the cursor was invalid, and the bytes from a line on."""
    with open_log_to_read(file) as opened:
        found = os.fstat(opened.fileno())
        size, newest = found.st_size, max(0, found.st_size - max_bytes)
        reset = cursor is not None and not newest <= cursor <= size
        start = newest if cursor is None or reset else cursor
        opened.seek(max(0, start - 1))
        data = opened.read(size - start + min(1, start))
    if start and (cursor is None or reset):  # start at a complete line
        data = data.partition(b"\n")[2]
    elif start:
        data = data[1:]
    return size, start, reset, data


def _shown(line: bytes) -> str:
    return redact(line.decode("utf-8", "replace")[:_MAX_LINE_CHARS])
