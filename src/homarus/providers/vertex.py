"""Google Cloud's Vertex AI: Gemini and Claude over their own wires, by a Google Cloud account.

The account is found the way every Google tool does (Application Default Credentials), by Google's
own library: the extra `homarus[vertex]`, loaded at the first request. With an API key there is
nothing to find, and only Gemini answers.
"""

import asyncio
import importlib.util
import logging
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import AuthFailed, ProviderError, UserError
from homarus.core.message import Message
from homarus.providers.anthropic import Anthropic
from homarus.providers.base import Delta, Provider, Request
from homarus.providers.catalog import Model
from homarus.providers.failures import Subject, unreachable
from homarus.providers.google import Google
from homarus.providers.http import Settings

__all__ = ["API", "Account", "Claude", "Gemini", "Settings", "create"]

API = "google-vertex"
APIS = ("google-vertex",)
NEEDS_ADDRESS = False  # the location gives it
VERSION = "v1"
CLAUDE_VERSION = "vertex-2023-10-16"  # of the messages API, as it stands in the body there
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_S = 20.0
GLOBAL = "global"
_CONTINENTS = frozenset({"us", "eu"})
_SIGN_IN = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the"
    " file of a service account"
)


def create(
    settings: Settings,
    *,
    models: Iterable[Model] = (),
    clock: Clock | None = None,
) -> Provider:
    """A provider for models of this one's maker; nothing is loaded before its first request."""
    account = Account(settings.base_url, settings.env)
    settings = replace(settings, base_url=account.base_url)
    known = {model.id: model for model in models}
    if "claude" in settings.model_id.lower():
        check_installed()
        return Claude(replace(settings, api_key=""), known, clock or SystemClock(), account)
    if not settings.api_key.strip():
        check_installed()
    return Gemini(settings, known, clock or SystemClock(), account)


def check_installed() -> None:
    """Refuse when the library is not there; it is not loaded for that."""
    try:
        there = importlib.util.find_spec("google.auth") and importlib.util.find_spec("requests")
    except ModuleNotFoundError:  # not even the package that it would be in
        there = None
    if there is None:
        raise UserError(
            "Vertex AI needs the package google-auth, which is not installed",
            fix="pip install 'homarus[vertex]'",
        )


class Account:
    """A Google Cloud account: where its project is served, and proof that it is ours.

    `base_url` may name the project and its location; else the environment does, and at last the
    credentials. `env` completes the process's environment, for what is set in files of ours.
    """

    def __init__(self, base_url: str, env: Mapping[str, str]) -> None:
        base_url, _, _ = base_url.rstrip("/").partition("/publishers")
        self._location = env.get("GOOGLE_CLOUD_LOCATION", "").strip() or GLOBAL
        self._is_placed = "/projects/" in base_url
        self._project = (env.get("GOOGLE_CLOUD_PROJECT") or env.get("GCLOUD_PROJECT") or "").strip()
        self._file = env.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
        self._payer = env.get("GOOGLE_CLOUD_QUOTA_PROJECT", "").strip() or None
        self._lock = asyncio.Lock()  # one thread, however many ask
        self._credentials: Any = None
        self.base_url = base_url or f"https://{_host(self._location)}/{VERSION}"

    async def signed_in(self, subject: Subject) -> Mapping[str, str]:
        """The headers that prove it; in a thread, for it may ask Google for a new token."""
        async with self._lock:
            return await asyncio.to_thread(self._sign_in, subject)

    def path(self, publisher: str, subject: Subject, *, keyed: bool = False) -> str:
        """Where a maker's models are; a key knows its own project."""
        place = ""
        if self._project and not self._is_placed:
            project, location = quote(self._project, safe=":"), quote(self._location, safe="")
            place = f"/projects/{project}/locations/{location}"
        elif not self._is_placed and not keyed:
            raise AuthFailed(
                subject.tell("the credentials do not name a Google Cloud project"),
                fix="set GOOGLE_CLOUD_PROJECT",
            )
        return f"{place}/publishers/{publisher}"

    def _sign_in(self, subject: Subject) -> Mapping[str, str]:
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
        with warnings.catch_warnings():  # of files from strangers; these are the user's own
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, project = find(scopes=[SCOPE], quota_project_id=self._payer)
        self._credentials = credentials, partial(Ask(), timeout=TOKEN_S)
        self._project = self._project or project or ""


class Gemini(Google):
    """Gemini, at Vertex AI."""

    api = API

    def __init__(
        self, settings: Settings, models: Mapping[str, Model], clock: Clock, account: Account
    ) -> None:
        super().__init__(settings, models, clock)
        self._account, self._keyed = account, bool(settings.api_key.strip())

    async def _place(
        self, method: str, model: Model, subject: Subject
    ) -> tuple[str, Mapping[str, str]]:
        proof = {} if self._keyed else await self._account.signed_in(subject)
        place = self._account.path("google", subject, keyed=self._keyed)
        return f"{place}{method}", {**proof, **model.headers}


class Claude(Anthropic):
    """Claude, at Vertex AI: its model is in the path, and its version in the body."""

    def __init__(
        self, settings: Settings, models: Mapping[str, Model], clock: Clock, account: Account
    ) -> None:
        super().__init__(settings, models, clock)
        self._account = account

    def stream(self, request: Request) -> AsyncIterator[Delta | Message]:
        params = {**request.params, "model": None, "anthropic_version": CLAUDE_VERSION}
        return super().stream(replace(request, params=params))

    async def _place(
        self, model: Model, betas: Sequence[str], subject: Subject
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


def _failure(exc: Exception, subject: Subject) -> ProviderError:
    """The error for an account that could not be used."""
    from google.auth.exceptions import GoogleAuthError, TransportError

    words = str(exc.args[0]) if exc.args else type(exc).__name__
    if isinstance(exc, TransportError) or (isinstance(exc, GoogleAuthError) and exc.retryable):
        return unreachable(subject, f"Google does not answer for the credentials: {words}")
    return AuthFailed(subject.tell(f"no Google Cloud credentials: {words}"), fix=_SIGN_IN)
