"""Checks of what a container may be given, by the text of the setting alone. Pure.

What the files of this machine decide (symbolic links, owners) is checked when a container is
made, by `tools/sandbox/container_rules.py`. The functions raise UserError.
"""

import posixpath
import re
from typing import Final

from homarus.core.errors import UserError
from homarus.core.text import one_line

# Of these a container sees its own, or they give access to this machine.
FORBIDDEN_BIND_ROOTS: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/run",
    "/var/run",
    "/boot",
    "/var/lib/docker",
    "/var/lib/containers",
)
ENGINE_SOCKETS: Final = frozenset(
    {"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock"}
)
# What a folder of this machine must not cover inside.
_FORBIDDEN_TARGETS: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/usr",
    "/run",
)
_NETWORK: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
_PROFILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f,\"\\]")
BIND_PARTS: Final = 3


def check_network(network: str) -> str:
    """Refuse a network that is shared with this machine or with another container."""
    text = network.strip()
    if not _NETWORK.fullmatch(text) or text.lower() == "host":
        raise UserError(
            f"docker.network {one_line(network, 60)!r} is not allowed: a sandbox never shares the "
            "network of this machine or of another container",
            fix='use "none" (the default), "bridge" or the name of a network of your own',
        )
    return text


def check_seccomp_profile(profile: str) -> str:
    """Refuse to switch seccomp off, and a profile that is not an absolute path."""
    if profile.strip().lower() == "unconfined" or not profile.startswith("/"):
        raise UserError(
            f"docker.seccompProfile {one_line(profile, 60)!r} is not allowed",
            fix="give the absolute path of a profile, or remove the key for the engine's own",
        )
    return profile


def check_apparmor_profile(profile: str) -> str:
    """Refuse to switch AppArmor off."""
    if profile.strip().lower() == "unconfined" or not _PROFILE.fullmatch(profile):
        raise UserError(
            f"docker.apparmorProfile {one_line(profile, 60)!r} is not allowed",
            fix="give the name of a loaded profile, or remove the key for the engine's own",
        )
    return profile


def check_bind(bind: str) -> tuple[str, str, bool]:
    """Return the source, the target and whether `:rw` was written; refuse what cannot be shared."""
    parts = bind.split(":")
    if len(parts) not in {BIND_PARTS - 1, BIND_PARTS} or _UNSAFE.search(bind):
        raise _bind_error(bind, "is not SOURCE:TARGET or SOURCE:TARGET:rw")
    source, target, *mode = parts
    if mode and mode[0] not in {"ro", "rw"}:
        raise _bind_error(bind, f"has the option {one_line(mode[0], 20)!r}; there are ro and rw")
    if not source.startswith("/") or posixpath.normpath(source) != source:
        raise _bind_error(bind, "does not start with an absolute path without . and ..")
    check_bind_source(source, bind)
    check_target(target, bind)
    return source, target, mode == ["rw"]


def check_bind_source(source: str, bind: str) -> None:
    """Refuse folders of the system, and sockets of engines."""
    normal = posixpath.normpath(source)
    roots = (each for each in FORBIDDEN_BIND_ROOTS if is_in(normal, each) or is_in(each, normal))
    if (root := next(roots, None)) is not None:
        raise _bind_error(bind, f"would show {root} of this machine")
    if posixpath.basename(normal) in ENGINE_SOCKETS:
        raise _bind_error(bind, "would give away the container engine, and with it this machine")


def check_target(target: str, bind: str) -> None:
    """Refuse a place inside that is not absolute, or that belongs to the system inside."""
    if not target.startswith("/") or posixpath.normpath(target) != target or target == "/":
        raise _bind_error(bind, f"has the target {one_line(target, 60)!r}, no absolute folder")
    if (root := next((each for each in _FORBIDDEN_TARGETS if is_in(target, each)), None)) and (
        target == root or root != "/usr"
    ):
        raise _bind_error(bind, f"would cover {root} of the container")


def is_in(path: str, folder: str) -> bool:
    """Return whether a normal path is a folder or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _bind_error(bind: str, reason: str) -> UserError:
    return UserError(
        f"the bind {one_line(bind, 120)!r} {reason}",
        fix="change or remove it in docker.binds; readOnlyFolders shares a folder read-only",
    )
