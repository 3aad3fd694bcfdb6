"""The gateway's methods: one module per noun, one function per method."""

from pathlib import Path
from typing import Final

from homarus.gateway.method import MethodTable, scan_methods
from homarus.gateway.methods.unimplemented import UNIMPLEMENTED

METHODS: Final[MethodTable] = scan_methods(__name__, Path(__file__).parent)

__all__ = ["METHODS", "UNIMPLEMENTED"]
