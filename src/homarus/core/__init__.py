"""Values and primitives: what every other package speaks. No I/O."""
