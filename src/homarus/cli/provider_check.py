"""The model checks of `homarus doctor`: configured names, and with `--probe` one call to each.

Without a probe nothing is sent, and no finding says that a key works. A probe calls each model that
agents use, and each credential with a model of its provider, all at once.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.config.heartbeat_settings import resolve_heartbeat
from homarus.config.model_refs import normalize_provider_id
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import escape_invisible, one_line
from homarus.providers.catalog import LOCAL, vendors
from homarus.providers.credentials import CredentialCandidate, CredentialEntry
from homarus.providers.default_model import DefaultModel
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.providers.probe import ProbeResult, kind_of, probe_model
from homarus.providers.resolution import check_reachable, resolve_model

# About what, its state, a text and a fix, as `doctor` shows them.
Finding: TypeAlias = tuple[str, Literal["ok", "info", "note", "bad"], str, str]
PROBE_S = 30.0
MAX_CHARS = 60
NOT_ASKED = "it was not asked: homarus doctor --probe does"


@dataclass(frozen=True, slots=True)
class _ProbeTarget:
    """One model to call with one credential; `entry` says where the credential is kept."""

    ref: str
    candidate: CredentialCandidate | None = None
    entry: CredentialEntry | None = None
    is_used: bool = False  # by an agent

    @property
    def about(self) -> str:
        if self.is_used or self.candidate is None:
            return "model"
        return f"credential {one_line(self.candidate.profile_id, 80)}"


def check_models(
    paths: Paths, config: Config, env: Mapping[str, str], *, probe: bool
) -> list[Finding]:
    """Check the models that agents use; `probe` calls them, and those of every credential."""
    return asyncio.run(_check(paths, config, env, probe=probe))


async def _check(
    paths: Paths, config: Config, env: Mapping[str, str], *, probe: bool
) -> list[Finding]:
    models = ModelRouter(config, env, paths, SystemClock())
    try:
        choice = await models.default_model()
        wrong = [*find_wrong_names(config, paths), *_inherited(models, config)]
        if not probe:
            default = await _default(models, config, choice)
            is_told = any(default[2] in text for _, _, text, _ in wrong)
            return wrong if is_told else [default, *wrong]
        targets = _targets(models, config, _used_refs(config, paths, choice.ref))
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(_probe(config, env, paths, target)) for target in targets]
        return [*wrong, *_unusable(models, config), *(call.result() for call in calls)]
    finally:
        await models.close()


async def _default(models: ModelRouter, config: Config, choice: DefaultModel) -> Finding:
    """Return whether the model that answers has what it needs, as far as is known here."""
    try:
        await models.connect(ModelSelection(default_agent_id(config), choice.ref))
    except HomarusError as exc:
        return "model", "bad", exc.message, exc.fix
    return "model", "info", f"{choice.ref}: {choice.why}; {NOT_ASKED}", ""


def find_wrong_names(config: Config, paths: Paths) -> Iterator[Finding]:
    """Yield the models of the configuration that no provider can have."""
    named = dict.fromkeys(config.agents.defaults.models, "agents.defaults.models")
    defaults = config.agents.defaults.model
    for agent in agent_ids(config):
        settings = resolve_agent_settings(config, paths, agent)
        for ref in filter(None, (settings.model, *settings.fallbacks)):
            is_default = ref in {defaults.primary, *defaults.fallbacks}
            named[ref] = "agents.defaults.model" if is_default else f"the model of agent {agent}"
        heartbeat = resolve_heartbeat(config, agent)
        if heartbeat.is_enabled and heartbeat.model:
            named.setdefault(heartbeat.model, f"heartbeat.model of agent {agent}")
    for ref, place in named.items():
        try:
            check_reachable(config, resolve_model(config, ref))
        except HomarusError as exc:
            yield "model", "bad", f"{place} names {ref}: {exc.message}", exc.fix


def _inherited(models: ModelRouter, config: Config) -> Iterator[Finding]:
    """Yield which credentials are used from OpenClaw's databases, or why none can be read."""
    places: dict[str, list[str]] = {}
    errors: dict[str, str] = {}
    for credentials in map(models.credentials, agent_ids(config)):
        for entry in credentials.entries():
            if entry.is_inherited:
                places.setdefault(entry.place, []).append(one_line(entry.profile.id, 80))
        errors |= {error.message: error.fix for error in credentials.base_errors}
    for message, fix in errors.items():
        yield "credentials", "bad", f"those of OpenClaw cannot be read: {message}", fix
    for place, ids in places.items():
        names = ", ".join(dict.fromkeys(ids))
        yield "credentials", "info", f"read from OpenClaw's {place}: {names}", ""


def _used_refs(config: Config, paths: Paths, default: str) -> list[str]:
    """Return the models of all agents with their fallbacks, each once."""
    refs = [default]
    for agent in agent_ids(config):
        settings = resolve_agent_settings(config, paths, agent)
        refs += [settings.model or default, *settings.fallbacks]
    found = list[str]()
    for ref in filter(None, refs):
        try:
            model = resolve_model(config, ref)
            check_reachable(config, model)
        except HomarusError:
            continue  # reported by its name
        found.append(str(model))
    return list(dict.fromkeys(found))


def _targets(models: ModelRouter, config: Config, used: list[str]) -> Iterator[_ProbeTarget]:
    """Yield each used model, and each further credential with a model of its provider."""
    entries = _entries(models, config)
    asked = set[str]()
    for ref in used:
        provider = ref.partition("/")[0]
        pairs = [pair for pair in entries if pair[0].provider == provider and provider != LOCAL]
        candidate, entry = pairs[0] if pairs else (None, None)
        asked |= {candidate.profile_id} if candidate else set()
        yield _ProbeTarget(ref, candidate, entry, is_used=True)
    for candidate, entry in entries:
        if candidate.profile_id not in asked:
            ref = _model_of(models, config, candidate.provider, used)
            yield _ProbeTarget(ref, candidate, entry)
    known = {target.partition("/")[0] for target in used} | {one.provider for one, _ in entries}
    for provider in map(normalize_provider_id, config.models.providers):
        if provider not in known and (ref := _model_of(models, config, provider, used)):
            yield _ProbeTarget(ref)


def _entries(
    models: ModelRouter, config: Config
) -> list[tuple[CredentialCandidate, CredentialEntry]]:
    """Return the usable credentials of all agents, in the order in which they are tried."""
    found: dict[tuple[str, str], tuple[CredentialCandidate, CredentialEntry]] = {}
    for agent in agent_ids(config):
        credentials = models.credentials(agent)
        entries = {entry.profile.id: entry for entry in credentials.entries()}
        for provider in dict.fromkeys(entry.profile.provider for entry in entries.values()):
            for candidate in credentials.candidates(provider):
                entry = entries[candidate.profile_id]
                found.setdefault((candidate.profile_id, entry.place), (candidate, entry))
    return list(found.values())


def _unusable(models: ModelRouter, config: Config) -> Iterator[Finding]:
    agents = (models.credentials(agent) for agent in agent_ids(config))
    entries = (entry for credentials in agents for entry in credentials.entries() if entry.problem)
    for entry in {(entry.profile.id, entry.place): entry for entry in entries}.values():
        about = f"credential {one_line(entry.profile.id, 80)}"
        yield about, "bad", f"it cannot be used: {entry.problem}", _fix(entry)


def _model_of(models: ModelRouter, config: Config, provider: str, used: list[str]) -> str:
    """Return the model to ask a provider for; an empty string when none is known."""
    for ref in used:
        if ref.partition("/")[0] == provider:
            return ref
    vendor = vendors(config).get(provider)
    listed = [model.id for model in models.listed(provider)]
    if vendor and vendor.default and (not listed or vendor.default in listed):
        return f"{provider}/{vendor.default}"
    return f"{provider}/{listed[0]}" if listed else ""


async def _probe(
    config: Config, env: Mapping[str, str], paths: Paths, target: _ProbeTarget
) -> Finding:
    """Call a model once, and return what came of it."""
    if not target.ref:
        assert target.candidate is not None  # noqa: S101 - only a credential may lack a model
        provider = target.candidate.provider
        text = f"{provider} was not asked, because no model of it is known"
        return target.about, "note", text, f"homarus models refresh {provider} asks for them"
    try:
        secret = await target.candidate.secret() if target.candidate else ""
    except HomarusError as exc:
        result = ProbeResult(target.ref, error=kind_of(exc), message=exc.message, fix=exc.fix)
    else:
        result = await probe_model(
            config, target.ref, secret, env=env, paths=paths, timeout_s=PROBE_S
        )
    return _finding(target, result)


def _finding(target: _ProbeTarget, result: ProbeResult) -> Finding:
    used_with = f" with {target.candidate.profile_id}" if target.candidate else ""
    if result.ok:
        answer = escape_invisible(one_line(result.text, MAX_CHARS)) or "(no text)"
        text = f"{result.model} answers{used_with}, in {result.latency_ms / 1000:.1f} s: {answer}"
        return target.about, "ok", text, ""
    text = f"{result.message}{f' ({used_with.strip()})' if used_with else ''}"
    if result.error == "rate_limit":
        return target.about, "note", f"{text}; it can be reached, and allows no more for now", ""
    if result.error == "unknown_model" and not target.is_used:
        return target.about, "note", f"{text}; no agent uses this model", ""
    fix = _fix(target.entry) if result.error == "auth" and target.entry else result.fix
    return target.about, "bad", text, fix


def _fix(entry: CredentialEntry) -> str:
    """Return how to replace a credential that is refused, by the place where it is kept."""
    id_, provider = one_line(entry.profile.id, 80), entry.profile.provider
    if entry.file is None:
        return f"set {entry.place} to a key that is valid"
    if entry.profile.kind == "oauth":
        again = f"homarus models auth login {provider} --profile-id {id_}"
    elif entry.profile.kind == "token":
        again = f"homarus models auth paste-token {provider} --profile-id {id_}"
    else:
        again = f"homarus models auth add {provider} --profile-id {id_}"
    return f"{again} replaces it; homarus models auth remove {id_} removes it"
