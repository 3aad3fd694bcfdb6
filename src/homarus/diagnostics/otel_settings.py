"""The settings of the OpenTelemetry export, and what of them cannot be done."""

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from homarus.config.diagnostics_schema import DiagnosticsConfig
from homarus.core.fast_dataclass import dataclass

DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318"
DEFAULT_SERVICE: Final = "homarus"
MIN_FLUSH_MS: Final = 100
INSTALL: Final = "pip install 'homarus[otel]'"


@dataclass(frozen=True, slots=True)
class OtelSettings:
    """Where spans and metrics are sent, and which."""

    endpoint: str
    headers: Mapping[str, str]
    service_name: str
    traces: bool
    metrics: bool
    sample_rate: float
    flush_interval_ms: int


def check_otel(config: DiagnosticsConfig) -> tuple[str, ...]:
    """Return the settings that cannot be obeyed, each with the fix; nothing when it is off."""
    otel, problems = config.otel, list[str]()
    if not (config.enabled and otel.enabled):
        return ()
    if not has_library():
        problems.append(f"diagnostics.otel: OpenTelemetry is not installed; fix: {INSTALL}")
    if otel.protocol == "grpc":
        problems.append(
            "diagnostics.otel.protocol: grpc is not supported, nothing is exported; fix: set"
            " http/protobuf, and the port of OTLP/HTTP"
        )
    if otel.logs:
        problems.append(
            "diagnostics.otel.logs: logs are not exported by OTLP; fix: set it to false, and"
            " collect the log file"
        )
    if otel.endpoint is not None and not _is_address(otel.endpoint):
        problems.append("diagnostics.otel.endpoint: it is no address of http:// or https://")
    return tuple(problems)


def resolve_otel(config: DiagnosticsConfig, env: Mapping[str, str]) -> OtelSettings | None:
    """Return the settings, None when nothing can be exported.

    The endpoint of the environment variable that every exporter reads holds where none is set.
    """
    otel = config.otel
    endpoint = otel.endpoint or env.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT
    is_possible = has_library() and otel.protocol != "grpc" and _is_address(endpoint)
    if not is_possible or not (otel.traces or otel.metrics):
        return None
    return OtelSettings(
        endpoint.rstrip("/"),
        dict(otel.headers),
        otel.service_name or env.get("OTEL_SERVICE_NAME") or DEFAULT_SERVICE,
        otel.traces,
        otel.metrics,
        otel.sample_rate if math.isfinite(otel.sample_rate) else 1.0,
        max(MIN_FLUSH_MS, otel.flush_interval_ms),
    )


def has_library() -> bool:
    """Return whether the extra `otel` is installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
