"""Matrix, by the client-server API of its homeservers: people and rooms, threads, edits, files."""

from homarus.channels.matrix.adapter import create
from homarus.channels.matrix.settings import Settings

LABEL = "Matrix"

__all__ = ["LABEL", "Settings", "create"]
