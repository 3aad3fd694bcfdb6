"""The settings of containers that a sandbox backend cannot obey as they are written. Pure.

A setting that restricts commands, or gives them more than the backend does, refuses the sandbox.
One that changes neither is ignored, and `homarus doctor` names it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from homarus.config.sandbox_schema import ContainerConfig
from homarus.core.errors import SandboxError
from homarus.core.fast_dataclass import dataclass
from homarus.policy.sandbox_settings import SandboxSettings

BUBBLEWRAP: Final = "bubblewrap"
OCI: Final = "oci"
OBEYED_ULIMITS: Final = frozenset({"nofile", "nproc", "fsize", "cpu"})
_USERS: Final = frozenset({"1000", "1000:1000"})
_TEMPORARY: Final = frozenset({"/tmp", "/var/tmp", "/run"})  # noqa: S108 - inside a sandbox
_NETWORK_FIX: Final = "remove it; sandbox.network.allow names the hosts that commands may reach"


@dataclass(frozen=True, slots=True)
class UnobeyedSetting:
    """A setting under `sandbox`, why it is not obeyed, and what helps; `fix` "" when ignored."""

    key: str
    reason: str
    fix: str = ""

    @property
    def is_refused(self) -> bool:
        return bool(self.fix)


_Rule: TypeAlias = Callable[[ContainerConfig, SandboxSettings], UnobeyedSetting | None]


def unobeyed_settings(settings: SandboxSettings, backend: str) -> list[UnobeyedSetting]:
    """Return the settings that a backend cannot obey, those that refuse the sandbox first.

    What a backend of another package obeys is decided by its own `prepare`.
    """
    rules = [*_EVERY_BACKEND]
    if backend == BUBBLEWRAP:
        rules += _BUBBLEWRAP_RULES
    elif backend == OCI:
        rules += _OCI_RULES
    found = [one for rule in rules if (one := rule(settings.container, settings)) is not None]
    return sorted(found, key=lambda one: not one.is_refused)


def check_obeyed(settings: SandboxSettings, backend: str) -> None:
    """Raise SandboxError for the first setting that a backend can neither obey nor ignore."""
    for one in unobeyed_settings(settings, backend):
        if one.is_refused:
            raise SandboxError(f"sandbox.{one.key} cannot be obeyed: {one.reason}", fix=one.fix)


def _network(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if container.network in {None, "none"}:
        return None
    reason = f"{container.network!r} would connect commands to more than the proxy"
    return UnobeyedSetting("docker.network", reason, _NETWORK_FIX)


def _setup(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if not container.setup_command:
        return None
    reason = "every command has a new container, which a setup command would not change"
    return UnobeyedSetting(
        "docker.setupCommand", reason, "build an image with it, and set sandbox.docker.image"
    )


def _ulimits(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    unknown = sorted((container.ulimits or {}).keys() - OBEYED_ULIMITS)
    if not unknown:
        return None
    reason = f"there is no limit of this name for sandboxes: {', '.join(unknown)}"
    known = ", ".join(sorted(OBEYED_ULIMITS))
    return UnobeyedSetting(f"docker.ulimits.{unknown[0]}", reason, f"remove it; use {known}")


def _dns(container: ContainerConfig, settings: SandboxSettings) -> UnobeyedSetting | None:
    if not container.dns:
        return None
    if not settings.allowed_hosts:
        return UnobeyedSetting("docker.dns", "a sandbox without network looks up no names")
    reason = "the gateway looks up the names of allowed hosts, with its own servers"
    return UnobeyedSetting("docker.dns", reason, "remove it")


def _hosts(container: ContainerConfig, settings: SandboxSettings) -> UnobeyedSetting | None:
    if not container.extra_hosts:
        return None
    if not settings.allowed_hosts:
        return UnobeyedSetting("docker.extraHosts", "a sandbox without network reaches no host")
    reason = "the gateway looks up the names of allowed hosts itself"
    return UnobeyedSetting(
        "docker.extraHosts", reason, "remove it; /etc/hosts of the gateway holds"
    )


def _tmpfs(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    paths = [each.partition(":")[0].rstrip("/") for each in container.tmpfs or ()]
    if not paths:
        return None
    others = [path for path in paths if path not in _TEMPORARY]
    if not others:
        return UnobeyedSetting("docker.tmpfs", "the folder /tmp of a sandbox is its own")
    reason = f"only /tmp and the workspace are writable, not {others[0][:80]!r}"
    return UnobeyedSetting("docker.tmpfs", reason, "remove it, or use a folder of the workspace")


def _only_image(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if container.image is None:
        return None
    return UnobeyedSetting("docker.image", "bubblewrap shows the programs of this machine")


def _prefix(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if container.container_prefix is None:
        return None
    return UnobeyedSetting("docker.containerPrefix", "bubblewrap has no containers to name")


def _writable_root(
    container: ContainerConfig, _settings: SandboxSettings
) -> UnobeyedSetting | None:
    if container.read_only_root is not False:
        return None
    reason = "/usr of this machine is shown, and is never writable"
    return UnobeyedSetting(
        "docker.readOnlyRoot", reason, "remove it, or use the backend oci with an image"
    )


def _user(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if container.user is None or container.user in _USERS:
        return None
    reason = "commands run as user 1000 of their own user namespace"
    return UnobeyedSetting("docker.user", reason, "remove it, or use the backend oci")


def _own_seccomp(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if container.seccomp_profile is None:
        return None
    reason = "bubblewrap has a filter of system calls of its own, and reads no profile"
    return UnobeyedSetting("docker.seccompProfile", reason, "remove it, or use the backend oci")


def _own_apparmor(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if container.apparmor_profile is None:
        return None
    reason = "bubblewrap starts commands without AppArmor profiles"
    return UnobeyedSetting("docker.apparmorProfile", reason, "remove it, or use the backend oci")


def _binds(container: ContainerConfig, _settings: SandboxSettings) -> UnobeyedSetting | None:
    if not container.binds:
        return None
    reason = "bubblewrap shows the workspace and the read-only folders alone"
    return UnobeyedSetting(
        "docker.binds", reason, "use sandbox.readOnlyFolders, or set sandbox.backend to oci"
    )


def _no_proxy(_container: ContainerConfig, settings: SandboxSettings) -> UnobeyedSetting | None:
    if not settings.allowed_hosts:
        return None
    reason = "the backend oci has no proxy that lets commands reach these hosts alone"
    return UnobeyedSetting(
        "network.allow", reason, "set sandbox.backend to bubblewrap, or remove the list"
    )


# `capDrop` needs no rule: every backend drops all capabilities, whatever it lists. The other keys
# of containers are obeyed by the backend `oci`, or refused by it where their value is not safe.
_EVERY_BACKEND: Final[tuple[_Rule, ...]] = (_setup,)
_BUBBLEWRAP_RULES: Final[tuple[_Rule, ...]] = (
    _network, _ulimits, _dns, _hosts, _only_image, _prefix, _writable_root, _user, _own_seccomp,
    _own_apparmor, _tmpfs, _binds,
)  # fmt: skip
_OCI_RULES: Final[tuple[_Rule, ...]] = (_no_proxy,)
