"""The checks of `homarus doctor` about heartbeats that would be skipped each time."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from homarus.config.heartbeat_settings import (
    HeartbeatSettings,
    heartbeat_agent_ids,
    resolve_heartbeat,
)
from homarus.config.schema import Config
from homarus.core.session_keys import normalize_agent_id, parse_agent_key
from homarus.core.text import one_line

# What it is about, the state, the text and the fix, as of a finding of doctor.
HeartbeatFinding: TypeAlias = tuple[str, Literal["note"], str, str]


def check_heartbeats(config: Config) -> Iterator[HeartbeatFinding]:
    """Yield what keeps the heartbeats of agents from running, or from reaching a chat."""
    for agent in heartbeat_agent_ids(config):
        settings = resolve_heartbeat(config, agent)
        if settings.is_enabled:
            for problem, fix in (*_check_session(settings), *_check_target(config, settings)):
                yield "heartbeat", "note", f"agent {agent}: {problem}", fix


def _check_session(settings: HeartbeatSettings) -> Iterator[tuple[str, str]]:
    named = parse_agent_key(settings.session)
    if named and normalize_agent_id(named.agent) != settings.agent:
        problem = f"heartbeat.session {_shown(settings.session)} is of another agent: it never runs"
        yield problem, f"name a session of agent {settings.agent}, or none"


def _check_target(config: Config, settings: HeartbeatSettings) -> Iterator[tuple[str, str]]:
    target, account = settings.target, settings.account
    if target == "none":
        return
    channels: tuple[str, ...] = ()
    if config.channels:
        from homarus.config.channels import account_names, channel_names

        channels = channel_names(config)
    if target != "last" and target not in channels:
        known = ", ".join(sorted(channels)) or "there are none"
        problem = f"heartbeat.target {_shown(target)} is no channel of the config: it never runs"
        yield problem, f"use last, none or a channel ({known})"
        return
    used = channels if target == "last" else (target,)
    if account and channels and not any(account in account_names(config, one) for one in used):
        problem = f"heartbeat.accountId {_shown(account)} is no account: it never runs"
        yield problem, "name an account of the channel, or remove it"


def _shown(text: str) -> str:
    return repr(one_line(text, 60))
