"""Values and primitives that every other package uses."""
