"""The models this program can ask: chosen, connected, with what follows when one fails.

`road` turns a wish for a model into a Provider: the wished model, then the agent's fallbacks,
then the configured primary, each with every credential that can be used now. Connections are
made when they are first used and kept until `close`.
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
    """A model for an agent's run. `ref` None: whatever is configured or can be found.

    `profile` is a credential the session keeps to; with `locked` no other is tried.
    """

    agent: str
    ref: str | None = None
    fallbacks: tuple[str, ...] = ()
    profile: str = ""
    locked: bool = False


class Models:
    """Connections to models, shared by every run."""

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
        """What this machine offers when nothing names a model."""
        if self._choice is None:
            entries = self.credentials(DEFAULT_AGENT).entries()
            usable = [e for e in entries if e.file is not None and not e.problem]
            held = {entry.profile.provider: entry.profile.id for entry in reversed(usable)}
            self._choice = await choose(self._config, self._env, held=held)
        return self._choice

    async def road(self, wish: Wish) -> tuple[Provider, Model]:
        """The way to an answer, and the model it begins with."""
        # What was chosen because nobody named a model is not held against the list of allowed ones.
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
        """Load what speaks to the wished model."""
        _, model = await self.road(wish)
        if model.provider != LOCAL:
            open_remote(self._config, model, "", self._env)
            await asyncio.sleep(0)  # nobody has to wait for more than one of these
            importlib.import_module("homarus.net.exchange")

    def check(self, ref: str) -> Model:
        """The model a person names; an unknown or forbidden one is an error."""
        return self._model(resolve(self._config, ref))

    def about(self, ref: "ModelRef") -> Model:
        """All that is known of a model, also from its service; whether it can be used or not."""
        return self.learned.complete(lookup(self._config, ref))

    def credentials(self, agent: str) -> Credentials:
        """The credentials of an agent."""
        if agent not in self._credentials:
            self._credentials[agent] = open_credentials(
                self._config, self._env, self._paths, agent, self._clock
            )
        return self._credentials[agent]

    async def refresh(self, provider: str) -> int:
        """Ask a service for its models and keep the list; how many there are."""
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
        """Hang up, and write what was learnt about the credentials."""
        for provider in self._open.values():
            await provider.close()
        for credentials in self._credentials.values():
            await credentials.close()

    def _models(self, ref: str, fallbacks: Sequence[str], *, named: bool) -> list[Model]:
        """Wished, fallbacks, configured primary; each once."""
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
        """`agents.defaults.models`, when it lists any, is the list of what may be used."""
        defaults = self._config.agents.defaults
        named = [*defaults.models, *filter(None, [defaults.model.primary])]
        return not defaults.models or ref in [resolve(self._config, name) for name in named]

    def _ways(self, models: Sequence[Model], wish: Wish) -> Iterator[Way]:
        """Every model with every credential; one that rests only when there is nothing else."""
        resting: list[Way] = []
        found = False
        for model in models:
            try:
                ways = list(self._ways_of(model, wish))
            except UserError:
                if model is models[0]:
                    raise
                continue  # a fallback that cannot be used is none
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
            self._connect(model, "")  # nothing is loaded; missing weights are told now
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
            self._connect(model, "")  # nothing is sent; a library that is missing is told now
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
