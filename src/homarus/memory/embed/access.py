"""Resolve the address and key of embedding services from the settings of chat providers.

The key is found like a chat provider's: auth profiles, the config, the environment. OAuth logins
are skipped: they are valid for chat, but not for embeddings.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.memory.embed.client import FindAccess, ServiceAccess, ServiceKey

if TYPE_CHECKING:
    from homarus.config.schema import Config
    from homarus.providers.credentials import CredentialCandidate, Credentials

_LOGIN = "oauth"


def resolve_access(
    config: "Config", paths: Paths, env: Mapping[str, str], agent: str
) -> FindAccess:
    """Return a function from a provider's name to its access, which is resolved when called."""

    def access(provider: str) -> ServiceAccess:
        from homarus.providers.catalog import provider_entry
        from homarus.providers.credentials import open_credentials

        entry = provider_entry(config, provider)
        credentials = open_credentials(config, env, paths, agent, SystemClock())
        usable = (one for one in credentials.candidates(provider) if one.kind != _LOGIN)
        found = next(usable, None)
        return ServiceAccess(
            base_url=(entry and entry.base_url) or "",
            headers=dict(entry.headers) if entry else {},
            key=ServiceKey(_where(credentials, found), found.secret) if found else None,
        )

    return access


def _where(credentials: "Credentials", candidate: "CredentialCandidate") -> str:
    """Describe where a key is, as a person would look for it."""
    entries = credentials.entries(candidate.provider)
    entry = next((one for one in entries if one.profile.id == candidate.profile_id), None)
    if entry is None or entry.file is None:
        return entry.place if entry else candidate.profile_id
    return f"the auth profile {candidate.profile_id}"


def config_key(where: str, secret: str) -> ServiceKey:
    """Return a key of the config."""

    async def fetch() -> str:
        return secret

    return ServiceKey(where, fetch)
