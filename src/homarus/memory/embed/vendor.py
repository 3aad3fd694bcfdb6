"""Create the embedder of a vendor's service, or of a server that answers like it."""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from homarus.config.memory import EmbeddingBatchConfig
from homarus.config.memory import RemoteEmbeddingConfig as RemoteSettings
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.memory.embed.access import config_key
from homarus.memory.embed.backends import AvailableEmbedder, EmbedderRequest
from homarus.memory.embed.client import ServiceAccess
from homarus.memory.embed.remote import (
    QUESTION_S,
    EmbeddingApi,
    EmbedRequestLimits,
    HostedModel,
    RemoteEmbedder,
)
from homarus.memory.spec import MemorySpec

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


def _unchanged(url: str) -> str:
    return url


@dataclass(frozen=True, slots=True)
class EmbeddingVendor:
    """A service with its models: name → dimensions, and USD per million tokens.

    `wire` is given a model, and whether the vendor's own service is called. `root` turns a
    configured address into the one that `wire` needs.
    """

    name: str
    base_url: str
    default: str
    models: Mapping[str, tuple[int, float]]
    limits: EmbedRequestLimits
    wire: Callable[[str, bool], EmbeddingApi]
    key_name: str = ""  # the environment variable of the key; empty: no key is needed
    root: Callable[[str], str] = _unchanged
    model_prefixes: tuple[str, ...] = ()  # that users write before a model's name
    credential_provider: str = ""  # whose credentials it uses; empty: the embedder's own name
    has_compatible_servers: bool = False  # which may give other models the vendor's names


def create_remote(vendor: EmbeddingVendor, request: EmbedderRequest) -> AvailableEmbedder:
    """Create the embedder of a vendor. Raises UserError when its key is missing."""
    search = request.spec.search
    access = _resolve_access(vendor, request)
    own_service = _host(access.base_url) == _host(vendor.base_url)
    if access.key is None and own_service and vendor.key_name:
        raise UserError(
            f"there is no key for {request.provider}",
            fix=f"set {vendor.key_name}, or memorySearch.remote.apiKey",
        )
    model = _model_name(search.model if request.uses_settings else None, vendor, request.provider)
    known = own_service or not vendor.has_compatible_servers
    dims, price = vendor.models.get(model.partition(":")[0], (0, 0.0)) if known else (0, 0.0)
    hosted = HostedModel(
        request.provider,
        model,
        access,
        dims,
        price if own_service else 0.0,
        vendor.limits,
        search.remote.batch if request.uses_settings else EmbeddingBatchConfig.model_construct(),
        _question_timeout_s(request.spec),
    )
    wire = vendor.wire(model, own_service)
    if hosted.batch.enabled and wire.jobs is None:
        request.on_notice(
            f"memory: {request.provider} at {_host(access.base_url)} has no batch service"
        )
    embedder = RemoteEmbedder(
        hosted, wire, paid=request.on_cost, tell=request.on_notice, clock=request.clock
    )
    why = f"{model} of {vendor.name if own_service else _host(access.base_url)}"
    if access.key is not None:
        why = f"{why}, by the key in {access.key.where}"
    sent_to = "" if _is_loopback(access.base_url) else _host(access.base_url)
    return AvailableEmbedder(embedder, why, sent_to)


def _resolve_access(vendor: EmbeddingVendor, request: EmbedderRequest) -> ServiceAccess:
    """Return the address, headers and key: `memorySearch.remote` before the chat provider's.

    The chat provider's headers and key are sent only to the vendor's address and to the chat
    provider's own: never to another address of `memorySearch.remote`.
    """
    chat = request.spec.access(vendor.credential_provider or request.provider)
    remote = (
        request.spec.search.remote if request.uses_settings else RemoteSettings.model_construct()
    )
    base_url = (remote.base_url or chat.base_url or vendor.base_url).strip()
    if _origin(base_url) not in {_origin(chat.base_url), _origin(vendor.base_url)}:
        chat = ServiceAccess()
    base_url = vendor.root(base_url)
    key = chat.key
    if remote.api_key and remote.api_key.strip():
        key = config_key("memorySearch.remote.apiKey", remote.api_key.strip())
    return ServiceAccess(base_url, {**chat.headers, **remote.headers}, key)


def _model_name(configured: str | None, vendor: EmbeddingVendor, provider: str) -> str:
    """Return the model's name as the service knows it, without a provider before it."""
    name = (configured or vendor.default).strip()
    for prefix in (f"{provider}/", "models/", *vendor.model_prefixes):
        name = name.removeprefix(prefix)
    return name or vendor.default


def _question_timeout_s(spec: MemorySpec) -> float:
    timeout_ms = spec.settings.qmd.limits.timeout_ms
    return timeout_ms / 1000 if timeout_ms else 10 * QUESTION_S


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port."""
    try:
        parts = urlsplit(url.strip())
        return parts.scheme, parts.hostname or url, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # no request to it can succeed, either
        return "", url, None


def _is_loopback(url: str) -> bool:
    return _host(url) in {"localhost", "127.0.0.1", "::1"}
