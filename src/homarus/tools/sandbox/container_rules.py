"""The rules of a container, from the section `docker` of the config: checked, and with defaults.

Whatever the config says, a container has no capabilities, cannot gain privileges, has a seccomp
filter, and sees no file that is the gateway's own. What cannot be obeyed is refused, never ignored.
"""

import json
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from homarus.config.container_checks import (
    check_apparmor_profile,
    check_bind,
    check_bind_source,
    check_network,
    check_seccomp_profile,
    check_target,
    is_in,
)
from homarus.config.sandbox_schema import UNLIMITED, ContainerConfig
from homarus.core.errors import SandboxError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.core.units import parse_byte_size
from homarus.tools.sandbox.base import Mount, SandboxSpec, check_sandbox_name
from homarus.tools.sandbox.mount_rules import CREDENTIALS, check_source

DEFAULT_IMAGE: Final = "openclaw-sandbox:bookworm-slim"
DEFAULT_PREFIX: Final = "openclaw-sbx-"
DEFAULT_TMPFS: Final = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - inside; /tmp is a folder
NO_NETWORK: Final = "none"
_FIX: Final = "change or remove the setting in sandbox.docker"
_TMPFS_BYTES: Final = 64 << 20
TMP: Final = "/tmp"  # noqa: S108 - the one inside

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
# A reference to an image: never an option, never a transport such as `dir:/`.
_IMAGE: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*(?::[A-Za-z0-9._-]+)?"
    r"(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_USER: Final = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?", re.ASCII)
_CAPABILITY: Final = re.compile(r"[A-Za-z_]{1,40}", re.ASCII)
_ULIMIT: Final = re.compile(r"[a-z]{2,12}", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252})", re.ASCII)
_TMPFS_OPTION: Final = re.compile(
    r"rw|noexec|exec|nosuid|nodev|size=[0-9]+[kmgKMG]?|mode=[0-7]{3,4}", re.ASCII
)
_UNSAFE_PATH: Final = re.compile(r"[\x00-\x1f\x7f,\"]")
_DENYING: Final = frozenset(
    f"SCMP_ACT_{each}" for each in ("ERRNO", "KILL", "KILL_PROCESS", "KILL_THREAD", "TRAP")
)


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """Who the command is inside; files outside belong to the gateway's user all the same."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class ContainerRules:
    """What a container is started with. `memory_swap` is -1 for no limit of swap."""

    image: str
    prefix: str
    user: ContainerUser | None
    network: str
    is_root_read_only: bool
    tmpfs: tuple[str, ...]
    cap_drop: tuple[str, ...]
    env: Mapping[str, str]
    pids: int
    memory_bytes: int
    memory_swap: int
    cpus: float
    ulimits: tuple[tuple[str, int, int], ...]
    seccomp_profile: str
    apparmor_profile: str
    dns: tuple[str, ...]
    extra_hosts: tuple[str, ...]
    mounts: tuple[Mount, ...]


def make_rules(spec: SandboxSpec, private: Sequence[Path]) -> ContainerRules:
    """Check a sandbox and return its rules; no folder of `private` is seen inside.

    Raises SandboxError with the setting and the fix.
    """
    try:
        return _make_rules(spec, private)
    except (SandboxError, UserError) as exc:
        raise SandboxError(exc.message, fix=exc.fix or _FIX) from exc


def _make_rules(spec: SandboxSpec, private: Sequence[Path]) -> ContainerRules:
    options = _read_options(spec.options or {})
    _check_spec(spec)
    if options.get("setup_command"):
        raise SandboxError(
            "docker.setupCommand is not run: every command has a new container",
            fix="build an image that has what the command installs, and name it in docker.image",
        )
    limits = spec.limits
    memory = _size(options.get("memory"), "memory", limits.memory_bytes)
    network = check_network(str(options.get("network") or NO_NETWORK))
    seccomp = str(options.get("seccomp_profile") or "")
    if seccomp:
        _check_profile_file(check_seccomp_profile(seccomp))
    apparmor = str(options.get("apparmor_profile") or "")
    env = {**_strings(options.get("env"), "env"), **(spec.env or {})}
    check_env(env)
    is_read_only = options.get("read_only_root")
    return ContainerRules(
        image=_match(_IMAGE, options.get("image") or DEFAULT_IMAGE, "image"),
        prefix=_match(
            _PREFIX, options.get("container_prefix") or DEFAULT_PREFIX, "containerPrefix"
        ),
        user=_user(options.get("user")),
        network=network,
        is_root_read_only=is_read_only is not False,
        tmpfs=tuple(_tmpfs(_list(options.get("tmpfs"), DEFAULT_TMPFS), spec)),
        cap_drop=("ALL", *_extra_drops(_list(options.get("cap_drop"), ()))),
        env=env,
        pids=_number(options.get("pids_limit"), "pidsLimit", limits.pids),
        memory_bytes=memory,
        memory_swap=_swap(options.get("memory_swap"), memory),
        cpus=float(_number(options.get("cpus"), "cpus", limits.cpus)),
        ulimits=_ulimits(options.get("ulimits"), spec),
        seccomp_profile=seccomp,
        apparmor_profile=check_apparmor_profile(apparmor) if apparmor else "",
        dns=tuple(_addresses(_list(options.get("dns"), ()))),
        extra_hosts=tuple(_hosts(_list(options.get("extra_hosts"), ()))),
        mounts=_mounts(spec, _list(options.get("binds"), ()), private),
    )


def find_private_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return what no container may see: the state directory, and credentials of the user."""
    from homarus.config.paths import Paths

    paths = Paths.find(env)
    home = paths.home
    found = (paths.state, paths.config, *(home / each for each in CREDENTIALS))
    return tuple(dict.fromkeys(Path(os.path.realpath(each)) for each in found))


def check_env(env: Mapping[str, str]) -> None:
    """Refuse what is no name of a variable, or no text. Raises SandboxError."""
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise SandboxError(f"{one_line(name, 60)!r} is not the name of a variable")
        if "\0" in value:
            raise SandboxError(f"the value of the variable {name} is not text")


def check_workdir(workdir: str) -> str:
    """Return a folder inside. Raises SandboxError if it is not an absolute path."""
    if not workdir.startswith("/") or "\0" in workdir:
        raise SandboxError(
            f"{one_line(workdir, 80)!r} is no folder of the sandbox", fix="give an absolute path"
        )
    return posixpath.normpath(workdir)


def _check_spec(spec: SandboxSpec) -> None:
    check_sandbox_name(spec.name)
    if spec.allowed_hosts:
        raise SandboxError(
            "the backend oci has no proxy: sandbox.network.allow cannot be obeyed",
            fix='set sandbox.backend to "bubblewrap", or remove network.allow',
        )
    check_target(check_workdir(spec.workdir), f"{spec.workspace}:{spec.workdir}")
    if is_in(spec.workdir, TMP) or is_in(TMP, spec.workdir):
        raise SandboxError(f"the workspace cannot be {spec.workdir} inside", fix="use /workspace")


def _read_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that are set, by the names of the fields; unknown ones are refused."""
    fields = ContainerConfig.model_fields
    names = {info.alias or name: name for name, info in fields.items()} | {n: n for n in fields}
    if unknown := sorted(set(options) - set(names)):
        raise SandboxError(f"docker.{unknown[0]} is not known", fix="remove it from the config")
    return {names[key]: value for key, value in options.items() if value is not None}


def _mounts(spec: SandboxSpec, binds: Iterable[str], private: Sequence[Path]) -> tuple[Mount, ...]:
    own = [
        Mount(_own_folder(spec.workspace), posixpath.normpath(spec.workdir), is_writable=True),
        Mount(_own_folder(spec.tmp), TMP, is_writable=True),
    ]
    writable = [str(each.source) for each in own]
    found = [*own, *(_checked_mount(each, private) for each in spec.mounts)]
    found += (_bind_mount(each, private, writable) for each in binds)
    targets = [each.target for each in found]
    if twice := next((each for each in targets if targets.count(each) > 1), ""):
        raise SandboxError(f"two folders are to be {twice} inside", fix="change docker.binds")
    return tuple(found)


def _own_folder(path: Path) -> Path:
    real = _real_path(path)
    if not real.is_dir():
        raise SandboxError(f"the sandbox's folder {path} is missing")
    return real


def _checked_mount(mount: Mount, private: Sequence[Path]) -> Mount:
    """Return a mount of the gateway's choice with its real path.

    In the state directory it may be a workspace or shared media, nothing else.
    """
    text = f"{mount.source}:{mount.target}"
    real = _real_path(mount.source)
    check_bind_source(str(real), text)
    if stat.S_ISSOCK(_status(real).st_mode):
        raise SandboxError(f"{real} is a socket of this machine: a sandbox never sees one")
    check_source(real, private)
    return Mount(real, mount.target, mount.is_writable)


def _bind_mount(bind: str, private: Sequence[Path], writable: Sequence[str]) -> Mount:
    source, target, wants_write = check_bind(bind)
    real = _real_path(Path(source))
    check_bind_source(str(real), bind)
    status = _status(real)
    fix = "change or remove it in docker.binds"
    if stat.S_ISSOCK(status.st_mode):
        raise SandboxError(f"the bind {bind!r} is a socket of this machine", fix=fix)
    for each in (str(path) for path in private):
        if is_in(each, str(real)) or is_in(str(real), each):
            raise SandboxError(f"the bind {bind!r} would show {each}", fix=fix)
    if any(is_in(str(real), each) for each in writable):
        # A command could replace it with a symbolic link that the engine follows next time.
        raise SandboxError(f"the bind {bind!r} is a folder that commands can change", fix=fix)
    if wants_write and status.st_uid != os.geteuid():
        raise SandboxError(
            f"the bind {bind!r} is to be writable, but {real} belongs to another user",
            fix="remove :rw, or change the owner of the folder",
        )
    return Mount(real, target, wants_write)


def _real_path(path: Path) -> Path:
    try:
        real = path.resolve(strict=True)
    except OSError as exc:
        raise SandboxError(f"{path} cannot be shared: {exc.strerror or exc}") from exc
    if _UNSAFE_PATH.search(str(real)):
        raise SandboxError(
            f"{one_line(str(real), 120)!r} cannot be shared with a container",
            fix="rename the folder: no comma, quotation mark or line break",
        )
    return real


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as exc:
        raise SandboxError(f"{path} cannot be shared: {exc.strerror or exc}") from exc


def _check_profile_file(path: str) -> None:
    """Refuse a profile of seccomp that is none, or that allows what it does not name."""
    fix = "remove docker.seccompProfile for the engine's own profile"
    tree: Any = None
    with suppress(OSError, ValueError):
        tree = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(tree, dict):
        raise SandboxError(f"the seccomp profile {path} cannot be read", fix=fix)
    if tree.get("defaultAction") not in _DENYING:
        raise SandboxError(
            f"the seccomp profile {path} allows every call that it does not name", fix=fix
        )


def _tmpfs(entries: Iterable[str], spec: SandboxSpec) -> Iterator[str]:
    """Yield file systems in memory; /tmp is none, because it stays between commands."""
    for entry in entries:
        target, _, text = entry.partition(":")
        wanted = [each for each in text.split(",") if each]
        if wrong := [each for each in wanted if not _TMPFS_OPTION.fullmatch(each)]:
            raise SandboxError(
                f"docker.tmpfs {one_line(entry, 80)!r} has the option {wrong[0]!r}",
                fix="there are size=…, mode=… and noexec",
            )
        if not target.startswith("/") or posixpath.normpath(target) != target or target == "/":
            raise SandboxError(f"docker.tmpfs {one_line(entry, 80)!r} is not an absolute folder")
        if _UNSAFE_PATH.search(target) or any(
            is_in(target, each) or is_in(each, target) for each in ("/proc", "/sys", "/dev")
        ):
            raise SandboxError(f"docker.tmpfs {one_line(entry, 80)!r} is not allowed")
        if target == TMP or is_in(spec.workdir, target):
            continue
        # Writable for the user inside, who does not own it.
        has_mode = any(each.startswith("mode=") for each in wanted)
        has_size = any(each.startswith("size=") for each in wanted)
        extra = [] if has_mode else ["mode=1777"]
        extra += [] if has_size else [f"size={_TMPFS_BYTES}"]
        yield f"{target}:{','.join(['rw', 'nosuid', 'nodev', *wanted, *extra])}"


def _ulimits(value: object, spec: SandboxSpec) -> tuple[tuple[str, int, int], ...]:
    limits = spec.limits
    own = {"nofile": limits.open_files, "fsize": limits.file_bytes, "cpu": limits.cpu_s, "core": 0}
    found = {name: (number, number) for name, number in own.items() if number or name == "core"}
    for name, given in (value or {}).items() if isinstance(value, Mapping) else ():
        if not _ULIMIT.fullmatch(name):
            raise SandboxError(f"docker.ulimits.{one_line(name, 20)} is not a limit")
        found[name] = _ulimit(name, given)
    return tuple((name, soft, hard) for name, (soft, hard) in sorted(found.items()))


def _ulimit(name: str, given: object) -> tuple[int, int]:
    soft: object
    hard: object
    if isinstance(given, Mapping):
        soft, hard = given.get("soft"), given.get("hard")
    elif isinstance(given, str):
        soft, _, hard = given.partition(":")
    elif isinstance(given, int):
        soft = hard = given
    else:
        soft, hard = getattr(given, "soft", None), getattr(given, "hard", None)
    soft = hard if soft in {None, ""} else soft
    hard = soft if hard in {None, ""} else hard
    try:
        pair = int(str(soft)), int(str(hard))
    except ValueError:
        pair = (-1, -1)
    if min(pair) < 0 or pair[0] > pair[1]:
        raise SandboxError(
            f"docker.ulimits.{name} is not a limit", fix="write a number, or SOFT:HARD"
        )
    soft_limit, hard_limit = (-1 if each >= UNLIMITED else each for each in pair)
    return soft_limit, hard_limit  # -1 is how the engines write no limit


def _user(value: object) -> ContainerUser | None:
    if value is None:
        return None
    if not (found := _USER.fullmatch(str(value))):
        raise SandboxError(
            f"docker.user {one_line(str(value), 40)!r} is not a number",
            fix="write UID or UID:GID; files outside belong to the gateway's user all the same",
        )
    return ContainerUser(int(found[1]), int(found[2] or found[1]))


def _extra_drops(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if not _CAPABILITY.fullmatch(name):
            raise SandboxError(f"docker.capDrop {one_line(name, 40)!r} is not a capability")
        if name.upper() != "ALL":
            yield name.upper()


def _addresses(entries: Iterable[str]) -> Iterator[str]:
    for entry in entries:
        try:
            yield str(ip_address(entry))
        except ValueError:
            raise SandboxError(f"docker.dns {one_line(entry, 60)!r} is not an address") from None


def _hosts(entries: Iterable[str]) -> Iterator[str]:
    for entry in entries:
        name, _, address = entry.partition(":")
        with suppress(ValueError):
            if _HOST.fullmatch(name):
                yield f"{name}:{ip_address(address.strip('[]'))}"
                continue
        raise SandboxError(
            f"docker.extraHosts {one_line(entry, 80)!r} is not allowed", fix="write NAME:ADDRESS"
        )


def _match(pattern: re.Pattern[str], value: object, key: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise SandboxError(f"docker.{key} {one_line(str(value), 80)!r} is not allowed")
    return value


def _list(value: object, default: tuple[str, ...]) -> tuple[str, ...]:
    if value is None:
        return default
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise SandboxError("a list of the section docker is not a list of texts")
    return tuple(value)


def _strings(value: object, key: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SandboxError(f"docker.{key} is not an object")
    return {str(name): str(text) for name, text in value.items()}


def _number(value: object, key: str, default: float) -> Any:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 62:
        raise SandboxError(f"docker.{key} is not a number")
    return value


def _size(value: object, key: str, default: int) -> int:
    if value is None:
        return default
    try:
        return parse_byte_size(f"{value:.0f}" if isinstance(value, float) else str(value))
    except UserError as exc:
        raise SandboxError(f"docker.{key}: {exc.message}", fix=exc.fix) from exc


def _swap(value: object, memory: int) -> int:
    """Return memory and swap together; without a setting there is no swap."""
    if value is not None and str(value).strip() == "-1":
        return -1
    return max(_size(value, "memorySwap", memory), memory) if memory else 0
