"""Diagnostics: metrics, the log of diagnostic events, stuck sessions, and OpenTelemetry."""
