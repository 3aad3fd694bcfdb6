"""The child process that runs a regular expression for `matcher.py`; it imports no module of ours.

Python's `re` may run practically for ever, holds the interpreter's lock meanwhile, and cannot be
interrupted; a process can be killed. A frame on stdin is a length (4 bytes) and UTF-8 text: first
the pattern as JSON, then texts to search. One JSON line answers each.
"""

import json
import re
import sys
from contextlib import suppress
from typing import BinaryIO

CPU_S = 60  # in case no parent is left to kill us


def main() -> None:
    """Answer frames until stdin ends."""
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    request = json.loads(_frame(sys.stdin.buffer) or "{}")
    try:
        pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as exc:
        _answer({"error": str(exc) or type(exc).__name__})
        return
    _answer({})
    while (text := _frame(sys.stdin.buffer)) is not None:
        limit, _, body = text.partition("\n")
        _answer(_search(pattern, body, int(limit)))


def _search(pattern: re.Pattern[str], text: str, limit: int) -> list[int]:
    numbers: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if pattern.search(line.removesuffix("\r")):
            numbers.append(number)
            if len(numbers) == limit:
                break
    return numbers


def _frame(stream: BinaryIO) -> str | None:
    head = stream.read(4)
    return stream.read(int.from_bytes(head, "big")).decode() if head else None


def _answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
