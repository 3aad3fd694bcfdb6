"""An agent's credentials: which ones a provider has, their order, and their results.

Usage::

    credentials = open_credentials(config, env, paths, "main", SystemClock())
    for candidate in credentials.candidates("openai", model="gpt-5.2"):
        try:
            answer = await call(await candidate.secret())
        except ProviderError as error:
            credentials.record_result(candidate, error)  # a cooldown if the credential failed
        else:
            credentials.record_result(candidate)  # a success
            break
    await credentials.close()

- `candidates` returns what can be used now, best first; those in cooldown come last, with
  `cooldown_until_ms` set, for use only when there is no other. `locked` is a profile that the
  user pinned for the session: it is the only one, in cooldown or not. `preferred` goes first.
- `secret` reads the key, runs the command that prints it, or refreshes an expired login, once
  for concurrent callers. It raises a ProviderError, which `record_result` accepts too.
- `record_result` returns at once. Important results are written behind, within moments; a time
  of last use is written at most once a minute, and by `flush` and `close`. Results of two
  processes add up.

Profiles come from the agent's own `auth-profiles.json` and, where that has none of the name, from
the main agent's; results are written to the file a profile came from. After them come the keys of
the config (`config:openai`) and of the environment (`env:OPENAI_API_KEY`), whose cooldowns are
kept in this process only. In a state directory of OpenClaw 2026.9 the profiles in its databases
are below those of each file: see `profile_file`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.model_refs import normalize_provider_id
from homarus.config.paths import Paths, expand, is_sqlite_home, openclaw_files_dir
from homarus.config.redaction import add_known_secret
from homarus.core.clock import Clock
from homarus.core.errors import (
    AuthError,
    ProviderError,
    RateLimitError,
    StoreError,
    UnknownNameError,
)
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id
from homarus.core.text import closest_names
from homarus.providers.catalog import provider_entry, vendors
from homarus.providers.credential_usage import CredentialUsageStore
from homarus.providers.profile_file import FILE, ProfileFile
from homarus.providers.profiles import Profile, Profiles
from homarus.providers.rotation import (
    HOUR_MS,
    UNUSED,
    CooldownLimits,
    CredentialKind,
    CredentialRank,
    CredentialResult,
    CredentialUsage,
    FailureReason,
    Slot,
    cooldown_until_ms,
    order_credentials,
    reason_of,
)
from homarus.providers.secret import (
    SecretRef,
    fetch_secret,
    parse_secret,
    secret_from_config,
    secret_from_profile,
)
from homarus.providers.token_refresh import TokenRefresher

if TYPE_CHECKING:
    from homarus.config.schema import Config

COMMAND_KEEP_S = 300.0  # how long a command's output is cached


@dataclass(slots=True)
class CredentialCandidate:
    """One credential that may be used now; one in cooldown has `cooldown_until_ms` set."""

    profile_id: str
    provider: str
    kind: CredentialKind
    model: str = ""
    cooldown_until_ms: int = 0
    begun_ms: int = 0  # when its secret was last requested: see `rotation`
    given: str = field(default="", repr=False)  # its secret at that time
    is_stored: bool = True  # in a file, and not in the config or the environment
    _fetch: "Callable[[CredentialCandidate], Awaitable[str]] | None" = field(
        default=None, repr=False
    )

    async def secret(self) -> str:
        """Return the key or token to send. Raises ProviderError when it is unavailable."""
        if self._fetch is None:
            raise AuthError(f"the auth profile {self.profile_id} is nobody's")
        self.given = await self._fetch(self)
        add_known_secret(self.given)  # tool output and logs must not show it
        return self.given


@dataclass(frozen=True, slots=True)
class CredentialEntry:
    """One credential's state, for use and for display. `problem` is why it cannot be used.

    An inherited one is in a database of OpenClaw, `place`, and not in our `file`.
    """

    profile: Profile
    source: SecretRef
    place: str
    usage: CredentialUsage = UNUSED
    of_models: Mapping[str, CredentialUsage] = field(default_factory=dict)
    is_last_good: bool = False
    problem: str = ""
    is_inherited: bool = False
    file: ProfileFile | None = field(default=None, repr=False)


def open_credentials(
    config: "Config", env: Mapping[str, str], paths: Paths, agent: str, clock: Clock
) -> "Credentials":
    """Return the credentials of one agent; nothing is read before the first use."""
    agent = normalize_agent_id(agent)
    files = [profile_file(config, env, paths, agent)]
    if agent != DEFAULT_AGENT:
        files.append(profile_file(config, env, paths, DEFAULT_AGENT))
    return Credentials(config, env, files, clock, paths.home)


def profile_file(config: "Config", env: Mapping[str, str], paths: Paths, agent: str) -> ProfileFile:
    """Return an agent's `auth-profiles.json`; in a home of OpenClaw 2026.9 over its databases.

    The main agent's also replaces the legacy shared file.
    """
    if agent in agent_ids(config):
        folder = resolve_agent_settings(config, paths, agent).agent_dir
    else:
        folder = paths.agent_dir(agent)
    base = None
    if is_sqlite_home(paths.state):
        from homarus.config.openclaw_credentials import OpenClawProfiles  # it imports SQLite

        base = OpenClawProfiles(paths.state, agent)
        if not (folder / FILE).exists():
            folder = openclaw_files_dir(paths.state) / "agents" / agent / "agent"
    legacy = [folder / "auth.json"]
    if agent == DEFAULT_AGENT:
        named = env.get("OPENCLAW_OAUTH_DIR", "").strip()
        shared = expand(named, paths.home) if named else paths.state / "credentials"
        legacy.append(shared / "oauth.json")
    return ProfileFile(folder / FILE, legacy, base)


class Credentials:
    """The credentials of one agent; see the module's docstring."""

    def __init__(
        self,
        config: "Config",
        env: Mapping[str, str],
        files: Sequence[ProfileFile],
        clock: Clock,
        home: Path,
    ) -> None:
        self._config, self._env, self._files = config, env, tuple(files)
        self._clock, self._home = clock, home
        self._ledger = CredentialUsageStore(cache(self._limits))
        self._logins = TokenRefresher(config.auth.clients, clock)
        self._turns: dict[str, asyncio.Lock] = {}
        self._printed: dict[str, tuple[str, float]] = {}

    # Available credentials

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(text for file in self._files for text in file.read().warnings)

    @property
    def base_errors(self) -> tuple[StoreError, ...]:
        """The reasons why profiles in OpenClaw's databases are not used."""
        for file in self._files:
            file.read()
        return tuple(file.base_error for file in self._files if file.base_error)

    def entries(self, provider: str = "") -> list[CredentialEntry]:
        """Return every credential, or those of one provider, usable or not."""
        return self._entries(normalize_provider_id(provider), self._read_files())

    def _read_files(self) -> list[Profiles]:
        return [self._ledger.read(file) for file in self._files]

    def _entries(self, provider: str, contents: Sequence[Profiles]) -> list[CredentialEntry]:
        """Return the entries, given the contents of all files."""
        found: dict[str, CredentialEntry] = {}
        last_good: dict[str, str] = {}
        for file, content in zip(self._files, contents, strict=True):
            last_good = {**content.last_good, **last_good}
            for profile in content.profiles.values():
                if profile.id not in found and provider in {"", profile.provider}:
                    found[profile.id] = self._entry(profile, file, content.usage)
        for id_ in last_good.values():
            if entry := found.get(id_):
                found[id_] = replace(entry, is_last_good=True)
        for name in [provider] if provider else self._providers():
            held = {
                self._read_cheaply(e.source) for e in found.values() if e.profile.provider == name
            }
            for entry in self._implicit(name, held):
                found.setdefault(entry.profile.id, entry)
        return list(found.values())

    def candidates(
        self, provider: str, *, model: str = "", locked: str = "", preferred: str = ""
    ) -> tuple[CredentialCandidate, ...]:
        """Return the credentials to try for a provider, in order; see the module's docstring."""
        provider, contents = normalize_provider_id(provider), self._read_files()
        entries = {entry.profile.id: entry for entry in self._entries(provider, contents)}
        if locked and self._binds(locked, entries):
            return (self._candidate(entries[locked], model),)
        standings = [
            CredentialRank(
                id=id_,
                kind=entry.profile.kind,
                last_used_ms=entry.usage.last_used_ms,
                rests_until_ms=self.cooldown_until_ms(entry, model),
                is_last_good=entry.is_last_good,
                is_implicit=entry.file is None,
            )
            for id_, entry in entries.items()
            if not entry.problem
        ]
        ordered = order_credentials(standings, self._order(provider, contents), preferred)
        return tuple(self._candidate(entries[each.id], model) for each in ordered)

    def order(self, provider: str) -> tuple[str, ...] | None:
        """Return the configured order: the agent's own, the main agent's, or the config's."""
        return self._order(normalize_provider_id(provider), [file.read() for file in self._files])

    def _order(self, provider: str, contents: Sequence[Profiles]) -> tuple[str, ...] | None:
        orders = [content.order for content in contents]
        said = self._config.auth.order.items()
        orders.append({normalize_provider_id(name): ids for name, ids in said})
        return next((order[provider] for order in orders if provider in order), None)

    def cooldown_until_ms(self, entry: CredentialEntry, model: str = "") -> int:
        """Return when a credential may be used again, for a model or at all; 0: now."""
        now_ms = self._clock.now_ms()
        of_model = entry.of_models.get(model, UNUSED)
        return max(cooldown_until_ms(entry.usage, now_ms), cooldown_until_ms(of_model, now_ms))

    def missing_credential_error(self, provider: str) -> AuthError:
        """Return the error for no candidate: what is missing, or each credential's problem."""
        provider = normalize_provider_id(provider)
        wrong = [f"{e.profile.id}: {e.problem}" for e in self.entries(provider) if e.problem]
        told = f" ({'; '.join(wrong)})" if wrong else ""
        vendor = vendors(self._config).get(provider)
        names = f"set {' or '.join(vendor.key_names)}, or " if vendor and vendor.key_names else ""
        if unread := next(iter(self.base_errors), None):
            told = f"{told}, and those of OpenClaw cannot be read: {unread.message}"
            names = f"{unread.fix}; or {names}" if unread.fix else names
        return AuthError(
            f"there is no credential for {provider} that can be used{told}",
            fix=f"{names}homarus models auth add {provider}",
        )

    def _candidate(self, entry: CredentialEntry, model: str) -> CredentialCandidate:
        profile = entry.profile
        return CredentialCandidate(
            profile.id,
            profile.provider,
            profile.kind,
            model,
            self.cooldown_until_ms(entry, model),
            self._clock.now_ms(),
            is_stored=entry.file is not None,
            _fetch=self._secret,
        )

    def _binds(self, locked: str, entries: Mapping[str, CredentialEntry]) -> bool:
        """Return whether a pinned profile is one of these; another provider's has no effect."""
        if locked in entries:
            return True
        known = [entry.profile.id for entry in self.entries()]
        if locked in known:
            return False
        near = closest_names(locked, [*entries, *known])
        fix = "" if near else "homarus models auth status lists them"
        raise UnknownNameError("auth profile", locked, near, fix=fix)

    def _entry(
        self, profile: Profile, file: ProfileFile, usage: Mapping[Slot, CredentialUsage]
    ) -> CredentialEntry:
        profile = self._logins.current(profile)
        source, problem = _source_of(profile)
        return CredentialEntry(
            profile=profile,
            source=source,
            place=file.base_places.get(profile.id) or str(file.path),
            is_inherited=profile.id in file.base_places,
            usage=usage.get((profile.id, ""), UNUSED),
            of_models=_of_models(usage, profile.id),
            problem=problem or self._missing(source) or self._problem(profile),
            file=file,
        )

    def _problem(self, profile: Profile) -> str:
        """Return why a profile cannot be used, or an empty string."""
        said = self._config.auth.profiles.get(profile.id)
        if said and normalize_provider_id(said.provider) != profile.provider:
            return f"auth.profiles says it is for {said.provider}"
        # A pasted token may replace a login.
        if said and profile.kind not in {said.mode, "token" if said.mode == "oauth" else ""}:
            return f"auth.profiles says it is of type {said.mode}"
        if not profile.expires_ms or self._clock.now_ms() < profile.expires_ms:
            return ""
        if profile.kind == "token":
            return "it ran out; paste a new one"
        return "" if profile.kind == "api_key" or profile.refresh else "it ran out; log in again"

    def _missing(self, source: SecretRef) -> str:
        unset = source.place == "env" and not self._read_cheaply(source)
        return f"the variable {source.value} is not set" if unset else ""

    def _read_cheaply(self, source: SecretRef) -> str:
        """Return the secret of a source that can be read without cost."""
        if source.place == "env":
            return self._env.get(source.value, "").strip()
        return source.value if source.place == "plain" else ""

    def _providers(self) -> list[str]:
        named = (normalize_provider_id(name) for name in self._config.models.providers)
        return list(dict.fromkeys((*named, *vendors(self._config))))

    def _implicit(self, provider: str, held: set[str]) -> Iterator[CredentialEntry]:
        """Return the keys of the config and the environment, without duplicates of stored ones."""
        usage = self._ledger.fileless_usage
        for id_, source, place in self._sources(provider):
            said = self._read_cheaply(source)
            if source.place == "plain" and (not said or said in held):
                continue
            held.add(said)
            yield CredentialEntry(
                profile=Profile(id_, provider, "api_key"),
                source=source,
                place=place,
                usage=usage.get((id_, ""), UNUSED),
                of_models=_of_models(usage, id_),
                problem=self._missing(source),
            )

    def _sources(self, provider: str) -> Iterator[tuple[str, SecretRef, str]]:
        entry = provider_entry(self._config, provider)
        where = f"models.providers.{provider}"
        if entry and entry.api_key:
            yield f"config:{provider}", SecretRef("plain", entry.api_key.strip()), f"{where}.apiKey"
        if entry and entry.api_key_from:
            source = secret_from_config(entry.api_key_from)
            yield f"config:{provider}:from", source, f"{where}.apiKeyFrom"
        vendor = vendors(self._config).get(provider)
        for name in vendor.key_names if vendor else (_key_variable(provider),):
            yield f"env:{name}", SecretRef("plain", self._env.get(name, "").strip()), name

    # Secrets

    async def _secret(self, candidate: CredentialCandidate) -> str:
        provider, id_ = candidate.provider, candidate.profile_id
        entries = self.entries(provider) if candidate.is_stored else self._implicit(provider, set())
        entry = next((each for each in entries if each.profile.id == id_), None)
        candidate.begun_ms = self._clock.now_ms()
        if entry is None:
            raise AuthError(f"the auth profile {id_} is gone")
        if entry.problem:
            raise _unusable(entry, entry.problem)
        if entry.profile.kind == "oauth" and entry.file:
            return await self._logins.access_token(entry.file, entry.profile)
        try:
            if entry.source.place == "exec":
                return await self._print(entry)
            return await fetch_secret(entry.source, self._env, self._home)
        except AuthError as exc:
            raise _unusable(entry, exc.message, exc.fix) from exc

    async def _print(self, entry: CredentialEntry) -> str:
        """Return a command's output, from the cache while it is fresh."""
        id_ = entry.profile.id
        async with self._turns.setdefault(id_, asyncio.Lock()):
            printed, at_s = self._printed.get(id_, ("", 0.0))
            if not printed or self._clock.monotonic() - at_s >= COMMAND_KEEP_S:
                printed = await fetch_secret(entry.source, self._env, self._home)
                self._printed[id_] = printed, self._clock.monotonic()
            return printed

    # Results

    def record_result(
        self, candidate: CredentialCandidate, error: ProviderError | None = None
    ) -> None:
        """Record the result of a request; errors unrelated to the credential are ignored."""
        if error is None:
            self.record_success(candidate)
        elif reason := reason_of(error):
            after_s = error.after_s if isinstance(error, RateLimitError) else None
            self.record_failure(candidate, reason, after_s)

    def record_success(self, candidate: CredentialCandidate) -> None:
        """Record a success: it ends the cooldown and moves the credential to the front."""
        self._note(candidate, None, None)

    def record_failure(
        self, candidate: CredentialCandidate, reason: FailureReason, after_s: float | None = None
    ) -> None:
        """Record a failure and start a cooldown. `after_s` is the delay the service asked for."""
        if reason == "auth":
            self._printed.pop(candidate.profile_id, None)
            if candidate.kind == "oauth" and candidate.given:
                self._logins.invalidate(candidate.profile_id, candidate.given)
        self._note(candidate, reason, after_s)

    async def flush(self) -> None:
        await asyncio.to_thread(self._ledger.flush)

    async def close(self) -> None:
        """Write pending results; the credentials are not used again."""
        await self.flush()

    def _note(
        self, candidate: CredentialCandidate, reason: FailureReason | None, after_s: float | None
    ) -> None:
        id_ = candidate.profile_id
        now_ms = self._clock.now_ms()
        mark = CredentialResult(
            id_, candidate.provider, candidate.model, reason, candidate.begun_ms, now_ms, after_s
        )
        files = self._files if candidate.is_stored else ()
        holders = (file for file in files if id_ in file.read().profiles)
        self._ledger.record(next(holders, None), mark)

    def _limits(self, provider: str) -> CooldownLimits:
        said = self._config.auth.cooldowns
        own = said.billing_backoff_hours_by_provider.items()
        of_provider = {normalize_provider_id(name): hours for name, hours in own}
        return CooldownLimits(
            round(of_provider.get(provider, said.billing_backoff_hours) * HOUR_MS),
            round(said.billing_max_hours * HOUR_MS),
            round(said.failure_window_hours * HOUR_MS),
        )


def _unusable(entry: CredentialEntry, why: str, fix: str = "") -> AuthError:
    provider = entry.profile.provider
    return AuthError(
        f"{provider}: the credential {entry.profile.id} cannot be used: {why}",
        fix=fix or f"homarus models auth add {provider}",
    )


def _source_of(profile: Profile) -> tuple[SecretRef, str]:
    """Return the source of a profile's secret, and its problem."""
    if profile.kind == "oauth":
        return SecretRef(
            "plain", profile.secret
        ), "" if profile.secret or profile.refresh else _EMPTY
    if profile.secret:
        return parse_secret(profile.secret), ""
    if profile.kept is None:
        return SecretRef("plain"), _EMPTY
    source = secret_from_profile(profile.kept)
    return (source, "") if source else (SecretRef("plain"), _NOWHERE)


_EMPTY = "it holds no key"
_NOWHERE = "its key is kept in a place that is neither a variable nor a file"


@lru_cache(64)
def _key_variable(provider: str) -> str:
    """Return the environment variable for the key of a provider that has no vendor."""
    return "".join(ch if ch.isalnum() else "_" for ch in provider.upper()) + "_API_KEY"


def _of_models(usage: Mapping[Slot, CredentialUsage], id_: str) -> dict[str, CredentialUsage]:
    return {model: each for (of, model), each in usage.items() if of == id_ and model}
