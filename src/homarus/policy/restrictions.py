"""Settings that restrict: each is obeyed, or what it restricts is refused with the reason.

A setting of the schema that this version cannot obey yet refuses the start of the gateway
(`check_start_allowed`) or a run (`check_run_allowed`). Every other setting of OpenClaw without an
effect is in config/ignored_settings.py. A channel without an adapter receives nothing, so its
settings refuse nothing. Pure.
"""

from collections.abc import Collection, Iterator
from typing import Final

from homarus.config.agent_settings import agent_entry
from homarus.config.schema import Config
from homarus.config.tools_schema import ToolFilterConfig, ToolsConfig
from homarus.core.errors import ConfigError, UserError
from homarus.core.text import closest_names
from homarus.policy.tool_policy import GROUP_PREFIX, normalize_tool_name

_OWNER: Final = "only the owner of this machine can change it"


def check_start_allowed(config: Config) -> None:
    """Raise ConfigError for the first setting that a gateway of this version cannot obey."""
    for refusal in start_refusals(config):
        raise refusal


def start_refusals(config: Config) -> Iterator[ConfigError]:
    """Yield the settings that a gateway of this version cannot obey."""
    gateway = config.gateway
    if gateway.mode == "remote":
        yield ConfigError(
            "this machine is set up to use the gateway of another one",
            key="gateway.mode",
            fix="`homarus config set gateway.mode local` runs one here",
        )


def check_run_allowed(config: Config, agent_id: str, groups: Collection[str]) -> None:
    """Raise UserError when a setting forbids runs of an agent as this version would do them.

    `groups` are the groups that tools say they belong to, as `group:fs`. A session whose sandbox
    cannot be had runs: commands and file tools are refused when they are used.
    """
    for refusal in tool_list_refusals(config, agent_id, groups):
        raise refusal


def tool_lists(config: Config, agent_id: str) -> Iterator[tuple[str, ToolFilterConfig]]:
    """Yield the lists of tools that hold for an agent, with where they are in the config."""
    yield "tools", config.tools
    yield "tools.subagents.tools", config.tools.subagents.tools
    yield "tools.sandbox.tools", config.tools.sandbox.tools
    yield from _provider_lists("tools", config.tools)
    if own := agent_entry(config, agent_id).tools:
        place = f"tools of agent {agent_id}"
        yield place, own
        yield f"tools.sandbox.tools of agent {agent_id}", own.sandbox.tools
        yield from _provider_lists(place, own)
        if own.policy:
            yield f"tools.policy of agent {agent_id}", own.policy


def _provider_lists(place: str, tools: ToolsConfig) -> Iterator[tuple[str, ToolFilterConfig]]:
    yield from ((f"{place}.byProvider.{name}", one) for name, one in tools.by_provider.items())


def tool_list_refusals(
    config: Config, agent_id: str, groups: Collection[str]
) -> Iterator[UserError]:
    """Yield the groups in lists of denied tools that do not exist: nothing would be denied."""
    for path, section in tool_lists(config, agent_id):
        for name in map(normalize_tool_name, section.deny):
            if name.startswith(GROUP_PREFIX) and name not in groups:
                close = closest_names(name, groups)
                yield UserError(
                    f"{path} denies {name}, and there is no such group of tools",
                    fix=f"did you mean {' or '.join(close)}?" if close else _OWNER,
                )
