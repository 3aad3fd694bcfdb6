"""The onboarding wizard: its steps, its sections, and its sessions for gateway clients."""
