"""Which embedder an agent's memory has, and why.

`auto` takes the first that can be had: a sentence model on this machine, a vendor whose key is
here (the notes are then sent there, and `why` says so), static word vectors, or none: words
alone. One that is named and cannot be had is replaced by `fallback`, and that is said, too.
Nothing heavy is loaded and nobody is asked before the first text is embedded.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from homarus.config.memory import Batch, Embedding
from homarus.config.memory import Remote as RemoteSettings
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import HomarusError, MissingExtra, UserError
from homarus.core.value import dataclass
from homarus.memory.base import Fallback
from homarus.memory.embed.base import Embedder, Paying, Telling, unpaid
from homarus.memory.embed.keys import given_key
from homarus.memory.embed.link import Access
from homarus.memory.embed.remote import QUESTION_S, Hosted, Remote, Vendor
from homarus.memory.embed.steady import Steady
from homarus.memory.place import Place

AUTO: Final[tuple[Embedding, ...]] = ("local", "openai", "gemini", "voyage", "wordllama")
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_WORDS_ONLY = "notes are searched by their words"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tried:
    """A provider that was looked at, and what came of it."""

    provider: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The embedder, or None for words alone. `sent_to` is the host that the notes are sent to.

    `fallback` and `problem` are set when it is not the one that the config names.
    """

    embedder: Steady | None
    provider: str
    why: str
    tried: tuple[Tried, ...] = ()
    sent_to: str = ""
    fallback: Fallback | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is looked for. `own` is whether `remote` and `model` of the config are meant for it."""

    place: Place
    provider: str
    paid: Paying
    tell: Telling
    clock: Clock
    own: bool = True


@dataclass(frozen=True, slots=True)
class _Had:
    embedder: Embedder
    why: str
    sent_to: str = ""


def choose(
    place: Place,
    *,
    paid: Paying = unpaid,
    tell: Telling = _log.warning,
    clock: Clock | None = None,
    without: Mapping[str, str] | None = None,
) -> Chosen:
    """The embedder that the config asks for. `without` are providers that failed, and why."""
    search = place.search
    if search.provider == "none" or not search.store.vector.enabled:
        key = "provider is none" if search.provider == "none" else "store.vector.enabled is false"
        return Chosen(None, "none", f"memorySearch.{key}: {_WORDS_ONLY}")
    wish = _Wish(place, search.provider, paid, tell, clock or SystemClock())
    if search.provider == "auto":
        return _first(wish, without or {})
    had = _had(wish, without or {})
    if isinstance(had, _Had):
        return _chosen(wish, had, ())
    return _instead(wish, had, without or {})


def _first(wish: _Wish, without: Mapping[str, str]) -> Chosen:
    """The first of all that can be had."""
    tried: list[Tried] = []
    for provider in AUTO:
        # An address without a name is that of a server which answers as OpenAI does.
        one = replace(wish, provider=provider, own=wish.own and provider in {"local", "openai"})
        had = _had(one, without)
        if isinstance(had, _Had):
            return _chosen(one, had, tuple(tried))
        tried.append(Tried(provider, had.message))
    return Chosen(None, "none", f"no embedder can be had: {_WORDS_ONLY}", tuple(tried))


def _instead(wish: _Wish, error: HomarusError, without: Mapping[str, str]) -> Chosen:
    """What stands in for a provider that cannot be had: `fallback`, or words alone."""
    tried = (Tried(wish.provider, error.message),)
    fallback = Fallback(wish.provider, error.message)
    named = wish.place.search.fallback
    if named not in {"none", wish.provider}:
        if named == "auto":
            found = _first(replace(wish, own=False), {**without, wish.provider: error.message})
        else:
            one = replace(wish, provider=named, own=False)
            had = _had(one, without)
            if isinstance(had, _Had):
                found = _chosen(one, had, tried)
            else:
                found = Chosen(None, "none", _WORDS_ONLY, (*tried, Tried(named, had.message)))
    else:
        found = Chosen(None, "none", _WORDS_ONLY, tried)
    why = f"{wish.provider} cannot be had ({error.message}); {found.why}"
    wish.tell(f"memory: {why}")
    return replace(found, why=why, fallback=fallback, problem=str(error))


def _chosen(wish: _Wish, had: _Had, tried: tuple[Tried, ...]) -> Chosen:
    why = had.why
    if had.sent_to:
        why = f"{why}; what notes and questions say is sent to {had.sent_to}"
    steady = Steady(had.embedder, wish.clock)
    return Chosen(steady, wish.provider, why, tried, had.sent_to)


def _had(wish: _Wish, without: Mapping[str, str]) -> _Had | HomarusError:
    if wish.provider in without:
        return UserError(without[wish.provider])
    try:
        if importlib.util.find_spec("numpy") is None:
            raise MissingExtra("comparing vectors", "vectors")
        return _BUILT[wish.provider](wish) if wish.provider in _BUILT else _remote(wish)
    except HomarusError as exc:
        return exc


# On this machine


def _local(wish: _Wish) -> _Had:
    from homarus.memory.embed import minilm
    from homarus.memory.embed.onnx import check_extra, open_onnx

    place = wish.place
    if path := place.search.local.model_path:
        return _Had(open_onnx(place.file(path)), f"local.modelPath is {path}")
    folder = minilm.find(_weights_cache(place)) or minilm.find(place.models_cache)
    if folder is None:
        raise UserError(
            "there is no sentence model on this machine", fix="run `homarus models pull minilm`"
        )
    check_extra()
    return _Had(minilm.open_minilm(folder), f"{minilm.NAME} is on this machine")


def _wordllama(wish: _Wish) -> _Had:
    from homarus.memory.embed.wordllama import WordLlama

    return _Had(WordLlama(), "static word vectors are on this machine")


def _fastembed(wish: _Wish) -> _Had:
    from homarus.memory.embed.fastembed import DEFAULT, FastEmbed

    place, search = wish.place, wish.place.search
    path = search.local.model_path if wish.own else None
    name = (search.model if wish.own else None) or DEFAULT
    folder = place.file(path) if path else None
    cache_dir = _weights_cache(place) / "fastembed"
    return _Had(FastEmbed(name, cache_dir, folder), f"{name} runs on this machine")


def _weights_cache(place: Place) -> Path:
    named = place.search.local.model_cache_dir
    return place.file(named) if named else place.models_cache


_BUILT: Final[Mapping[str, Callable[[_Wish], _Had]]] = {
    "local": _local,
    "wordllama": _wordllama,
    "fastembed": _fastembed,
}


# Elsewhere


def _vendor(provider: str) -> Vendor:
    vendor: Vendor = importlib.import_module(f"homarus.memory.embed.{provider}").VENDOR
    return vendor


def _remote(wish: _Wish) -> _Had:
    vendor, search = _vendor(wish.provider), wish.place.search
    access = _access(wish, vendor)
    own_service = _host(access.base_url) == _host(vendor.base_url)
    if access.key is None and own_service and vendor.key_name:
        raise UserError(
            f"there is no key for {wish.provider}",
            fix=f"set {vendor.key_name}, or memorySearch.remote.apiKey",
        )
    model = _named(search.model if wish.own else None, vendor, wish.provider)
    # Who stands in for OpenAI may call another model by the name of one of OpenAI's.
    known = own_service or wish.provider != "openai"
    dims, price = vendor.models.get(model.partition(":")[0], (0, 0.0)) if known else (0, 0.0)
    hosted = Hosted(
        wish.provider,
        model,
        access,
        dims,
        price if own_service else 0.0,
        vendor.limits,
        search.remote.batch if wish.own else Batch.model_construct(),
        _question_s(wish.place),
    )
    wire = vendor.wire(model, own_service)
    if hosted.batch.enabled and wire.jobs is None:
        wish.tell(f"memory: {wish.provider} at {_host(access.base_url)} has no batch service")
    embedder = Remote(hosted, wire, paid=wish.paid, tell=wish.tell, clock=wish.clock)
    why = f"{model} of {vendor.name if own_service else _host(access.base_url)}"
    if access.key is not None:
        why = f"{why}, by the key in {access.key.where}"
    return _Had(embedder, why, "" if _is_here(access.base_url) else _host(access.base_url))


def _access(wish: _Wish, vendor: Vendor) -> Access:
    """The address, headers and key: `remote` of the config before what chat has.

    What chat has is for the vendor, and for the address that chat has: nobody else gets it.
    """
    found = wish.place.access(wish.provider)
    remote = wish.place.search.remote if wish.own else RemoteSettings.model_construct()
    base_url = (remote.base_url or found.base_url or vendor.base_url).strip()
    if _origin(base_url) not in {_origin(found.base_url), _origin(vendor.base_url)}:
        found = Access()
    base_url = vendor.root(base_url)
    key = found.key
    if remote.api_key and remote.api_key.strip():
        key = given_key("memorySearch.remote.apiKey", remote.api_key.strip())
    return Access(base_url, {**found.headers, **remote.headers}, key)


def _named(written: str | None, vendor: Vendor, provider: str) -> str:
    """The model's name as the service knows it; people write the provider before it, too."""
    name = (written or vendor.default).strip()
    for before in (f"{provider}/", "models/", "google/" if provider == "gemini" else ""):
        name = name.removeprefix(before) if before else name
    return name or vendor.default


def _question_s(place: Place) -> float:
    timeout_ms = place.settings.qmd.limits.timeout_ms
    return timeout_ms / 1000 if timeout_ms else 10 * QUESTION_S


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _origin(url: str) -> tuple[str, str, int | None]:
    """Who is at an address, and how they are spoken to."""
    try:
        parts = urlsplit(url.strip())
        return parts.scheme, parts.hostname or url, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # then nobody answers, either
        return "", url, None


def _is_here(url: str) -> bool:
    return _host(url) in {"localhost", "127.0.0.1", "::1"}
