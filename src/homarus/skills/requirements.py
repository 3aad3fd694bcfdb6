"""What skills and hooks require of this machine: which requirements are not met, and what helps."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, Protocol, TypeAlias

from homarus.config.tree_edit import get_path, parse_path
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass

Gate: TypeAlias = Literal["disabled", "allowlist", "os", "bins", "anyBins", "env", "config"]

# What is on unless the config says otherwise.
_DEFAULT_TRUE: Final = frozenset({"browser.enabled", "browser.evaluateEnabled"})


@dataclass(frozen=True, slots=True)
class Requires:
    """What must be available before a skill or hook is used; of `any_bins`, one is enough."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements by their kind: those that a skill or hook has, or those that are missing."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bins or self.any_bins or self.env or self.config or self.os)


@dataclass(frozen=True, slots=True)
class GateReason:
    """One reason why a skill or hook is not used, and what would change that."""

    gate: Gate
    message: str
    fix: str


class MachineFacts(Protocol):
    """What requirements are checked against: programs, the config as it is written, the system."""

    @property
    def has_bin(self) -> Callable[[str], bool]: ...
    @property
    def config_tree(self) -> Mapping[str, Any]: ...
    @property
    def platform(self) -> str: ...


def make_bin_lookup(env: Mapping[str, str]) -> Callable[[str], bool]:
    """Return a function that says whether the PATH has a program; it looks once for each."""
    folders = [each for each in (env.get("PATH") or os.defpath).split(os.pathsep) if each]

    @cache
    def has_bin(name: str) -> bool:
        if not name or "/" in name or "\0" in name:
            return False
        paths = (f"{folder}/{name}" for folder in folders)
        return any(os.access(path, os.X_OK) and os.path.isfile(path) for path in paths)  # noqa: PTH113 - a string is faster

    return has_bin


def find_unmet(
    requires: Requires,
    systems: tuple[str, ...],
    facts: MachineFacts,
    has_variable: Callable[[str], bool],
    *,
    is_always: bool,
) -> Requirements:
    """Return the requirements that are not met; with `is_always`, of the system alone."""
    missing_os = () if not systems or facts.platform in systems else systems
    if is_always:
        return Requirements(os=missing_os)
    has_any = any(map(facts.has_bin, requires.any_bins))
    return Requirements(
        bins=tuple(name for name in requires.bins if not facts.has_bin(name)),
        any_bins=() if has_any else requires.any_bins,
        env=tuple(name for name in requires.env if not has_variable(name)),
        config=tuple(path for path in requires.config if not is_set(path, facts.config_tree)),
        os=missing_os,
    )


def is_set(path: str, config_tree: Mapping[str, Any]) -> bool:
    """Return whether a path of the config has a value that is not empty, false or 0."""
    try:
        value = get_path(config_tree, parse_path(path))
    except (HomarusError, LookupError):
        value = None
    if value is None:
        return path in _DEFAULT_TRUE
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, dict | list) or bool(value)


def describe_unmet(
    missing: Requirements, install_fix: str, get_variable_fix: Callable[[str], str]
) -> Iterator[GateReason]:
    """Yield every reason; the fix names the setting or what to install."""
    if missing.os:
        message = f"it is for {' or '.join(missing.os)}"
        yield GateReason("os", message, "use it on such a machine")
    for name in missing.bins:
        yield GateReason("bins", f"the program {name} is not on the PATH", install_fix)
    if missing.any_bins:
        message = f"none of these programs is on the PATH: {', '.join(missing.any_bins)}"
        yield GateReason("anyBins", message, install_fix)
    for name in missing.env:
        yield GateReason("env", f"the variable {name} has no value", get_variable_fix(name))
    for path in missing.config:
        fix = f"homarus config set {path} VALUE"
        yield GateReason("config", f"the setting {path} is not set", fix)
