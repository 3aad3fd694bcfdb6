"""Model lists fetched from services by `homarus models refresh`, and cached.

Services list their models, and many give each model's window and price; that is cached and used for
models the table does not have. The cache can be deleted at any time.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import HomarusError, StoreError, UnreachableError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir
from homarus.providers.catalog import ModelInfo, Price, provider_entry, vendors

if TYPE_CHECKING:
    from homarus.config.schema import Config

MAX_BYTES = 16 << 20
MAX_MODELS = 10_000
TIMEOUT_S = 20.0
# The services' names of the same fields.
_WINDOW = ("context_length", "context_window", "max_context_length", "max_model_len",
           "inputTokenLimit", "max_input_tokens")  # fmt: skip
_OUTPUT = ("max_completion_tokens", "outputTokenLimit", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class DiscoveredModel:
    """What a service lists of one model; 0 and None mean unknown."""

    id: str
    name: str = ""
    window: int = 0
    max_tokens: int = 0
    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    sees_images: bool | None = None
    reasoning: bool | None = None


# Keys of the stored list by attribute; renaming an attribute must not change them.
_KEYS: Final = {
    "id": "id",
    "name": "name",
    "window": "window",
    "max_tokens": "max_tokens",
    "input": "input",
    "output": "output",
    "cache_read": "cache_read",
    "sees_images": "sees_images",
    "reasoning": "reasoning",
}
_NAMES: Final = {key: name for name, key in _KEYS.items()}


class DiscoveredModelCache:
    """The cached lists by provider, loaded when they are used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._discovered: dict[str, tuple[int, Mapping[str, DiscoveredModel]]] = {}

    def complete(self, model: ModelInfo) -> ModelInfo:
        """Return a model that the table does not have, with the fields its service lists."""
        if model.known:
            return model
        discovered = self.models(model.provider).get(model.id)
        return _completed(model, discovered) if discovered and discovered.window else model

    def models(self, provider: str) -> Mapping[str, DiscoveredModel]:
        """Return a provider's list; read again when another process has fetched a newer one."""
        file = self._file(provider)
        try:
            stamp_ns = file.stat().st_mtime_ns
        except OSError:
            stamp_ns = 0
        if provider not in self._discovered or self._discovered[provider][0] != stamp_ns:
            self._discovered[provider] = stamp_ns, dict(_read(file) if stamp_ns else ())
        return self._discovered[provider][1]

    def save(self, provider: str, discovered: list[DiscoveredModel]) -> None:
        file = self._file(provider)
        rows = [_row(each) for each in discovered]
        try:
            make_private_dir(self._folder)
            write_atomic(file, json.dumps({"version": 1, "models": rows}).encode())
        except OSError as exc:
            raise StoreError(f"cannot write {file}: {exc.strerror}", fix="make room") from exc

    def _file(self, provider: str) -> Path:
        name = "".join(ch if ch.isalnum() or ch in "-_." else "_" for ch in provider)
        return self._folder / f"{name}.json"


async def fetch_model_list(config: "Config", provider: str, key: str) -> list[DiscoveredModel]:
    """Fetch a service's model list."""
    import httpx2

    url, headers = _address(config, provider, key)
    try:
        async with (
            httpx2.AsyncClient(timeout=TIMEOUT_S) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > MAX_BYTES:
                    break
            status = answer.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as exc:
        raise UnreachableError(f"{provider}: no connection to {url}: {exc}") from exc
    if status != 200:
        raise UnreachableError(
            f"{provider}: {url} answered {status}", fix="check the key", status=status
        )
    return parse_model_list(body)


def parse_model_list(body: bytes) -> list[DiscoveredModel]:
    """Parse a model list in any service's format."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        tree = None
    rows = tree.get("data") or tree.get("models") if isinstance(tree, dict) else tree
    if not isinstance(rows, list):
        raise HomarusError("the answer is not a list of models")
    return list(_discovered(rows))


def _discovered(rows: list[Json]) -> Iterator[DiscoveredModel]:
    for row in rows[:MAX_MODELS]:
        name = row.get("id") or row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or not name.isprintable() or len(name) > 200:
            continue
        top = row.get("top_provider")
        limits = {**top, **row} if isinstance(top, dict) else row
        price = row.get("pricing")
        price = price if isinstance(price, dict) else {}
        yield DiscoveredModel(
            id=name.removeprefix("models/"),
            name=str(row.get("display_name") or row.get("displayName") or "")[:200],
            window=_first(limits, _WINDOW),
            max_tokens=_first(limits, _OUTPUT),
            input=_per_million(price.get("prompt")),
            output=_per_million(price.get("completion")),
            cache_read=_per_million(price.get("input_cache_read")),
            sees_images=_holds(row, "architecture", "input_modalities", "image"),
            reasoning=_holds(row, "", "supported_parameters", "reasoning"),
        )


def _first(row: Mapping[str, Json], names: tuple[str, ...]) -> int:
    found = (row.get(name) for name in names)
    return next((n for n in found if isinstance(n, int) and 0 < n < 1_000_000_000), 0)


def _per_million(value: Json) -> float:
    try:
        price = float(value) * 1_000_000
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return round(price, 6) if 0 < price < 1_000_000 else 0.0


def _holds(row: Mapping[str, Json], inside: str, name: str, word: str) -> bool | None:
    holder: Json = row.get(inside) if inside else row
    words = holder.get(name) if isinstance(holder, dict) else None
    return word in words if isinstance(words, list) else None


def _completed(model: ModelInfo, discovered: DiscoveredModel) -> ModelInfo:
    silent = discovered.sees_images is None
    return replace(
        model,
        name=model.name or discovered.name,
        window=discovered.window,
        max_tokens=discovered.max_tokens or model.max_tokens,
        price=Price(discovered.input, discovered.output, discovered.cache_read),
        sees_images=model.sees_images if silent else bool(discovered.sees_images),
        reasoning=model.reasoning if discovered.reasoning is None else discovered.reasoning,
        known=True,
        note="",
    )


def _address(config: "Config", provider: str, key: str) -> tuple[str, dict[str, str]]:
    entry, vendor = provider_entry(config, provider), vendors(config).get(provider)
    base = ((entry and entry.base_url) or (vendor.base_url if vendor else "")).rstrip("/")
    api = (entry and entry.api) or (vendor.api if vendor else "")
    headers = dict(entry.headers) if entry else {}
    match api:
        case "bedrock-converse-stream" | "google-vertex":
            raise UserError(
                f"{provider} is not asked for its models",
                fix=f"name one as {provider}/MODEL, and describe it in models.providers",
            )
        case "anthropic-messages":
            base = base.removesuffix("/v1") + "/v1"
            headers |= {"x-api-key": key, "anthropic-version": "2023-06-01"}
            return f"{base}/models?limit=1000", headers
        case "google-generative-ai":
            return f"{base}/models?pageSize=1000", {**headers, "x-goog-api-key": key}
        case _:
            return f"{base}/models", {
                **headers,
                **({"Authorization": f"Bearer {key}"} if key else {}),
            }


def _row(discovered: DiscoveredModel) -> dict[str, Any]:
    pairs = ((key, getattr(discovered, name)) for name, key in _KEYS.items())
    return {key: value for key, value in pairs if value not in ("", 0, None)}


def _read(file: Path) -> Iterator[tuple[str, DiscoveredModel]]:
    try:
        rows: Any = json.loads(file.read_bytes()[:MAX_BYTES])["models"]
        for row in rows:
            discovered = DiscoveredModel(**{_NAMES[key]: value for key, value in row.items()})
            yield str(discovered.id), discovered
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return  # an unreadable list is replaced by the next refresh
