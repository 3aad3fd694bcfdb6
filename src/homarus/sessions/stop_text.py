"""What a person reads after a stop: whether a run was stopped, and how many sub-agents. Pure."""


def describe_stop(runs: int, subagents: int) -> str:
    """Return the reply to `/stop`, for the numbers of runs and sub-agents that were stopped."""
    if not subagents:
        return "Stopped." if runs else "Nothing is running."
    return f"Stopped. {subagents} sub-agent{'' if subagents == 1 else 's'} stopped."
