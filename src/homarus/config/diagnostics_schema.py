"""The section `diagnostics` of the config."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from homarus.config.section import ConfigSection, NonEmptyStr, NonNegativeInt, StrTuple


class OtelConfig(ConfigSection):
    """The export to an OpenTelemetry collector."""

    enabled: bool = False
    endpoint: NonEmptyStr | None = None
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    headers: Mapping[str, str] = Field({}, repr=False)
    service_name: NonEmptyStr | None = None
    traces: bool = True
    metrics: bool = True
    logs: bool = False
    sample_rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    flush_interval_ms: NonNegativeInt = 5_000


class DiagnosticsConfig(ConfigSection):
    """What is logged and exported about the operation of the program."""

    enabled: bool = False
    flags: StrTuple = ()
    stuck_session_warn_ms: Annotated[int, Field(gt=0)] = 120_000
    otel: OtelConfig = OtelConfig.model_construct()
