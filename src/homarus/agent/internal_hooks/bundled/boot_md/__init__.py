"""Run BOOT.md when the gateway starts."""
