"""Allow, ask or deny."""
