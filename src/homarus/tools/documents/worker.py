"""The process that parses one document, and ends.

Started by `extraction.py` as `python -I -S worker.py` in a session of its own; it imports no module
of ours. Standard input has the request: the length of a JSON header, the header, and the document
up to the end of file. Standard output gets the result as JSON.

A document is hostile until it has been parsed, and the parsers are large. So they run here: with
little memory and time, no files to write, no environment, and an end that does not depend on them.
What is not caught here ends the process, which the gateway reports as a damaged document.
"""

import importlib
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
LENGTH_BYTES = 4
MAX_OPEN_FILES = 64


def main() -> None:
    """Read the request, parse the document and write the result."""
    source = sys.stdin.buffer
    header = json.loads(source.read(int.from_bytes(source.read(LENGTH_BYTES), "big")))
    die_with(header["parent"])
    restrict(header["limits"])
    content = source.read()
    sys.path[:] = header["path"]
    try:
        result = extract(header["kind"], content, header["options"])
    except MemoryError:
        result = {"problem": "memory"}
    data = json.dumps(result, ensure_ascii=False).encode("utf-8", "replace")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    os._exit(0)  # at once: to free the trees of a large document takes long


def extract(kind: str, content: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one kind of document; `problem` in it names why there is none."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - no pathlib
    parser = importlib.import_module(f"{kind}_document")
    result: dict[str, Any] = getattr(parser, f"extract_{kind}")(content, **options)
    return result


def die_with(parent: int) -> None:
    """Let this process be killed when the gateway dies, also if that already happened."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def restrict(limits: dict[str, int]) -> None:
    """Set the limits of memory, time and files. Nothing that is parsed can undo them."""
    # Ends the process where the system has no death signal, and also inside a parser in C.
    signal.alarm(limits["wall_s"])
    _set_limit(resource.RLIMIT_CPU, limits["cpu_s"])
    _set_limit(resource.RLIMIT_AS, limits["memory_bytes"])
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, 0)
    _set_limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)


def _set_limit(number: int, value: int) -> None:
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with suppress(ValueError, OSError):  # macOS refuses some of them
        resource.setrlimit(number, (value, value))


if __name__ == "__main__":
    main()
