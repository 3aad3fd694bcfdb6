"""The seccomp profile of containers: the engine's own, without what sandboxes refuse.

The default profiles of the engines let a container make user namespaces, trace its processes and
open sockets of other kinds than those of networks. So each call that the filter of bubblewrap
refuses is refused in containers, too.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from errno import ENOSYS, EPERM
from pathlib import Path
from typing import Any, Final

from homarus.core.atomic_file import write_atomic
from homarus.tools.sandbox.seccomp import CREATE_FLAGS, DENIED, MODED, OPENED, SET_ID_BITS

PROFILE_NAME: Final = "seccomp.json"
_DEFAULTS: Final = (
    Path("/etc/containers/seccomp.json"),
    Path("/usr/share/containers/seccomp.json"),
)
_ALLOW, _ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
_NETLINK_ROUTE: Final = 0
# The flags of clone and unshare that make namespaces; that of time is one of unshare only.
_NAMESPACES, _NEWTIME = 0x7E020000, 0x80
_JUDGED: Final = ("clone", "clone3", "unshare", "socket", "socketcall", "openat2")


def write_profile(folder: Path) -> Path:
    """Write the profile into a private folder and return its path."""
    path = folder / PROFILE_NAME
    write_atomic(path, json.dumps(make_profile(_load_default())).encode())
    return path


def make_profile(default: dict[str, Any] | None) -> dict[str, Any]:
    """Return the profile, from the engine's default one if there is any.

    Without one, calls that are not named are allowed, as in the filter of bubblewrap. Programs of
    another architecture are killed: their calls have other numbers.
    """
    refused = {*DENIED, *_JUDGED, *MODED, *OPENED}
    rules = [
        {**rule, "names": kept}
        for rule in (default or {}).get("syscalls", ())
        if (kept := [name for name in rule.get("names", ()) if name not in refused])
    ]
    profile = {
        "defaultAction": (default or {}).get("defaultAction", _ALLOW),
        "syscalls": [*rules, *_own_rules(has_default=default is not None)],
    }
    if default and "defaultErrnoRet" in default:
        profile["defaultErrnoRet"] = default["defaultErrnoRet"]
    return profile


def _own_rules(*, has_default: bool) -> Iterable[dict[str, Any]]:
    yield _rule(sorted(DENIED), _ERRNO, errno=EPERM)
    # Their flags are in memory, which a filter cannot read: libraries then use clone and openat.
    yield _rule(["clone3", "openat2"], _ERRNO, errno=ENOSYS)
    yield from _set_id_rules(has_default=has_default)
    if not has_default:
        # What is not named is allowed here: the namespaces are refused one by one.
        for bit in _bits(_NAMESPACES):
            yield _rule(["clone", "unshare"], _ERRNO, (0, bit, bit), errno=EPERM)
        yield _rule(["unshare"], _ERRNO, (0, _NEWTIME, _NEWTIME), errno=EPERM)
        for family in (each for each in range(64) if each not in {_AF_INET, _AF_INET6}):
            if family != _AF_NETLINK:
                yield _rule(["socket"], _ERRNO, (0, 0xFFFFFFFF, family), errno=EPERM)
        yield _rule(["socketcall"], _ERRNO, errno=EPERM)
        return
    yield _rule(["clone"], _ALLOW, (0, _NAMESPACES, 0))
    yield _rule(["unshare"], _ALLOW, (0, _NAMESPACES | _NEWTIME, 0))
    for family in (_AF_INET, _AF_INET6):
        yield _rule(["socket"], _ALLOW, (0, 0xFFFFFFFF, family))
    netlink = (0, 0xFFFFFFFF, _AF_NETLINK), (2, 0xFFFFFFFF, _NETLINK_ROUTE)
    yield _rule(["socket"], _ALLOW, *netlink)


def _set_id_rules(*, has_default: bool) -> Iterable[dict[str, Any]]:
    """Yield the rules about modes with set-id bits: the file would stay on this machine."""
    if has_default:
        for name, index in (MODED | OPENED).items():
            yield _rule([name], _ALLOW, (index, SET_ID_BITS, 0))
        for name, index in OPENED.items():
            yield _rule([name], _ALLOW, (index - 1, CREATE_FLAGS, 0))
    for bit in _bits(SET_ID_BITS):
        for name, index in MODED.items():
            yield _rule([name], _ERRNO, (index, bit, bit), errno=EPERM)
        for name, index in OPENED.items():
            for flag in _bits(CREATE_FLAGS):
                created = index - 1, flag, flag
                yield _rule([name], _ERRNO, created, (index, bit, bit), errno=EPERM)


def _bits(mask: int) -> Iterable[int]:
    return (1 << number for number in range(32) if mask >> number & 1)


def _rule(
    names: list[str], action: str, *masked: tuple[int, int, int], errno: int | None = None
) -> dict[str, Any]:
    """Return a rule; each of `masked` is an argument, a mask, and what remains under it."""
    found: dict[str, Any] = {
        "names": names,
        "action": action,
        "args": [
            {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
            for index, mask, value in masked
        ],
    }
    return found if errno is None else {**found, "errnoRet": errno}


def _load_default() -> dict[str, Any] | None:
    for path in _DEFAULTS:
        with suppress(OSError, ValueError):
            tree = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(tree, dict) and tree.get("defaultAction") != _ALLOW:
                return tree
    return None
