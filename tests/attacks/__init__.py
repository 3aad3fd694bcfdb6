"""Recorded attacks, run against the product through its own entry points."""
