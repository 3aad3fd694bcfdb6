"""Select models, connect them, and fall back when one fails.

`connect` turns a ModelSelection into a Provider: the selected model, then the agent's fallbacks,
then the configured primary, each with every credential that can be used now. A model that a person
requested by name is tried alone. Connections are made at first use and reused until `close`.
"""

import asyncio
import importlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from homarus.config.model_refs import ModelRef, normalize_provider_id
from homarus.config.paths import Paths
from homarus.core.clock import Clock
from homarus.core.errors import ProviderError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import DEFAULT_AGENT
from homarus.providers.base import NOT_TRIED, AttemptRetried, Provider
from homarus.providers.catalog import (
    LOCAL,
    ModelInfo,
    known_models,
    lookup_model,
    provider_entry,
    vendors,
)
from homarus.providers.concurrency_limiter import ConcurrencyLimiter
from homarus.providers.credentials import CredentialCandidate, Credentials, open_credentials
from homarus.providers.default_model import DefaultModel, choose_default_model, is_chat_model
from homarus.providers.fallback import FallbackProvider, FallbackTarget, ProviderRetryPolicy
from homarus.providers.model_discovery import DiscoveredModelCache, fetch_model_list
from homarus.providers.resolution import (
    DEFAULT_PROVIDER,
    api_of,
    check_provider,
    check_reachable,
    needs_key,
    open_local,
    open_remote,
    resolve_model,
    resolve_typed_model,
)

if TYPE_CHECKING:
    from homarus.config.schema import Config
    from homarus.providers.endpoint import ProviderConnection


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The model for an agent's run. With `ref` None the configured or default model is used.

    `profile` is the credential of the session; with `locked` no other is tried. With `exact` a
    person requested this model: no other one answers. With `is_configured` the config names it for
    a purpose of its own, as `imageModel` does: it need not be among the allowed models.
    """

    agent: str
    ref: str | None = None
    fallbacks: tuple[str, ...] = ()
    profile: str = ""
    locked: bool = False
    exact: bool = False
    is_configured: bool = False


class ModelRouter:
    """Connections to models, shared by all runs."""

    def __init__(
        self,
        config: "Config",
        env: Mapping[str, str],
        paths: Paths,
        clock: Clock,
        patience: ProviderRetryPolicy | None = None,
    ) -> None:
        self._config, self._env, self._paths, self._clock = config, env, paths, clock
        self._patience = patience
        self._choice: DefaultModel | None = None
        self._credentials: dict[str, Credentials] = {}
        self._limiters: dict[tuple[str, str, str], ConcurrencyLimiter] = {}
        self._open: dict[tuple[str, str, str], Provider] = {}
        self._known: dict[tuple[str, tuple[str, ...], bool, bool], list[ModelInfo]] = {}
        self.learned = DiscoveredModelCache(paths.models_cache / "lists")

    async def default_model(self) -> DefaultModel:
        """Return the default model of this machine when none is configured."""
        if self._choice is None:
            entries = self.credentials(DEFAULT_AGENT).entries()
            usable = [e for e in entries if e.file is not None and not e.problem]
            held = {entry.profile.provider: entry.profile.id for entry in reversed(usable)}
            self._choice = await choose_default_model(self._config, self._env, held=held)
        return self._choice

    async def connect(self, wish: ModelSelection) -> tuple[Provider, ModelInfo]:
        """Return a provider that tries every usable target in order, and the first target's model.

        Raises UserError when no credential can be used.
        """
        # A default that was not configured is not checked against the allowed models.
        ref = wish.ref or (await self.default_model()).ref
        named = wish.ref is not None and not wish.is_configured
        asked = (ref, wish.fallbacks, named, wish.exact)
        if asked not in self._known:
            self._known[asked] = self._models(ref, wish.fallbacks, named=named, exact=wish.exact)
        models = self._known[asked]
        ways = list(self._ways(models, wish))
        if not ways:
            missing = self.credentials(wish.agent).missing_credential_error(models[0].provider)
            raise UserError(missing.message, fix=missing.fix)
        first = ways[0].model
        provider = FallbackProvider(
            ways,
            self._clock,
            self._patience,
            name=first.provider,
            api=self._api(first),
            skipped=self._skipped(models, first, wish) if first is not models[0] else (),
        )
        return provider, first

    async def preload(self, wish: ModelSelection) -> None:
        """Import what the selected model needs."""
        _, model = await self.connect(wish)
        if model.provider != LOCAL:
            open_remote(self._config, model, "", self._env)
            await asyncio.sleep(0)  # each run waits for at most one of these
            importlib.import_module("homarus.net.http_client")

    def check(self, ref: str) -> ModelInfo:
        """Return the model the config names. Raises an error for an unknown or forbidden one."""
        return self._model(resolve_model(self._config, ref))

    def check_typed(self, name: str) -> ModelInfo:
        """Return the model a person names. Raises an error for an unknown or forbidden one."""
        discovered = self.learned.models(DEFAULT_PROVIDER)
        return self._model(resolve_typed_model(self._config, name, discovered))

    def describe(self, ref: ModelRef) -> ModelInfo:
        """Return what is known of a model, also from its service, usable or not."""
        return self.learned.complete(lookup_model(self._config, ref))

    def find_image_model(self, ref: str) -> str:
        """Return the model if it sees images, else one of its provider that does, else ""."""
        try:
            model = self.describe(resolve_model(self._config, ref))
        except UserError:
            return ""
        if not model.is_blind:
            return model.ref
        others = (each for each in self.listed(model.provider) if each.sees_images)
        found = (each.ref for each in others if self._allowed(ModelRef(each.provider, each.id)))
        return next(found, "")

    async def resolve_connection(
        self, agent: str, provider: str, profile: str = ""
    ) -> "ProviderConnection":
        """Return how to reach a provider that speaks OpenAI's API. Raises UserError."""
        from homarus.providers.endpoint import ProviderConnection

        provider = normalize_provider_id(provider)
        check_provider(self._config, provider)
        api = api_of(self._config, ModelInfo(provider, ""))
        if not api.startswith("openai-"):
            raise UserError(f"{provider} does not speak the API of OpenAI")
        candidates = self.credentials(agent).candidates(provider, locked=profile)
        if profile:
            candidates = tuple(each for each in candidates if each.profile_id == profile)
        if not candidates and (profile or needs_key(self._config, provider)):
            missing = self.credentials(agent).missing_credential_error(provider)
            raise UserError(missing.message, fix=missing.fix)
        entry, vendor = (
            provider_entry(self._config, provider),
            vendors(self._config).get(provider),
        )
        return ProviderConnection(
            provider,
            (entry and entry.base_url) or (vendor.base_url if vendor else ""),
            await candidates[0].secret() if candidates else "",
            headers=dict(entry.headers) if entry else {},
            auth_header=entry.auth_header if entry else None,
        )

    def credentials(self, agent: str) -> Credentials:
        if agent not in self._credentials:
            self._credentials[agent] = open_credentials(
                self._config, self._env, self._paths, agent, self._clock
            )
        return self._credentials[agent]

    def listed(self, provider: str) -> list[ModelInfo]:
        """Return a provider's models: the config's, then those its service lists, else the table's.

        A provider of the user's own whose config names models has just those.
        """
        known = known_models(self._config, provider)
        fetched = self.learned.models(provider)
        entry = provider_entry(self._config, provider)
        own = [model.id for model in entry.models] if entry else []
        if not fetched or (own and provider not in vendors(self._config)):
            return [self.learned.complete(model) for model in known]
        return [self.describe(ModelRef(provider, id_)) for id_ in dict.fromkeys([*own, *fetched])]

    async def refresh(self, provider: str) -> int:
        """Fetch and cache a service's list of chat models; return its length."""
        check_provider(self._config, provider)
        if provider == LOCAL:
            raise UserError("the models inside this process are in no list")
        candidates = self.credentials(DEFAULT_AGENT).candidates(provider)
        if not candidates and needs_key(self._config, provider):
            missing = self.credentials(DEFAULT_AGENT).missing_credential_error(provider)
            raise UserError(missing.message, fix=missing.fix)
        key = await candidates[0].secret() if candidates else ""
        told = await fetch_model_list(self._config, provider, key)
        told = [model for model in told if is_chat_model(model.id)]
        self.learned.save(provider, told)
        self._known.clear()
        return len(told)

    async def close(self) -> None:
        """Close all connections, and write pending credential results."""
        for provider in self._open.values():
            await provider.close()
        for credentials in self._credentials.values():
            await credentials.close()

    def _models(
        self, ref: str, fallbacks: Sequence[str], *, named: bool, exact: bool
    ) -> list[ModelInfo]:
        """Return the selected model, fallbacks and configured primary, each once."""
        defaults = self._config.agents.defaults.model
        wished = self._model(resolve_model(self._config, ref), named=named)
        models = {wished.ref: wished}
        if exact:
            return [wished]
        for other in (*fallbacks, defaults.primary or ""):
            found = resolve_model(self._config, other) if other else None
            if found and (other == defaults.primary or self._allowed(found)):
                check_reachable(self._config, found)
                model = self.describe(found)
                models.setdefault(model.ref, model)
        return list(models.values())

    def _model(self, ref: ModelRef, *, named: bool = True) -> ModelInfo:
        check_reachable(self._config, ref)
        if named and not self._allowed(ref):
            allowed = ", ".join(sorted(self._config.agents.defaults.models))
            raise UserError(
                f"{ref} is not among the allowed models",
                fix=f"add it to agents.defaults.models, or use one of {allowed}",
            )
        return self.describe(ref)

    def _allowed(self, ref: ModelRef) -> bool:
        """Return the allowed models: `agents.defaults.models`, when it lists any."""
        defaults = self._config.agents.defaults
        named = [*defaults.models, *filter(None, [defaults.model.primary])]
        return not defaults.models or ref in [resolve_model(self._config, name) for name in named]

    def _ways(self, models: Sequence[ModelInfo], wish: ModelSelection) -> Iterator[FallbackTarget]:
        """Yield every model with every credential; those in cooldown only without others."""
        resting: list[FallbackTarget] = []
        found = False
        for model in models:
            try:
                ways = list(self._ways_of(model, wish))
            except UserError:
                if model is models[0]:
                    raise
                continue  # an unusable fallback is skipped
            for way, rests in ways:
                if rests:
                    resting.append(way)
                else:
                    found = True
                    yield way
        if not found:
            yield from resting[:1]

    def _skipped(
        self, models: Sequence[ModelInfo], used: ModelInfo, wish: ModelSelection
    ) -> list[AttemptRetried]:
        """Return why the models before the used one are not tried."""
        credentials, skipped = self.credentials(wish.agent), list[AttemptRetried]()
        for model in models[: models.index(used)]:
            candidates = credentials.candidates(model.provider, model=model.id)
            if candidates:
                until_s = min(each.cooldown_until_ms for each in candidates) / 1000
                until = datetime.fromtimestamp(until_s, UTC).astimezone()
                text = f"{model.ref} failed a moment ago, and rests until {until:%H:%M:%S}"
            else:
                text = credentials.missing_credential_error(model.provider).message
            skipped.append(AttemptRetried(model.provider, model.id, NOT_TRIED, text, used.ref))
        return skipped

    def _ways_of(
        self, model: ModelInfo, wish: ModelSelection
    ) -> Iterator[tuple[FallbackTarget, bool]]:
        if model.provider == LOCAL:
            self._connect(model, "")  # nothing is loaded; missing weights are reported now
            yield self._way(model, None, None), False
            return
        credentials = self.credentials(wish.agent)
        locked = wish.profile if wish.locked else ""
        candidates = credentials.candidates(
            model.provider, model=model.id, locked=locked, preferred=wish.profile
        )
        for candidate in candidates:
            yield self._way(model, candidate, credentials), bool(candidate.cooldown_until_ms)
        if not candidates and not needs_key(self._config, model.provider):
            self._connect(model, "")  # nothing is sent; a missing library is reported now
            yield self._way(model, None, None), False

    def _way(
        self,
        model: ModelInfo,
        candidate: CredentialCandidate | None,
        credentials: Credentials | None,
    ) -> FallbackTarget:
        name = candidate.profile_id if candidate else ""

        async def opened() -> Provider:
            return self._connect(model, await candidate.secret() if candidate else "")

        def mark(error: ProviderError | None) -> None:
            if candidate and credentials:
                credentials.record_result(candidate, error)

        limiter = self._limiters.setdefault(
            (model.provider, model.id, name), ConcurrencyLimiter(self._clock)
        )
        return FallbackTarget(model, name, opened, mark, limiter)

    def _connect(self, model: ModelInfo, secret: str) -> Provider:
        place = (model.provider, model.id, secret)
        if place not in self._open:
            self._open[place] = (
                open_local(model, self._paths)
                if model.provider == LOCAL
                else open_remote(self._config, model, secret, self._env)
            )
        return self._open[place]

    def _api(self, model: ModelInfo) -> str:
        return LOCAL if model.provider == LOCAL else api_of(self._config, model)
