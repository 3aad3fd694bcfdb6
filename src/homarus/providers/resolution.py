"""Resolve a model's name to a provider.

This module decides which wire format a provider uses and where its key comes from, and raises the
errors for what is missing.
"""

import importlib.util
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from homarus.config.model_refs import (
    ModelRef,
    aliases,
    normalize_provider_id,
    resolve_model_ref,
)
from homarus.config.paths import Paths, expand
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.text import closest_names
from homarus.providers.base import Provider
from homarus.providers.catalog import (
    DEMO,
    LOCAL,
    MODELS,
    ModelInfo,
    known_models,
    provider_entry,
    vendors,
)
from homarus.providers.compat import is_openais_own
from homarus.providers.registry import api_names, has_api, load_adapter

if TYPE_CHECKING:
    from homarus.config.schema import Config

# The provider of a bare model name that is in no table, as in OpenClaw.
DEFAULT_PROVIDER = "anthropic"
# The demo model reads slowly: a longer history would take too long.
DEMO_PROMPT_TOKENS = 1500


def resolve_model(
    config: "Config", text: str, default_provider: str = DEFAULT_PROVIDER
) -> ModelRef:
    """Resolve what a user wrote: an alias, `provider/model`, or a well-known model's bare name."""
    bare = text.strip().lower()
    provider = next((vendor for vendor, id_ in MODELS if id_ == bare), default_provider)
    ref = resolve_model_ref(text, config, provider)
    if ref is None:
        raise UserError(f"{text!r} is not a model", fix="write provider/model: homarus models list")
    return ref


def resolve_typed_model(config: "Config", text: str, discovered: Iterable[str] = ()) -> ModelRef:
    """Resolve the name that a person typed: an alias, `provider/model`, or a bare name.

    A bare name is a model of the only configured provider that lists it, else a well-known model,
    else one of the default provider, `discovered` among them. Raises UnknownNameError for others.
    """
    name = text.strip()
    if not name or "/" in name or name.lower() in aliases(config):
        return resolve_model(config, text)
    listed = [
        ModelRef(normalize_provider_id(provider), model.id)
        for provider, entry in config.models.providers.items()
        for model in entry.models
    ]
    own = [ref for ref in dict.fromkeys(listed) if ref.model == name]
    if len(own) == 1:
        return own[0]
    ref = resolve_model(config, text)
    if (ref.provider, ref.model.lower()) in MODELS or ref.model in discovered:
        return ref
    if own:
        raise UserError(
            f"{len(own)} providers list {name}", fix=f"write {' or '.join(map(str, own))}"
        )
    names = {model: model for _, model in MODELS} | {alias: alias for alias in aliases(config)}
    names |= {ref.model: str(ref) for ref in listed}
    near = tuple(names[found] for found in closest_names(name, names))
    fix = "" if near else "write provider/model: homarus models list"
    raise UnknownNameError("model", name, near, fix=fix)


def provider_names(config: "Config") -> tuple[str, ...]:
    """Return the ids of all usable providers."""
    own = (normalize_provider_id(name) for name in config.models.providers)
    return tuple(dict.fromkeys((*own, *vendors(config), LOCAL)))


def check_provider(config: "Config", provider: str) -> None:
    """Raise UnknownNameError, with the nearest names, for a provider that cannot be called."""
    names = provider_names(config)
    if provider not in names:
        near = closest_names(provider, names)
        fix = "" if near else f"describe it in models.providers.{provider}, with its baseUrl"
        raise UnknownNameError("provider", provider, near, fix=fix)


def key_of(config: "Config", env: Mapping[str, str], provider: str) -> tuple[str, str]:
    """Return where a provider's key was found, and the key: the config, else the environment."""
    entry = provider_entry(config, provider)
    if entry and entry.api_key and entry.api_key.strip():
        return f"models.providers.{provider}.apiKey", entry.api_key.strip()
    if vendor := vendors(config).get(provider):
        return vendor.key_in(env)
    name = "".join(ch if ch.isalnum() else "_" for ch in provider.upper()) + "_API_KEY"
    key = env.get(name, "").strip()
    return (name, key) if key else ("", "")


def needs_key(config: "Config", provider: str) -> bool:
    """Return whether a provider cannot be used without a key; own servers can."""
    vendor, entry = vendors(config).get(provider), provider_entry(config, provider)
    if vendor is None or vendor.is_cloud:
        return False  # a cloud's library finds credentials
    return bool(vendor.key_names and not (entry and entry.base_url))


def lacks_account(config: "Config", env: Mapping[str, str], provider: str) -> bool:
    """Return whether nothing indicates an account at a cloud; its library may still find one."""
    vendor = vendors(config).get(provider)
    if vendor is None or not vendor.is_cloud or provider_entry(config, provider):
        return False
    return not any(env.get(name, "").strip() for name in vendor.account_names)


def is_unlisted(config: "Config", ref: ModelRef) -> bool:
    """Return whether the config lists models of a user's own server, and not this one."""
    entry = provider_entry(config, ref.provider)
    if entry is None or not entry.models or ref.provider in {LOCAL, *vendors(config)}:
        return False
    return all(ref.model != configured.id for configured in entry.models)


def check_reachable(config: "Config", ref: ModelRef, *, must_be_listed: bool = True) -> None:
    """Raise an error for a model that cannot be reached, with or without a key.

    The model list of a user's own server is exclusive, unless `must_be_listed` is False.
    """
    if ref.provider == LOCAL:
        if ref.model != DEMO and not ref.model.startswith(("/", "~/")):
            fix = f"{LOCAL}/{DEMO}, or {LOCAL}/ and the whole path of a .gguf file"
            raise UnknownNameError("local model", ref.model, fix=fix)
        return
    check_provider(config, ref.provider)
    entry = provider_entry(config, ref.provider)
    if entry is None:
        return
    own = {configured.id: configured.api for configured in entry.models}
    if must_be_listed and is_unlisted(config, ref):
        near = closest_names(ref.model, own)
        fix = "" if near else f"add it to models.providers.{ref.provider}.models"
        raise UnknownNameError("model", str(ref), near, fix=fix)
    api = own.get(ref.model) or entry.api
    if api and not has_api(api):
        raise UserError(
            f"the wire format {api} of {ref.provider} is not built yet",
            fix=f"use a provider that speaks {' or '.join(api_names())}",
        )


def api_of(config: "Config", model: ModelInfo) -> str:
    """Return the wire format of a model: from the config, else its vendor's."""
    entry, vendor = provider_entry(config, model.provider), vendors(config).get(model.provider)
    own = next((m.api for m in entry.models if m.id == model.id), None) if entry else None
    told = own or (entry.api if entry else None)
    if told or vendor is None:
        return told or "openai-completions"
    if vendor.api == "openai-responses" and entry and entry.base_url:
        # Services that replace OpenAI implement chat; Responses only when the config says so.
        return vendor.api if is_openais_own(entry.base_url) else "openai-completions"
    if vendor.api == "google-generative-ai" and entry and entry.base_url:
        # Google also serves the chat completions API, under this path.
        address = entry.base_url.partition("?")[0].rstrip("/")
        return "openai-completions" if address.endswith("/openai") else vendor.api
    return vendor.api


def open_remote(
    config: "Config", model: ModelInfo, key: str, env: Mapping[str, str] | None = None
) -> Provider:
    """Return the provider of a remote model, called with this key.

    `env` is where a cloud's account is looked up first.
    """
    from homarus.providers.endpoint import ProviderConnection

    entry, vendor = provider_entry(config, model.provider), vendors(config).get(model.provider)
    base_url = (entry and entry.base_url) or (vendor.base_url if vendor else "")
    adapter = load_adapter(api_of(config, model))
    if not base_url and getattr(adapter, "NEEDS_ADDRESS", True):
        where = f"models.providers.{model.provider}.baseUrl"
        raise UserError(f"the address of {model.provider} is not known", fix=f"set {where}")
    if entry and entry.api == "ollama" and not base_url.rstrip("/").endswith("/v1"):
        base_url = f"{base_url.rstrip('/')}/v1"  # Ollama serves its own API next to OpenAI's
    settings = ProviderConnection(
        model.provider,
        base_url,
        "" if entry and entry.auth == "aws-sdk" else key,
        headers=dict(entry.headers) if entry else {},
        auth_header=entry.auth_header if entry else None,
        model_id=model.id,
        env=env or {},
    )
    return adapter.create(settings, models=[*known_models(config, model.provider), model])


def open_local(model: ModelInfo, paths: Paths) -> Provider:
    """Return the provider of a model inside this process."""
    from homarus.core.installation import extra_command
    from homarus.providers import local, weights

    if model.id != DEMO:
        path = expand(model.id, paths.home)
        return local.create(local.LocalModelSettings(path, model.window, model.max_tokens))
    found = weights.find_weights(paths.models_cache)
    if found is None:
        pull = "homarus models pull demo"
        if importlib.util.find_spec("xllamacpp") is None:
            pull = f"{extra_command('local')}, then {pull}"
        fix = f"homarus onboard sets up a model; or fetch the small demo model: {pull}"
        raise UserError("the demo model is not on this machine", fix=fix)
    settings = local.LocalModelSettings(
        found,
        model.window,
        model.max_tokens,
        DEMO_PROMPT_TOKENS,
        sha256=weights.DEMO.sha256,
    )
    return local.create(settings)
