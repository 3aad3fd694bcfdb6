"""Choose the default model: configured, else by a key, a local server, or the demo model.

`choose_default_model` probes local servers only when nothing else is available, and records every
place it checked for `homarus models status`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from homarus.config.model_refs import normalize_provider_id
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.providers.catalog import DEMO, LOCAL, Vendor, vendors
from homarus.providers.registry import has_api

if TYPE_CHECKING:
    from homarus.config.schema import Config

PROBE_S = 0.3
MAX_LIST_BYTES = 1 << 20
MAX_ID_CHARS = 200
# Parts of the names of models that cannot chat.
_NOT_CHAT = ("embed", "minilm", "bge-", "rerank", "whisper")

# Returns the chat models of a server, best first; None when there is no server.
Probe: TypeAlias = Callable[[Vendor], Awaitable[tuple[str, ...] | None]]


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """The chosen model, the reason, and every place that was checked with its result."""

    ref: str
    why: str
    tried: tuple[tuple[str, str], ...]


async def choose_default_model(
    config: "Config",
    env: Mapping[str, str],
    probe: "Probe | None" = None,
    *,
    held: Mapping[str, str] | None = None,
) -> DefaultModel:
    """Choose the model for an agent without one; `held` names a stored credential per provider."""
    tried: list[tuple[str, str]] = []
    for look in (_in_defaults, _in_providers):
        if chosen := look(config, tried):
            return DefaultModel(*chosen, tuple(tried))
    if chosen := _in_profiles(config, held or {}, tried):
        return DefaultModel(*chosen, tuple(tried))
    if chosen := _in_environment(config, env, tried):
        return DefaultModel(*chosen, tuple(tried))
    if chosen := await _on_loopback(config, probe, tried):
        return DefaultModel(*chosen, tuple(tried))
    tried.append(("embedded model", "the last resort"))
    why = "no model is configured, no key is set and no local server answers"
    return DefaultModel(f"{LOCAL}/{DEMO}", why, tuple(tried))


_Tried: TypeAlias = list[tuple[str, str]]
_Chosen: TypeAlias = tuple[str, str] | None


def _in_defaults(config: "Config", tried: _Tried) -> _Chosen:
    key = "agents.defaults.model"
    primary = config.agents.defaults.model.primary
    tried.append((key, primary or "not set"))
    return (primary, f"the configuration names it ({key})") if primary else None


def _in_providers(config: "Config", tried: _Tried) -> _Chosen:
    """Return the model of a configured provider when no default model is set."""
    known = vendors(config)
    for written, entry in config.models.providers.items():
        name = normalize_provider_id(written)
        if entry.models:
            usable, model = (entry.models[0].api or entry.api), entry.models[0].id
        elif entry.api_key and name in known:
            usable, model = entry.api, known[name].default
        else:
            continue
        if model and (usable is None or has_api(usable)):
            tried.append(("models.providers", f"{name}/{model}"))
            return f"{name}/{model}", f"the configuration describes it (models.providers.{name})"
    tried.append(("models.providers", "none that can be used"))
    return None


def _in_profiles(config: "Config", held: Mapping[str, str], tried: _Tried) -> _Chosen:
    """Return the default model of the first vendor with a stored credential."""
    for vendor in vendors(config).values():
        if profile := held.get(vendor.id):
            tried.append(("auth profiles", profile))
            return f"{vendor.id}/{vendor.default}", f"there is a credential for it ({profile})"
    tried.append(("auth profiles", "none"))
    return None


def _in_environment(config: "Config", env: Mapping[str, str], tried: _Tried) -> _Chosen:
    names: list[str] = []
    for vendor in vendors(config).values():
        name, _ = vendor.key_in(env)
        if name:
            tried.append(("environment", f"{name} is set"))
            return f"{vendor.id}/{vendor.default}", f"{name} is set in the environment"
        names += vendor.key_names
    tried.append(("environment", f"none of {', '.join(names)}" if names else "not looked at"))
    return None


async def _on_loopback(config: "Config", probe: "Probe | None", tried: _Tried) -> _Chosen:
    chosen: _Chosen = None
    for server, models in await probe_local_servers(config, probe):
        place = f"{server.name} at {urlsplit(server.base_url).netloc}"
        tried.append((place, _told(models)))
        if models and chosen is None:
            chosen = f"{server.id}/{models[0]}", f"{place} is running"
    return chosen


async def probe_local_servers(
    config: "Config", probe: "Probe | None" = None
) -> list[tuple[Vendor, tuple[str, ...] | None]]:
    """Probe every known local server concurrently."""
    servers = [vendor for vendor in vendors(config).values() if vendor.is_own_server]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_ask(server, probe or list_models)) for server in servers]
    return [task.result() for task in asked]


async def _ask(server: Vendor, probe: Probe) -> tuple[Vendor, tuple[str, ...] | None]:
    return server, await probe(server)


def _told(models: tuple[str, ...] | None) -> str:
    if models is None:
        return "no answer"
    return ", ".join(models[:3]) + (" …" if models[3:] else "") if models else "no chat model"


async def list_models(server: Vendor) -> tuple[str, ...] | None:
    """Return a local server's models; None without an answer within `PROBE_S`."""
    from homarus.net.connection import ExchangeError

    try:
        answer = await _get(f"{server.base_url}/models")
    except (ExchangeError, TimeoutError, ValueError, RecursionError):
        return None
    return chat_models(answer)


async def _get(url: str) -> Json:
    # Imported here: most starts probe no server.
    from homarus.net.http_client import HttpClient, request_target

    address = urlsplit(url)
    peer = HttpClient(address, connect_s=PROBE_S, idle_s=PROBE_S, proxy="")
    body = b""
    try:
        async with (
            asyncio.timeout(PROBE_S),
            peer.request("GET", request_target(address), {"Accept": "application/json"}) as answer,
        ):
            if answer.status != 200:
                raise ValueError("not a list of models")
            async for piece in answer.iter_body():
                body += piece
                if len(body) > MAX_LIST_BYTES:
                    break
    finally:
        await peer.close()
    return json.loads(body)


def chat_models(answer: Json) -> tuple[str, ...]:
    """Return the ids of chat models in a `/v1/models` response."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    entries = entries if isinstance(entries, list) else []
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return tuple(id_ for id_ in ids if isinstance(id_, str) and is_chat_model(id_))


def is_chat_model(model_id: str) -> bool:
    """Return whether a model of this name can chat, as far as a name tells."""
    name = model_id.lower()
    plain = 0 < len(name) <= MAX_ID_CHARS and name.isprintable() and " " not in name
    return plain and not any(part in name for part in _NOT_CHAT)
