"""Select the embedder of an agent's memory.

`auto` selects the first that is available: a sentence model on this machine, a vendor whose key is
configured (the notes are then sent there, and `why` says so), static word vectors, or none: words
alone. A named provider that is not available is replaced by `fallback`, which is logged; with
`fallback: auto` by the first of FALLBACK_ORDER that is available and has not failed.
Nothing heavy is loaded and no service is called before the first text is embedded.
"""

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from homarus.config.memory import embedder_names
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import HomarusError, MissingExtraError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.memory.base import FallbackNotice
from homarus.memory.embed.backends import EMBEDDERS, AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.base import OnCost, OnNotice, ignore_cost
from homarus.memory.embed.circuit_breaker import CircuitBreakerEmbedder
from homarus.memory.spec import MemorySpec

FALLBACK_ORDER: Final = ("openai", "gemini", "local")
_WORDS_ONLY = "notes are searched by their words"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TriedProvider:
    """A provider that was not available, and the reason."""

    provider: str
    outcome: str


@dataclass(frozen=True, slots=True)
class EmbedderSelection:
    """The embedder, or None for words alone. `sent_to` is the host that the notes are sent to.

    `fallback` and `problem` are set when it is not the one that the config names.
    """

    embedder: CircuitBreakerEmbedder | None
    provider: str
    why: str
    tried: tuple[TriedProvider, ...] = ()
    sent_to: str = ""
    fallback: FallbackNotice | None = None
    problem: str = ""


def select_embedder(
    spec: MemorySpec,
    *,
    paid: OnCost = ignore_cost,
    tell: OnNotice = _log.warning,
    clock: Clock | None = None,
    without: Mapping[str, str] | None = None,
) -> EmbedderSelection:
    """Select the embedder that the config asks for; `without` maps failed providers to reasons."""
    search = spec.search
    if search.provider == "none" or not search.store.vector.enabled:
        key = "provider is none" if search.provider == "none" else "store.vector.enabled is false"
        return EmbedderSelection(None, "none", f"memorySearch.{key}: {_WORDS_ONLY}")
    request = EmbedderRequest(spec, search.provider, paid, tell, clock or SystemClock())
    if search.provider == "auto":
        if without and search.fallback == "auto":
            return _select_first(replace(request, uses_settings=False), without, _fallbacks())
        return _select_first(request, without or {}, _auto_order())
    available = _create(request, without or {})
    if isinstance(available, AvailableEmbedder):
        return _selection(request, available, ())
    return _select_fallback(request, available, without or {})


def _select_first(
    request: EmbedderRequest, without: Mapping[str, str], order: Sequence[tuple[str, bool]]
) -> EmbedderSelection:
    """Select the first available embedder in an order of providers."""
    tried: list[TriedProvider] = []
    for provider, takes_settings in order:
        one = replace(
            request, provider=provider, uses_settings=request.uses_settings and takes_settings
        )
        available = _create(one, without)
        if isinstance(available, AvailableEmbedder):
            return _selection(one, available, tuple(tried))
        tried.append(TriedProvider(provider, available.message))
    return EmbedderSelection(None, "none", f"no embedder can be had: {_WORDS_ONLY}", tuple(tried))


def _auto_order() -> list[tuple[str, bool]]:
    """Return the providers that `auto` tries, and whether the general settings are meant for each.

    A broken package of a third party is skipped: it is reported when the config names it.
    """
    order: list[tuple[int, str, bool]] = []
    for name in embedder_names():
        try:
            auto = EMBEDDERS.load(name).AUTO
        except UserError as exc:
            _log.warning("memory: %s", exc)
            continue
        if auto is not None:
            order.append((auto.order, name, auto.takes_settings))
    return [(name, takes_settings) for _, name, takes_settings in sorted(order)]


def _fallbacks() -> list[tuple[str, bool]]:
    """Return the providers of `fallback: auto`; none gets the settings of the failed one."""
    return [(name, False) for name in FALLBACK_ORDER]


def _select_fallback(
    request: EmbedderRequest, error: HomarusError, without: Mapping[str, str]
) -> EmbedderSelection:
    """Replace a provider that is not available by `fallback`, or by words alone."""
    tried = (TriedProvider(request.provider, error.message),)
    fallback = FallbackNotice(request.provider, error.message)
    named = request.spec.search.fallback
    if named in {"none", request.provider}:
        selected = EmbedderSelection(None, "none", _WORDS_ONLY, tried)
    elif named == "auto":
        failed = {**without, request.provider: error.message}
        selected = _select_first(replace(request, uses_settings=False), failed, _fallbacks())
    else:
        one = replace(request, provider=named, uses_settings=False)
        available = _create(one, without)
        if isinstance(available, AvailableEmbedder):
            selected = _selection(one, available, tried)
        else:
            all_tried = (*tried, TriedProvider(named, available.message))
            selected = EmbedderSelection(None, "none", _WORDS_ONLY, all_tried)
    why = f"{request.provider} cannot be had ({error.message}); {selected.why}"
    request.on_notice(f"memory: {why}")
    return replace(selected, why=why, fallback=fallback, problem=str(error))


def _selection(
    request: EmbedderRequest, available: AvailableEmbedder, tried: tuple[TriedProvider, ...]
) -> EmbedderSelection:
    why = available.why
    if available.sent_to:
        why = f"{why}; what notes and questions say is sent to {available.sent_to}"
    steady = CircuitBreakerEmbedder(available.embedder, request.clock)
    return EmbedderSelection(steady, request.provider, why, tried, available.sent_to)


def _create(
    request: EmbedderRequest, without: Mapping[str, str]
) -> AvailableEmbedder | HomarusError:
    """Create the embedder of a provider; or return why it is not available."""
    if request.provider in without:
        return UserError(without[request.provider])
    try:
        if importlib.util.find_spec("numpy") is None:
            raise MissingExtraError("comparing vectors", "vectors")
        return EMBEDDERS.load(request.provider).create(request)
    except HomarusError as exc:
        return exc
