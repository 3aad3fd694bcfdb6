"""The hooks that come with the program; each folder has its HOOK.md and its handler."""
