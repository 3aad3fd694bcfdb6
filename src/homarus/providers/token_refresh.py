"""Refresh OAuth tokens before they expire, once for concurrent callers.

Callers in one process queue; between processes a lock per login does the same, and the second finds
the new token in the file. The service may have replaced the refresh token, so the request and the
write always complete in a thread, even if the caller is cancelled; tokens that cannot be written
are kept and used by this process.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from homarus.config.model_refs import normalize_provider_id
from homarus.core.clock import Clock
from homarus.core.errors import (
    AuthError,
    ConflictError,
    HomarusError,
    ProviderTimeoutError,
    StoreError,
)
from homarus.providers.profile_file import ProfileFile
from homarus.providers.profiles import Profile, Raw, parse, put_profile

if TYPE_CHECKING:
    from homarus.config.schema import OAuthClientConfig
    from homarus.providers import oauth  # its HTTP and hashing are needed for logins only

log = logging.getLogger(__name__)

EXPIRY_MARGIN_MS = 60_000  # a token that expires within this time is refreshed first
RENEW_WAIT_S = 60.0


class TokenRefresher:
    """The OAuth credentials of one agent."""

    def __init__(self, clients: "Mapping[str, OAuthClientConfig]", clock: Clock) -> None:
        self._clients = {normalize_provider_id(name): said for name, said in clients.items()}
        self._clock = clock
        self._turns: dict[str, asyncio.Lock] = {}
        self._refused: dict[str, str] = {}
        # By profile: the refresh token in the file that was replaced, and the new tokens.
        self._unsaved: dict[str, tuple[str, oauth.OAuthTokens]] = {}

    def current(self, profile: Profile) -> Profile:
        """Return the profile with tokens newer than its file's."""
        replaced, tokens = self._unsaved.get(profile.id, ("", None))
        if tokens is None or replaced != profile.refresh:
            return profile
        return replace(
            profile, secret=tokens.access, refresh=tokens.refresh, expires_ms=tokens.expires_ms
        )

    def invalidate(self, profile_id: str, access: str) -> None:
        """Mark a token that a service refused: it is refreshed before the next use."""
        self._refused[profile_id] = access

    async def access_token(self, file: ProfileFile, profile: Profile) -> str:
        """Return a valid token. Raises ProviderError when there is none."""
        if self._is_fresh(profile):
            return profile.secret
        async with self._turns.setdefault(profile.id, asyncio.Lock()):
            try:
                return await asyncio.to_thread(self._renew, file, profile)
            except ConflictError as exc:
                what = f"another process has been renewing the login {profile.id} for long"
                raise ProviderTimeoutError(what, fix="try again") from exc
            except StoreError as exc:
                what = f"the login {profile.id} ran out and cannot be renewed: {exc.message}"
                raise AuthError(what, fix=exc.fix) from exc

    def _is_fresh(self, profile: Profile) -> bool:
        if not profile.secret or self._refused.get(profile.id) == profile.secret:
            return False
        left_ms = profile.expires_ms - self._clock.now_ms()
        return not profile.expires_ms or left_ms > EXPIRY_MARGIN_MS

    def _renew(self, file: ProfileFile, profile: Profile) -> str:
        from homarus.providers import oauth

        with file.locked(f"renew {profile.id}", RENEW_WAIT_S):
            stored = file.read().profiles.get(profile.id, profile)
            newest = self.current(stored)
            if self._is_fresh(newest):
                return newest.secret
            tokens = oauth.refresh(self._client(newest), newest.refresh, self._clock.now_ms())
            self._refused.pop(profile.id, None)
            self._unsaved[profile.id] = stored.refresh, tokens
            try:
                file.update(lambda raw: _put_tokens(raw, stored, tokens))
            except HomarusError as exc:
                log.error("the renewed login %s is not saved: %s", profile.id, exc)  # noqa: TRY400 - a full disk is no bug
            else:
                del self._unsaved[profile.id]
        return tokens.access

    def _client(self, profile: Profile) -> "oauth.OAuthClient":
        from homarus.providers import oauth

        said = self._clients.get(profile.provider)
        client_id = profile.client_id or (said and said.client_id) or ""
        token_url = profile.token_url or (said and said.token_url) or ""
        client_secret = profile.client_secret or (said and said.client_secret) or ""
        if client_id and token_url and profile.refresh:
            return oauth.OAuthClient(
                profile.provider, client_id, token_url, client_secret=client_secret
            )
        what = "its refresh token is missing" if client_id and token_url else "no client is known"
        raise AuthError(
            f"the login {profile.id} ran out and cannot be renewed: {what}",
            fix=f"homarus models auth login {profile.provider}, or set "
            f"auth.clients.{profile.provider} (clientId, tokenUrl)",
        )


def _put_tokens(raw: Raw, stored: Profile, tokens: "oauth.OAuthTokens") -> None:
    """Write refreshed tokens, unless the login was replaced or removed in the meantime."""
    present = parse(raw).profiles.get(stored.id)
    if present and present.refresh == stored.refresh:
        renewed = {"access": tokens.access, "refresh": tokens.refresh, "expires": tokens.expires_ms}
        put_profile(raw, stored.id, renewed)
