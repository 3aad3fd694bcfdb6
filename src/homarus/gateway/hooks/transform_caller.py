"""Call the function of a transform. Runs in the worker process alone (core/worker_main.py)."""

import sys
from types import ModuleType
from typing import Any


def call_transform(code: bytes, *, file: str, export: str, values: dict[str, Any]) -> Any:
    """Return what the function returns for a request; it may be a coroutine function."""
    module = ModuleType("transform")
    module.__file__ = file
    sys.modules["transform"] = module
    exec(compile(code, file, "exec"), module.__dict__)  # noqa: S102 - the owner's own code
    result = getattr(module, export)(values)
    if not hasattr(result, "__await__"):
        return result
    import asyncio  # few transforms need it, and it is slow to import

    return asyncio.run(result)
