"""The one way in which a method of the gateway changes the config.

Every change is made on behalf of a client, so every change is subject to the rule of
config/protected_keys.py. No method may call `write_config` itself.
"""

from collections.abc import Callable

from homarus.channels.registry import find_traits
from homarus.config.agent_settings import agent_ids
from homarus.config.config_files import ConfigTexts
from homarus.config.paths import openclaw_files_dir
from homarus.config.protected_keys import ClientRules, check_protected_keys
from homarus.config.redaction import restore_redacted
from homarus.config.write import ConfigWrite, write_config
from homarus.core.message import Json
from homarus.gateway.services import GatewayServices


def write_client_change(
    services: GatewayServices,
    change: Callable[[dict[str, Json]], Json],
    *,
    base_hash: str | None = None,
    check: Callable[[ConfigTexts], None] = lambda _texts: None,
    dry_run: bool = False,
) -> ConfigWrite:
    """Change the config files as `write_config` does, if a client may make this change.

    Raises UserError for what a client may not set. With `dry_run`, nothing is written.
    """
    rules = client_rules(services)

    def guarded(own: dict[str, Json]) -> Json:
        new = restore_redacted(change(own), own)
        check_protected_keys(own, new, rules)
        return new

    return write_config(
        services.paths,
        services.loaded.env,
        guarded,
        if_hash=base_hash,
        at_ms=services.clock.now_ms(),
        check=check,
        dry_run=dry_run,
    )


def client_rules(services: GatewayServices) -> ClientRules:
    """Return what the rule for clients depends on."""
    return ClientRules(
        services.paths,
        in_use=services.loaded.config.model_dump(mode="json", by_alias=True, exclude_none=True),
        has_stored_key=lambda provider: _has_stored_key(services, provider),
        has_stored_login=lambda channel: _has_stored_login(services, channel),
    )


def _has_stored_key(services: GatewayServices, provider: str) -> bool:
    """Return whether a provider has a credential in a file or in the environment."""
    return any(
        not entry.profile.id.startswith("config:")
        for agent in agent_ids(services.loaded.config)
        for entry in services.models.credentials(agent).entries(provider)
    )


def _has_stored_login(services: GatewayServices, channel: str) -> bool:
    """Return whether a channel has a saved login, or a credential in the environment."""
    variables = find_traits(channel).secret_variables
    if variables is None or any(services.loaded.env.get(name) for name in variables):
        return True
    folder = openclaw_files_dir(services.paths.state) / "credentials" / channel
    return folder.is_dir() and any(folder.iterdir())
