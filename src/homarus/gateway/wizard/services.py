"""What a wizard is given from outside, and what it edits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from homarus.config.agent_edits import check_workspace
from homarus.config.agent_settings import default_agent_id
from homarus.config.config_files import ConfigTexts
from homarus.config.load import LoadedConfig, load_config, load_text
from homarus.config.paths import Paths
from homarus.config.rewrite import serialize
from homarus.config.write import read_own_tree
from homarus.core.clock import SystemClock
from homarus.core.fast_dataclass import dataclass
from homarus.providers.credentials import Credentials, open_credentials, profile_file
from homarus.providers.probe import ProbeResult, probe_model
from homarus.providers.profiles import Raw, forget_usage, put_profile

# Returns a new tree of the config; trees are not mutated.
ConfigEdit: TypeAlias = Callable[[Any], Any]


class ServiceInstaller(Protocol):
    """The service manager of this machine, for the gateway."""

    def find_state(self) -> str:
        """Return "installed", "available", or the reason why there can be no service here."""
        ...

    def install(self) -> Sequence[str]:
        """Install and start the gateway's service; returns what the user should know."""
        ...


class ProbeModel(Protocol):
    """Send one request to a model; providers/probe.py implements it."""

    async def __call__(
        self,
        config: Any,
        ref: str,
        key: str = "",
        *,
        env: Mapping[str, str],
        paths: Paths,
    ) -> ProbeResult: ...


@dataclass(frozen=True, slots=True)
class WizardServices:
    """The files of this machine, and what the place where the wizard runs can do.

    `change_config` writes the config. `describe_end` returns the text of the last step. Without
    `service`, a service cannot be installed from here. With `is_client`, the answers come from a
    client of the gateway, which may not choose every workspace and needs no token.
    """

    paths: Paths
    env: Mapping[str, str]
    change_config: Callable[[ConfigEdit], Awaitable[object]]
    describe_end: Callable[[], Awaitable[str]]
    service: ServiceInstaller | None = None
    check_workspace: Callable[[str, Paths], object] = check_workspace
    probe: ProbeModel = probe_model
    command: str = "onboard"
    is_client: bool = False

    def load(self) -> LoadedConfig:
        """Return the config as it is on disk."""
        return load_config(self.paths, self.env)

    def load_with(self, edit: ConfigEdit) -> LoadedConfig:
        """Return the config as it would be after an edit. Raises ConfigError."""
        own, _ = read_own_tree(self.paths)
        return load_text(self.paths, self.env, ConfigTexts(serialize(edit(own)), None))

    def open_credentials(self, loaded: LoadedConfig) -> Credentials:
        """Return the credentials of the default agent."""
        agent = default_agent_id(loaded.config)
        return open_credentials(loaded.config, loaded.env, self.paths, agent, SystemClock())

    def has_key(self, provider: str) -> bool:
        """Return whether a key is stored under the name that `save_key` gives it."""
        loaded = self.load()
        file = profile_file(loaded.config, loaded.env, self.paths, default_agent_id(loaded.config))
        return _profile_id(provider) in file.read().profiles

    def save_key(self, provider: str, key: str) -> None:
        """Store an API key as `homarus models auth add` does."""
        id_ = _profile_id(provider)

        def put(raw: Raw) -> None:
            fields = {"type": "api_key", "provider": provider, "key": key, "keyFrom": None}
            put_profile(raw, id_, fields)
            forget_usage(raw, id_)

        self._update_profiles(put)

    def remove_key(self, provider: str) -> None:
        """Remove a key that `save_key` stored."""

        def remove(raw: Raw) -> None:
            profiles = raw.get("profiles")
            if isinstance(profiles, dict):
                profiles.pop(_profile_id(provider), None)

        self._update_profiles(remove)

    def _update_profiles(self, change: Callable[[Raw], None]) -> None:
        loaded = self.load()
        agent = default_agent_id(loaded.config)
        profile_file(loaded.config, loaded.env, self.paths, agent).update(change)


def _profile_id(provider: str) -> str:
    return f"{provider}:default"
