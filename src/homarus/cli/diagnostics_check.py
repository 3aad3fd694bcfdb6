"""The check of `homarus doctor` about diagnostics: what of the export cannot be done."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from homarus.config.schema import Config

# What it is about, the state, the text and the fix, as of a finding of doctor.
DiagnosticsFinding: TypeAlias = tuple[str, Literal["ok", "bad"], str, str]


def check_diagnostics(config: Config) -> Iterator[DiagnosticsFinding]:
    """Yield whether the export to OpenTelemetry is possible; nothing where it is off."""
    diagnostics = config.diagnostics
    if not (diagnostics.enabled and diagnostics.otel.enabled):
        return
    from homarus.diagnostics.otel_settings import DEFAULT_ENDPOINT, check_otel

    problems = check_otel(diagnostics)
    for problem in problems:
        text, _, fix = problem.partition("; fix: ")
        yield "diagnostics", "bad", text, fix
    if not problems:
        endpoint = diagnostics.otel.endpoint or DEFAULT_ENDPOINT
        yield "diagnostics", "ok", f"runs are exported to {endpoint}", ""
