"""The sandbox backend `oci`: every command in a container of its own, by `podman` or `docker`.

A container has no capabilities, no new privileges, no network unless the config names one, a root
that cannot be written to, and the two folders of the sandbox. It is removed with the command. No
image is downloaded: the one that the config names must be on this machine.
"""

import asyncio
import hashlib
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from homarus.core.errors import SandboxError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.sandbox.base import (
    Mount,
    SandboxCommand,
    SandboxLaunch,
    SandboxReport,
    SandboxSpec,
)
from homarus.tools.sandbox.container_engine import ContainerEngine, find_engines, max_processes
from homarus.tools.sandbox.container_rules import (
    NO_NETWORK,
    TMP,
    ContainerRules,
    check_env,
    check_workdir,
    find_private_folders,
    make_rules,
)
from homarus.tools.sandbox.container_seccomp import PROFILE_NAME, write_profile
from homarus.tools.sandbox.mount_rules import find_state_dirs, make_mount_point

log = logging.getLogger(__name__)

NAME: Final = "oci"
LABEL: Final = "homarus.sandbox"  # the name of the sandbox
OWNER_LABEL: Final = "homarus.owner"  # which gateway made it: the digest of its scratch folder
_SHELL: Final = "/bin/sh"
_ENCODED: Final = "HOMARUS_ENV_"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,-]*", re.ASCII)
# The outer shell is process 1 and waits, so that signals and orphans are as on any machine.
# Output and errors are one stream: the engine would pass on two in any order.
_SCRIPT: Final = (
    "exec 2>&1; {variables}[ -d /tmp/home ] || mkdir -p /tmp/home; "
    'cd -- "$1" || exit 125; shift; /bin/sh -c -- "$1"; exit $?'
)
_DECODE: Final = '{name}=$(printf %b. "${key}"); export {name}="${{{name}%.}}"; unset {key}; '
_DEFAULT_ENV: Final = {"HOME": f"{TMP}/home", "TMPDIR": TMP, "LANG": "C.UTF-8"}
# A sequence that no program sends: the terminal never leaves the command behind.
_NO_DETACH: Final = {"podman": "", "docker": "ctrl-],ctrl-^,ctrl-],ctrl-^"}
_PODMAN_WORDS: Final = (
    "--read-only-tmpfs=false",
    "--http-proxy=false",
    "--systemd=false",
    "--image-volume=ignore",
    "--sdnotify=ignore",
    "--umask=0022",
)


@dataclass(frozen=True, slots=True)
class _PreparedSandbox:
    """The engine of a sandbox, and whether its containers have a user namespace."""

    engine: ContainerEngine
    has_namespace: bool


class OciSandbox:
    """Runs commands in containers. `private` are folders that no container sees."""

    def __init__(
        self,
        scratch: Path,
        *,
        env: Mapping[str, str] | None = None,
        private: tuple[Path, ...] | None = None,
    ) -> None:
        outer = os.environ if env is None else env
        self._scratch, self._outer = scratch, dict(outer)
        if private is None:
            private = (*find_private_folders(outer), *find_state_dirs(scratch))
        self._private = private
        folder = os.path.realpath(scratch)
        self._owner = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        self._lock = asyncio.Lock()
        self._engines: tuple[ContainerEngine, ...] = ()
        self._checked: dict[tuple[str, ...], _PreparedSandbox] = {}
        self._prepared: dict[str, _PreparedSandbox] = {}

    @property
    def name(self) -> str:
        return NAME

    async def prepare(self, spec: SandboxSpec) -> None:
        """Check the rules, find the engine that has the image, and try one container."""
        rules = self._rules(spec)
        async with self._lock:
            engine = await self._find_engine(rules.image)
            if not self._checked:
                await asyncio.to_thread(write_profile, self._scratch)
            key = (engine.kind, rules.image, str(rules.user), rules.network, rules.seccomp_profile)
            if key not in self._checked:
                self._checked[key] = await self._try_engine(engine, spec, rules)
            self._prepared[spec.name] = self._checked[key]

    def spawn(self, spec: SandboxSpec, command: SandboxCommand) -> SandboxLaunch:
        """Return how to start a command in a container of its own."""
        if (prepared := self._prepared.get(spec.name)) is None:
            raise SandboxError(f"the sandbox {spec.name} is not prepared")
        # Again: what a bind leads to may have changed since the sandbox was prepared.
        rules = self._rules(spec)
        workdir = check_workdir(command.workdir)
        env = self._command_env(rules, command)
        container = f"{rules.prefix}{spec.name}-{secrets.token_hex(4)}"
        first = self._words(prepared, spec, rules, container)
        variables, text = encode_env(env)
        env_fd = _open_env(text)
        options = (
            *("--env-file", f"/proc/self/fd/{env_fd}", "--interactive"),
            *(("--tty",) if command.pty else ()),
        )
        script = _SCRIPT.format(variables=variables)
        inside = ("--entrypoint", _SHELL, rules.image, "-c", script, "sh", workdir, command.text)
        engine = prepared.engine
        return SandboxLaunch(
            argv=(*engine.argv, *first, *options, *inside),
            env=engine.env,
            fds=(env_fd,),
            cleanup=((*engine.argv, *_removal(engine), container),),
            identity=(*(each for each in first if each != container), *inside, text),
            disk_folders=(str(spec.workspace), str(spec.tmp)),
            disk_bytes=spec.limits.disk_bytes,
            close=lambda: _close(env_fd),
        )

    def mounts(self, spec: SandboxSpec) -> tuple[Mount, ...]:
        return self._rules(spec).mounts

    async def measure(self, options: Mapping[str, object] | None = None) -> SandboxReport:
        """Run the escape probes in containers of the image and the network of the options."""
        from homarus.tools.sandbox.probes import measure_sandbox

        report = await measure_sandbox(self, self._scratch, options=options)
        network = (options or {}).get("network") or NO_NETWORK
        if network == NO_NETWORK or report.level <= "L1":
            return report
        # One without a way to the internet still leads to this machine and to other containers.
        return replace(
            report,
            level="L1",
            problem=f"docker.network {network!r} connects commands to this machine",
            fix="remove docker.network, or set sandbox.level to L1",
        )

    async def destroy(self, name: str) -> None:
        """Remove every container of a sandbox, also those that a crash left running."""
        async with self._lock:
            self._prepared.pop(name, None)
            try:
                engines = self._engines or await find_engines(self._outer)
            except SandboxError:
                return  # without an engine there are no containers
        for engine in engines:
            filters = (f"label={LABEL}={name}", f"label={OWNER_LABEL}={self._owner}")
            chosen = [word for each in filters for word in ("--filter", each)]
            listed = await engine.run("ps", "--all", "--quiet", "--no-trunc", *chosen)
            if listed.status:
                raise SandboxError(f"{engine.kind} does not list containers: {listed.problem}")
            if ids := listed.stdout.split():
                removed = await engine.run(*_removal(engine), *ids)
                if removed.status:
                    raise SandboxError(f"{engine.kind} removed no container: {removed.problem}")

    def _rules(self, spec: SandboxSpec) -> ContainerRules:
        return make_rules(spec, self._private)

    async def _find_engine(self, image: str) -> ContainerEngine:
        """Return the first engine that has the image; the one that was measured stays."""
        if not self._engines:
            self._engines = await find_engines(self._outer)
        used = {kind for kind, checked, *_ in self._checked if checked == image}
        for engine in sorted(self._engines, key=lambda each: each.kind not in used):
            if await engine.has_image(image):
                return engine
        names = " or ".join(each.kind for each in self._engines)
        raise SandboxError(
            f"the image {image} is not on this machine: images are not downloaded by themselves",
            fix=f"get it with `{self._engines[0].kind} pull {image}` or build it, with {names}",
        )

    async def _try_engine(
        self, engine: ContainerEngine, spec: SandboxSpec, rules: ContainerRules
    ) -> _PreparedSandbox:
        """Return how the engine starts a container: with a user namespace if it can."""
        problem = ""
        for has_namespace in (True, False) if engine.is_podman else (False,):
            prepared = _PreparedSandbox(engine, has_namespace)
            container = f"{rules.prefix}{spec.name}-{secrets.token_hex(4)}"
            words = self._words(prepared, spec, rules, container)
            # The test that the user of the container can write is that of the workspace itself.
            script = 'test -w "$1" && test -w /tmp || { echo "no write access" >&2; exit 1; }'
            inner = ("--entrypoint", _SHELL, rules.image, "-c", script, "sh", spec.workdir)
            done = await engine.run(*words, *inner)
            if done.status == 0:
                return prepared
            problem = problem or done.problem
            log.info("%s cannot start a container: %s", engine.kind, done.problem)
        raise SandboxError(
            f"{engine.kind} cannot start a container of {rules.image}: {problem}",
            fix=f"try `{engine.kind} run --rm --network none {rules.image} true`; "
            f"the image needs {_SHELL}",
        )

    def _words(
        self,
        prepared: _PreparedSandbox,
        spec: SandboxSpec,
        rules: ContainerRules,
        container: str,
    ) -> list[str]:
        """Return the engine's `run` and its options, without the image."""
        engine = prepared.engine
        words = [
            *("run", "--rm", "--name", container, "--pull", "never"),
            *("--label", f"{LABEL}={spec.name}", "--label", f"{OWNER_LABEL}={self._owner}"),
            *("--network", rules.network, "--hostname", "sandbox"),
            *("--security-opt", "no-new-privileges"),
            *("--cgroupns", "private", "--ipc", "private"),
            *("--log-driver", "none", "--no-healthcheck", "--workdir", "/"),
            *("--sig-proxy=false", "--stop-timeout", "0"),
            f"--detach-keys={_NO_DETACH[engine.kind]}",
            *(_PODMAN_WORDS if engine.is_podman else ()),
            *engine.user_words(rules.user, has_namespace=prepared.has_namespace),
            *_limit_words(engine, rules),
        ]
        for name in rules.cap_drop:
            words += ("--cap-drop", name)
        if rules.is_root_read_only:
            words.append("--read-only")
        profile = rules.seccomp_profile or str(self._scratch / PROFILE_NAME)
        words += ("--security-opt", f"seccomp={profile}")
        if rules.apparmor_profile:
            words += ("--security-opt", f"apparmor={rules.apparmor_profile}")
        for each in rules.tmpfs:
            words += ("--tmpfs", each)
        for mount in rules.mounts:
            make_mount_point(mount, spec)  # before the engine does it, and follows a link
            words += ("--mount", _mount_text(mount))
        if rules.network != NO_NETWORK:
            for each in rules.dns:
                words += ("--dns", each)
        for each in rules.extra_hosts:
            words += ("--add-host", each)
        return words

    @staticmethod
    def _command_env(rules: ContainerRules, command: SandboxCommand) -> dict[str, str]:
        env = {**_DEFAULT_ENV, **rules.env, **(command.env or {})}
        check_env(env)
        return env


def encode_env(env: Mapping[str, str]) -> tuple[str, str]:
    """Return a script that sets the variables, and the lines of `--env-file` that it needs.

    The engines disagree about quotes and spaces in that file, and a line break ends a value. So a
    value with such characters is written as escapes, under a name of ours, and decoded inside.
    """
    script, lines = "", []
    for number, (name, value) in enumerate(env.items()):
        if _PLAIN.fullmatch(value):
            lines.append(f"{name}={value}")
            continue
        key = f"{_ENCODED}{number}"
        lines.append(f"{key}={_escape(value)}")
        script += _DECODE.format(name=name, key=key)
    return script, "".join(f"{line}\n" for line in lines)


def _escape(value: str) -> str:
    try:
        data = value.encode()
    except UnicodeEncodeError as exc:
        raise SandboxError("the value of a variable is not text") from exc
    plain = (chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"\\0{byte:03o}" for byte in data)
    return "".join(plain)


def _open_env(text: str) -> int:
    """Return a descriptor of a file without a name: values are in no argument and on no disk."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("environment")
        os.write(fd, text.encode())
        return fd
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        return os.dup(file.fileno())


def _close(fd: int) -> None:
    with suppress(OSError):
        os.close(fd)


def _mount_text(mount: Mount) -> str:
    words = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    return ",".join(words if mount.is_writable else [*words, "readonly"])


def _limit_words(engine: ContainerEngine, rules: ContainerRules) -> Iterator[str]:
    limits = {name: (soft, hard) for name, soft, hard in rules.ulimits}
    if engine.is_podman and "nproc" not in limits:
        # Without limits for the container, at least the processes of its user are limited.
        number = max_processes()
        number = number if engine.has_limits or not rules.pids else min(number, rules.pids)
        limits["nproc"] = number, number
    for name, (soft, hard) in sorted(limits.items()):
        yield from ("--ulimit", f"{name}={soft}:{hard}")
    if not engine.has_limits:
        return
    if rules.pids:
        yield from ("--pids-limit", str(rules.pids))
    if rules.memory_bytes:
        yield from ("--memory", str(rules.memory_bytes))
        yield from ("--memory-swap", str(rules.memory_swap))
    if rules.cpus:
        yield from ("--cpus", f"{rules.cpus:g}")


def _removal(engine: ContainerEngine) -> tuple[str, ...]:
    """Return the command that kills and removes containers, and their volumes, at once."""
    words = ("rm", "--force", "--volumes")
    return (*words, "--time", "0", "--ignore") if engine.is_podman else words


def create(scratch: Path) -> OciSandbox:
    """Return the backend; its containers are told from those of other gateways by `scratch`."""
    return OciSandbox(scratch)
