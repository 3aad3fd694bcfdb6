"""Conformance vectors: what the original's pure functions answer, asked of ours."""
