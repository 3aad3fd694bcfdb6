"""The process of one hook's handler. It imports no module of this program.

Started by `handler_process.py` as `python -P -B handler_main.py`. Standard input has one JSON
object a line: first the handler (`path`, `source`, `export`, `parent`), then events. For each of
them, standard output gets one line. What the handler prints goes to standard error, and the process
ends when its input is closed, also while the handler runs.
"""

import json
import os
import queue
import signal
import sys
import threading
import types
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

PR_SET_PDEATHSIG = 1
MAX_ERROR_CHARS = 300
MAX_MESSAGES = 50
NICENESS = 5
NAME = "homarus_hook"


class HandlerEvent:
    """What a handler gets. It may append lines to `messages`, and change `context["files"]`."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.api_version: int = given["apiVersion"]
        self.type: str = given["type"]
        self.action: str = given["action"]
        self.session_key: str = given["sessionKey"]
        self.context: dict[str, Any] = given["context"]
        self.timestamp = datetime.fromtimestamp(given["atMs"] / 1000, UTC)
        self.messages: list[str] = []


def main() -> None:
    """Load the handler, then call it for every event until the input ends."""
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    source, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    handler = json.loads(source.readline())
    die_with(handler["parent"])
    give_way()
    threading.Thread(target=read, args=(source, requests), daemon=True).start()
    function, error = None, ""
    try:
        function = load(handler)
    except BaseException as exc:  # noqa: BLE001 - the code of another author
        error = describe(exc)
    while True:
        event = HandlerEvent(requests.get())
        reply = call(function, event) if function else {"error": error}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


def read(source: Any, requests: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Queue the requests; end the process with the input, whatever the handler does."""
    for line in source:
        requests.put(json.loads(line))
    os._exit(0)


def load(handler: dict[str, Any]) -> Any:
    """Run the source that was checked, and return the handler's function."""
    module = types.ModuleType(NAME)
    module.__file__ = handler["path"]
    sys.modules[NAME] = module
    exec(compile(handler["source"], handler["path"], "exec"), module.__dict__)  # noqa: S102 - that is what a hook is
    return getattr(module, handler["export"])


def call(function: Any, event: HandlerEvent) -> dict[str, Any]:
    """Call the handler; return what it changed, or its error."""
    try:
        returned = function(event)
        if hasattr(returned, "__await__"):
            import asyncio  # most handlers are plain functions

            asyncio.run(wait(returned))
        messages = [str(line) for line in list(event.messages)[:MAX_MESSAGES]]
        reply: dict[str, Any] = {"messages": messages}
        if event.type == "agent" and isinstance(event.context.get("files"), dict):
            reply["files"] = {str(k): str(v) for k, v in event.context["files"].items()}
    except BaseException as exc:  # noqa: BLE001 - the code of another author, sys.exit too
        return {"error": describe(exc)}
    return reply


async def wait(returned: Any) -> None:
    """Make a coroutine of whatever awaitable the handler returned."""
    await returned


def describe(exc: BaseException) -> str:
    """Return an error in one line, with the last line of the handler that it passed."""
    line, at = None, exc.__traceback__
    while at:
        if at.tb_frame.f_globals.get("__name__") == NAME:
            line = at.tb_lineno
        at = at.tb_next
    place = f" (line {line} of the handler)" if line else ""
    return f"{type(exc).__name__}: {exc}"[:MAX_ERROR_CHARS] + place


def give_way() -> None:
    """Let the gateway go first: when the processor is busy, and when the memory is used up."""
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - no pathlib
        file.write("1000")


def die_with(parent: int) -> None:
    """Let this process be killed when the gateway dies, also if that already happened."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
