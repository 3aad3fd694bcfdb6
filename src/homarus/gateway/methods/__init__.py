"""The gateway's methods: one module per noun, one function per method."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from homarus.gateway.method import Method, find_methods
from homarus.gateway.methods.unimplemented import UNIMPLEMENTED

METHODS: Final[Mapping[str, Method]] = find_methods(
    *(import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
)

__all__ = ["METHODS", "UNIMPLEMENTED"]
