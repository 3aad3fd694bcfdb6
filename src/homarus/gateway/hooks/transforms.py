"""Run a transform in a short-lived process, so that its faults stay there."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.core.worker_process import (
    WorkerCall,
    WorkerError,
    WorkerLimits,
    WorkerStartError,
    run_worker,
)
from homarus.gateway.hooks.refusal import HookRefusedError
from homarus.gateway.hooks.templates import HookValues
from homarus.gateway.hooks.transform_files import find_transform, read_transform

log = logging.getLogger(__name__)

DEFAULT_EXPORT: Final = "transform"
MAX_WORKERS: Final = 2  # at a time; further requests wait
WALL_S: Final = 10.0
CPU_S: Final = 8
MEMORY_BYTES: Final = 256 << 20
MAX_RESULT_BYTES: Final = 524_288
_CALLER: Final = Path(__file__).with_name("transform_caller.py")


class TransformRunner:
    """Runs transforms, a few at a time."""

    def __init__(self, wall_s: float = WALL_S) -> None:
        self._limits = WorkerLimits(MEMORY_BYTES, CPU_S, wall_s, MAX_RESULT_BYTES)
        self._slots = asyncio.Semaphore(MAX_WORKERS)

    async def run(
        self, folder: Path, module: str, export: str, values: HookValues
    ) -> dict[str, Json] | None:
        """Return what the transform returns: fields of the action, or None for no action.

        Raises HookRefusedError (500, 501) when there is no result.
        """
        file = await asyncio.to_thread(find_transform, folder, module)
        source = await asyncio.to_thread(read_transform, file)
        options: dict[str, Json] = {
            "file": str(file),
            "export": export or DEFAULT_EXPORT,
            "values": values.encode(),
        }
        call = WorkerCall(_CALLER, "call_transform", options, folders=(file.parent,))
        try:
            async with self._slots:
                result = await run_worker(call, source, self._limits)
        except WorkerStartError as exc:
            raise HookRefusedError(503, "transform", str(exc), after_s=5) from exc
        except WorkerError as exc:
            raise _failed(file, str(exc)) from None
        if result is not None and not isinstance(result, dict):
            raise _failed(file, "it must return a dict or None")
        return result


def _failed(file: Path, reason: str) -> HookRefusedError:
    # The sender is told that it failed; what of the owner's code failed is for the owner.
    log.warning("the transform %s failed: %s", file.name, one_line(reason, 500))
    return HookRefusedError(
        500, "transform", f"the transform {file.name} failed; the log of the gateway says why"
    )
