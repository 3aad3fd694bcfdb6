"""The gateway process: protocols 3 and 4 over WebSocket, and plain HTTP."""

import sys
from types import ModuleType


def _leave_out_supervisors() -> None:
    """Keep uvicorn from importing its supervisors, which start and reload several processes.

    It imports them with its command line, which is not used here, and they import multiprocessing:
    a megabyte of memory in every gateway.
    """
    unused = ModuleType("uvicorn.supervisors")
    vars(unused).update(ChangeReload=None, Multiprocess=None)
    sys.modules.setdefault("uvicorn.supervisors", unused)


_leave_out_supervisors()
