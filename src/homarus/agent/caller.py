"""Who makes the tool calls of a run, with the settings that hold for their commands."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.message import Json, RunOptions
from homarus.policy.exec_settings import (
    resolve_elevated,
    resolve_exec_settings,
    with_exec_options,
)
from homarus.policy.sandbox_settings import is_sandboxed
from homarus.policy.tool_call import CallerFacts


def resolve_command_caller(  # noqa: PLR0917 - who calls, and from where
    caller: CallerFacts,
    config: Config,
    rules: Sequence[Mapping[str, Json]],
    entry: Mapping[str, Json],
    options: RunOptions,
    find_traits: FindTraits,
) -> CallerFacts:
    """Return the caller with the settings for commands: of config, session, message and sender.

    `rules` are the contents of the approvals files, `entry` is that of the session. A sandbox that
    the config wants since the run began holds for its next command.
    """
    entry = with_exec_options(entry, options)
    elevated, is_allowed = resolve_elevated(
        config, caller.agent_id, entry, caller.channel, caller.sender, find_traits
    )
    settings = resolve_exec_settings(
        config, rules, caller.agent_id, entry, is_owner=caller.is_owner
    )
    has_sandbox = caller.is_sandboxed or is_sandboxed(config, caller.agent_id, caller.session_key)
    return replace(
        caller,
        exec=settings,
        elevated=elevated,
        is_elevated_allowed=is_allowed,
        is_sandboxed=has_sandbox,
    )
