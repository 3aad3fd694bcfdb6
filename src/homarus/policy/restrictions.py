"""Settings that restrict: each is obeyed, or what it restricts is refused with the reason.

A setting of the schema that this version cannot obey yet refuses the start of the gateway
(`check_start_allowed`), a run (`check_run_allowed`) or a command (`exec_refusal`). Every other
setting of OpenClaw without an effect is in config/ignored_settings.py. A channel without an adapter
receives nothing, so its settings refuse nothing. Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from homarus.config.agent_settings import agent_entry
from homarus.config.schema import Config, ExecConfig, ToolFilterConfig, ToolsConfig
from homarus.core.errors import ConfigError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import main_key, normalize_agent_id
from homarus.core.text import closest_names
from homarus.policy.tool_policy import GROUP_PREFIX, normalize_tool_name

SandboxMode: TypeAlias = Literal["off", "non-main", "all"]

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


def check_run_allowed(
    config: Config, agent_id: str, session_key: str, groups: Collection[str]
) -> None:
    """Raise UserError when a setting forbids runs of this session as this version would do them.

    `groups` are the groups that tools say they belong to, as `group:fs`.
    """
    mode = sandbox_mode(config, agent_id)
    if mode == "all" or (mode == "non-main" and session_key != main_key(agent_id)):
        raise UserError(
            f"this conversation must run in a sandbox (sandbox.mode is {mode}),"
            " and this version has none",
            fix=f"sandbox.mode off runs it without one; {_OWNER}",
        )
    for refusal in tool_list_refusals(config, agent_id, groups):
        raise refusal


def sandbox_mode(config: Config, agent_id: str) -> SandboxMode:
    """Return which sessions of an agent must run in a sandbox."""
    modes = (agent_entry(config, agent_id).sandbox.mode, config.agents.defaults.sandbox.mode)
    return next((each for each in modes if each), "off")


def tool_lists(config: Config, agent_id: str) -> Iterator[tuple[str, ToolFilterConfig]]:
    """Yield the lists of tools that hold for an agent, with where they are in the config."""
    yield "tools", config.tools
    yield "tools.subagents.tools", config.tools.subagents.tools
    yield from _provider_lists("tools", config.tools)
    if own := agent_entry(config, agent_id).tools:
        place = f"tools of agent {agent_id}"
        yield place, own
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


def exec_refusal(config: Config, agent_id: str, approvals: Mapping[str, Json]) -> str:
    """Return why an agent may run no commands at all; "" when a person is asked each time.

    `approvals` is the content of `exec-approvals.json`. Its lists only replace a question at the
    terminal: where only listed commands may run, none does.
    """
    sections = _exec_sections(config, agent_id)
    securities = [each.security for each in sections if each.security][:1]
    asks = [each.ask for each in sections if each.ask][:1]
    files = list(_approval_sections(approvals, agent_id))
    securities += [each["security"] for each in files if each.get("security")][:1]
    file_ask = next((each["ask"] for each in files if each.get("ask")), "off")
    if any(each not in {"allowlist", "full"} for each in securities):
        return "commands are switched off (security is deny)"
    if "allowlist" in securities and asks == ["off"] and file_ask == "off":
        return "only listed commands may run (ask is off), and this version reads no lists"
    return ""


def exec_asks_always(config: Config, agent_id: str, approvals: Mapping[str, Json]) -> bool:
    """Return whether a person must be asked about every command, also one that was allowed."""
    asks = [each.ask for each in _exec_sections(config, agent_id) if each.ask][:1]
    files = _approval_sections(approvals, agent_id)
    asks += [each["ask"] for each in files if each.get("ask")][:1]
    return any(each not in {"off", "on-miss"} for each in asks)


def _exec_sections(config: Config, agent_id: str) -> list[ExecConfig]:
    """Return the sections of the config about an agent's commands, the most specific first."""
    own = agent_entry(config, agent_id).tools
    return [*([own.exec] if own else []), config.tools.exec]


def _approval_sections(
    approvals: Mapping[str, Json], agent_id: str
) -> Iterator[Mapping[str, Json]]:
    """Yield the sections of `exec-approvals.json` for an agent, the most specific first."""
    agents = approvals.get("agents")
    by_id = agents if isinstance(agents, dict) else {}
    names = [name for name in by_id if normalize_agent_id(name) == normalize_agent_id(agent_id)]
    legacy = ["default"] if normalize_agent_id(agent_id) == "main" else []
    found = [by_id.get(name) for name in (*names, *legacy, "*")] + [approvals.get("defaults")]
    yield from (each for each in found if isinstance(each, dict))
