"""Internal hooks: folders with a HOOK.md and a handler that events of the gateway call."""
