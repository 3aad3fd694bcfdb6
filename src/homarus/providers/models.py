"""Select models, connect them, and fall back when one fails.

`connect` turns a ModelSelection into a Provider: the selected model, then the agent's fallbacks,
then the configured primary, each with every credential that can be used now. Connections are made
at first use and reused until `close`.
"""

import asyncio
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from homarus.config.paths import Paths
from homarus.core.clock import Clock
from homarus.core.errors import ProviderError, UnknownName, UserError
from homarus.core.keys import DEFAULT_AGENT
from homarus.core.text import nearest
from homarus.core.value import dataclass
from homarus.providers.base import Provider
from homarus.providers.catalog import LOCAL, Model, lookup
from homarus.providers.choose import Choice, choose
from homarus.providers.connect import (
    api_of,
    check,
    needs_key,
    open_local,
    open_remote,
    provider_names,
    resolve,
)
from homarus.providers.credentials import Candidate, Credentials, open_credentials
from homarus.providers.fallback import Fallback, Patience, Way
from homarus.providers.learned import Learned, ask
from homarus.providers.limiter import Limiter

if TYPE_CHECKING:
    from homarus.config.refs import ModelRef
    from homarus.config.schema import Config


@dataclass(frozen=True, slots=True)
class Wish:
    """The model for an agent's run. With `ref` None the configured or default model is used.

    `profile` is the credential of the session; with `locked` no other is tried.
    """

    agent: str
    ref: str | None = None
    fallbacks: tuple[str, ...] = ()
    profile: str = ""
    locked: bool = False


class Models:
    """Connections to models, shared by all runs."""

    def __init__(
        self,
        config: "Config",
        env: Mapping[str, str],
        paths: Paths,
        clock: Clock,
        patience: Patience | None = None,
    ) -> None:
        self._config, self._env, self._paths, self._clock = config, env, paths, clock
        self._patience = patience
        self._choice: Choice | None = None
        self._credentials: dict[str, Credentials] = {}
        self._limiters: dict[tuple[str, str], Limiter] = {}
        self._open: dict[tuple[str, str, str], Provider] = {}
        self._known: dict[tuple[str, tuple[str, ...], bool], list[Model]] = {}
        self.learned = Learned(paths.models_cache / "lists")

    async def choice(self) -> Choice:
        """Return the default model of this machine when none is configured."""
        if self._choice is None:
            entries = self.credentials(DEFAULT_AGENT).entries()
            usable = [e for e in entries if e.file is not None and not e.problem]
            held = {entry.profile.provider: entry.profile.id for entry in reversed(usable)}
            self._choice = await choose(self._config, self._env, held=held)
        return self._choice

    async def road(self, wish: Wish) -> tuple[Provider, Model]:
        """Return a provider that tries every usable target in order, and the first target's model.

        Raises UserError when no credential can be used.
        """
        # A default that was not configured is not checked against the allowed models.
        ref = wish.ref or (await self.choice()).ref
        asked = (ref, wish.fallbacks, wish.ref is not None)
        if asked not in self._known:
            self._known[asked] = self._models(ref, wish.fallbacks, named=wish.ref is not None)
        models = self._known[asked]
        ways = list(self._ways(models, wish))
        if not ways:
            missing = self.credentials(wish.agent).none_for(models[0].provider)
            raise UserError(missing.message, fix=missing.fix)
        first = ways[0].model
        name, api = first.provider, self._api(first)
        return Fallback(ways, self._clock, self._patience, name=name, api=api), first

    async def warm(self, wish: Wish) -> None:
        """Import what the selected model needs."""
        _, model = await self.road(wish)
        if model.provider != LOCAL:
            open_remote(self._config, model, "", self._env)
            await asyncio.sleep(0)  # each run waits for at most one of these
            importlib.import_module("homarus.net.exchange")

    def check(self, ref: str) -> Model:
        """Return the model a user names. Raises an error for an unknown or forbidden one."""
        return self._model(resolve(self._config, ref))

    def about(self, ref: "ModelRef") -> Model:
        """Return what is known of a model, also from its service, usable or not."""
        return self.learned.complete(lookup(self._config, ref))

    def credentials(self, agent: str) -> Credentials:
        if agent not in self._credentials:
            self._credentials[agent] = open_credentials(
                self._config, self._env, self._paths, agent, self._clock
            )
        return self._credentials[agent]

    async def refresh(self, provider: str) -> int:
        """Fetch and cache a service's model list; return its length."""
        if provider not in provider_names(self._config) or provider == LOCAL:
            raise UnknownName("provider", provider, nearest(provider, provider_names(self._config)))
        candidates = self.credentials(DEFAULT_AGENT).candidates(provider)
        if not candidates and needs_key(self._config, provider):
            missing = self.credentials(DEFAULT_AGENT).none_for(provider)
            raise UserError(missing.message, fix=missing.fix)
        key = await candidates[0].secret() if candidates else ""
        told = await ask(self._config, provider, key)
        self.learned.keep(provider, told)
        self._known.clear()
        return len(told)

    async def close(self) -> None:
        """Close all connections, and write pending credential results."""
        for provider in self._open.values():
            await provider.close()
        for credentials in self._credentials.values():
            await credentials.close()

    def _models(self, ref: str, fallbacks: Sequence[str], *, named: bool) -> list[Model]:
        """Return the selected model, fallbacks and configured primary, each once."""
        defaults = self._config.agents.defaults.model
        wished = self._model(resolve(self._config, ref), named=named)
        models = {wished.ref: wished}
        for other in (*fallbacks, defaults.primary or ""):
            found = resolve(self._config, other) if other else None
            if found and (other == defaults.primary or self._allowed(found)):
                check(self._config, found)
                model = self.about(found)
                models.setdefault(model.ref, model)
        return list(models.values())

    def _model(self, ref: "ModelRef", *, named: bool = True) -> Model:
        check(self._config, ref)
        if named and not self._allowed(ref):
            allowed = ", ".join(sorted(self._config.agents.defaults.models))
            raise UserError(
                f"{ref} is not among the allowed models",
                fix=f"add it to agents.defaults.models, or use one of {allowed}",
            )
        return self.about(ref)

    def _allowed(self, ref: "ModelRef") -> bool:
        """Return the allowed models: `agents.defaults.models`, when it lists any."""
        defaults = self._config.agents.defaults
        named = [*defaults.models, *filter(None, [defaults.model.primary])]
        return not defaults.models or ref in [resolve(self._config, name) for name in named]

    def _ways(self, models: Sequence[Model], wish: Wish) -> Iterator[Way]:
        """Yield every model with every credential; those in cooldown only without others."""
        resting: list[Way] = []
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

    def _ways_of(self, model: Model, wish: Wish) -> Iterator[tuple[Way, bool]]:
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
            yield self._way(model, candidate, credentials), bool(candidate.rests_until_ms)
        if not candidates and not needs_key(self._config, model.provider):
            self._connect(model, "")  # nothing is sent; a missing library is reported now
            yield self._way(model, None, None), False

    def _way(
        self, model: Model, candidate: Candidate | None, credentials: Credentials | None
    ) -> Way:
        name = candidate.profile_id if candidate else ""

        async def opened() -> Provider:
            return self._connect(model, await candidate.secret() if candidate else "")

        def mark(error: ProviderError | None) -> None:
            if candidate and credentials:
                credentials.mark(candidate, error)

        limiter = self._limiters.setdefault((model.provider, name), Limiter(self._clock))
        return Way(model, name, opened, mark, limiter)

    def _connect(self, model: Model, secret: str) -> Provider:
        place = (model.provider, model.id, secret)
        if place not in self._open:
            self._open[place] = (
                open_local(model, self._paths)
                if model.provider == LOCAL
                else open_remote(self._config, model, secret, self._env)
            )
        return self._open[place]

    def _api(self, model: Model) -> str:
        return LOCAL if model.provider == LOCAL else api_of(self._config, model)
