"""The provider for Google Cloud's Vertex AI: Gemini and Claude with a Google Cloud account.

Google's library finds the account like every Google tool (Application Default Credentials): the
extra `homarus[vertex]`, imported at the first request. An API key needs no account, and works for
Gemini only.
"""

import asyncio
import importlib.util
import logging
import warnings
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote

from homarus.core.clock import Clock
from homarus.core.errors import AuthError, ProviderError, UserError
from homarus.core.installation import extra_command
from homarus.core.message import Message
from homarus.providers.anthropic import AnthropicProvider
from homarus.providers.base import Delta, ModelRequest, Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.endpoint import ProviderConnection
from homarus.providers.google import GoogleProvider
from homarus.providers.provider_errors import ErrorContext, unreachable_error

__all__ = [
    "API",
    "GoogleCloudAccount",
    "ProviderConnection",
    "VertexClaudeProvider",
    "VertexGeminiProvider",
    "create",
]

API = "google-vertex"
APIS = ("google-vertex",)
NEEDS_ADDRESS = False  # the location determines it
VERSION = "v1"
CLAUDE_VERSION = "vertex-2023-10-16"  # the version of the messages API, sent in the body there
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_S = 20.0
GLOBAL = "global"
_CONTINENTS = frozenset({"us", "eu"})
_SIGN_IN = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the"
    " file of a service account"
)


def create(
    settings: ProviderConnection, *, models: Iterable[ModelInfo] = (), clock: Clock | None = None
) -> Provider:
    """Return a provider for models of this one's vendor; nothing is imported yet."""
    base_url = GoogleCloudAccount(settings.base_url, settings.env).base_url
    settings = replace(settings, base_url=base_url)
    if "claude" in settings.model_id.lower():
        check_installed()
        return VertexClaudeProvider(replace(settings, api_key=""), models=models, clock=clock)
    if not settings.api_key.strip():
        check_installed()
    return VertexGeminiProvider(settings, models=models, clock=clock)


def check_installed() -> None:
    """Raise UserError when the library is not installed, without importing it."""
    try:
        there = importlib.util.find_spec("google.auth") and importlib.util.find_spec("requests")
    except ModuleNotFoundError:  # its parent package is missing too
        there = None
    if there is None:
        raise UserError(
            "Vertex AI needs the package google-auth, which is not installed",
            fix=extra_command("vertex"),
        )


class GoogleCloudAccount:
    """A Google Cloud account: the address of its project, and its tokens.

    `base_url` may name the project and its location, else the environment does, else the
    credentials. `env` overrides the process's environment, for values from our config files.
    """

    def __init__(self, base_url: str, env: Mapping[str, str]) -> None:
        base_url, _, _ = base_url.rstrip("/").partition("/publishers")
        self._location = env.get("GOOGLE_CLOUD_LOCATION", "").strip() or GLOBAL
        self._is_placed = "/projects/" in base_url
        self._project = (env.get("GOOGLE_CLOUD_PROJECT") or env.get("GCLOUD_PROJECT") or "").strip()
        self._file = env.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
        self._payer = env.get("GOOGLE_CLOUD_QUOTA_PROJECT", "").strip() or None
        self._lock = asyncio.Lock()  # one thread for concurrent callers
        self._credentials: Any = None
        self.base_url = base_url or f"https://{_host(self._location)}/{VERSION}"

    async def signed_in(self, subject: ErrorContext) -> Mapping[str, str]:
        """Return the authorization headers, in a thread: it may fetch a new token."""
        async with self._lock:
            return await asyncio.to_thread(self._sign_in, subject)

    def path(self, publisher: str, subject: ErrorContext, *, keyed: bool = False) -> str:
        """Return the path of a vendor's models; an API key implies its project."""
        place = ""
        if self._project and not self._is_placed:
            project, location = quote(self._project, safe=":"), quote(self._location, safe="")
            place = f"/projects/{project}/locations/{location}"
        elif not self._is_placed and not keyed:
            raise AuthError(
                subject.describe("the credentials do not name a Google Cloud project"),
                fix="set GOOGLE_CLOUD_PROJECT",
            )
        return f"{place}/publishers/{publisher}"

    def _sign_in(self, subject: ErrorContext) -> Mapping[str, str]:
        from google.auth.exceptions import GoogleAuthError

        headers: dict[str, str] = {}
        try:
            if self._credentials is None:
                self._find()
            credentials, ask = self._credentials
            credentials.before_request(ask, "POST", self.base_url, headers)
        except (GoogleAuthError, ValueError, OSError) as exc:
            raise _failure(exc, subject) from exc
        return headers

    def _find(self) -> None:
        import google.auth
        from google.auth.transport.requests import Request as Ask

        logging.getLogger("google.auth").setLevel(logging.WARNING)
        find: Any = google.auth.default
        if self._file:
            find = partial(google.auth.load_credentials_from_file, self._file)
        # About untrusted credential files; these are the user's own.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, project = find(scopes=[SCOPE], quota_project_id=self._payer)
        self._credentials = credentials, partial(Ask(), timeout=TOKEN_S)
        self._project = self._project or project or ""


class _AccountProvider:
    """A provider with a Google Cloud account."""

    _settings: ProviderConnection

    @cached_property
    def _account(self) -> GoogleCloudAccount:
        return GoogleCloudAccount(self._settings.base_url, self._settings.env)


class VertexGeminiProvider(_AccountProvider, GoogleProvider):
    """Gemini at Vertex AI."""

    api = API

    async def _locate(
        self, method: str, model: ModelInfo, subject: ErrorContext
    ) -> tuple[str, Mapping[str, str]]:
        keyed = bool(self._settings.api_key.strip())
        proof = {} if keyed else await self._account.signed_in(subject)
        place = self._account.path("google", subject, keyed=keyed)
        return f"{place}{method}", {**proof, **model.headers}


class VertexClaudeProvider(_AccountProvider, AnthropicProvider):
    """Claude at Vertex AI: the model is in the path, the API version in the body."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Message, None]:
        params = {**request.params, "model": None, "anthropic_version": CLAUDE_VERSION}
        return super().stream(replace(request, params=params))

    async def _locate(
        self, model: ModelInfo, betas: Sequence[str], subject: ErrorContext
    ) -> tuple[str, Mapping[str, str]]:
        proof = await self._account.signed_in(subject)
        place = self._account.path("anthropic", subject)
        path = f"{place}/models/{quote(model.id, safe='@')}:streamRawPredict"
        return path, {**proof, **self._headers(model, betas)}


def _host(location: str) -> str:
    if location == GLOBAL:
        return "aiplatform.googleapis.com"
    if location in _CONTINENTS:
        return f"aiplatform.{location}.rep.googleapis.com"
    return f"{location}-aiplatform.googleapis.com"


def _failure(exc: Exception, subject: ErrorContext) -> ProviderError:
    from google.auth.exceptions import GoogleAuthError, TransportError

    words = str(exc.args[0]) if exc.args else type(exc).__name__
    if isinstance(exc, TransportError) or (isinstance(exc, GoogleAuthError) and exc.retryable):
        return unreachable_error(subject, f"Google does not answer for the credentials: {words}")
    return AuthError(subject.describe(f"no Google Cloud credentials: {words}"), fix=_SIGN_IN)
