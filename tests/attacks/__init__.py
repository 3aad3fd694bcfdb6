"""Recorded attacks, tried on the product through its own entry points."""
