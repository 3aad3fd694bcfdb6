"""Keep libraries from importing what this program does not use: it costs memory and start time.

`leave_out_unused` is called before those libraries are imported; a module that is imported already
stays.
"""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def leave_out_unused() -> None:
    """Leave out what pydantic, uvicorn and websockets import for features that are not used."""
    # pydantic would search all installed packages for plugins: none belongs to this program.
    _replace("pydantic.plugin._loader", get_plugins=tuple)
    # The supervisors start and reload several processes, with multiprocessing.
    _replace("uvicorn.supervisors", ChangeReload=None, Multiprocess=None)
    # websockets imports the reader of package metadata for versions that were never released.
    if version := _released_version("websockets"):
        _replace("websockets.version", tag=version, version=version, commit=version)


def _replace(name: str, **attributes: object) -> None:
    """Have imports of a module find one with these attributes alone."""
    unused = ModuleType(name)
    vars(unused).update(attributes)
    sys.modules.setdefault(name, unused)


def _released_version(package: str) -> str:
    """Return the version in the `version.py` of a package that is not imported yet; "" if none."""
    spec = None if package in sys.modules else find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    found = re.search(
        r'^released = True$.*?^tag = version = commit = "([^"]+)"$', text, re.M | re.S
    )
    return found[1] if found else ""
