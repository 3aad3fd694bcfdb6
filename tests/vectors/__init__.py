"""Conformance vectors: recorded results of OpenClaw's pure functions, compared with ours."""
