"""Sandboxes: where commands run apart from this machine, and the backends that make them."""
