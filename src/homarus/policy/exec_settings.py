"""Resolve the settings for commands that hold for one session and one sender. Pure.

    rules = read_exec_rules(state)  # of tools/exec/exec_rules.py
    settings = resolve_exec_settings(config, rules, agent_id, entry, is_owner=True)

Three places have settings: `tools.exec` of the config (an agent's own before that of all agents),
the session (`/exec`, `sessions.patch`), and `exec-approvals.json`. The session's replace the
config's, but loosen them only for messages of the owner, and never lift `security: deny`. The
approvals file bounds both: the stricter value holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from homarus.config.agent_settings import agent_entry
from homarus.config.schema import Config
from homarus.config.tools_schema import ElevatedConfig
from homarus.core.channel_traits import FindTraits
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, RunOptions
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id
from homarus.policy.access import is_listed

ExecSecurity: TypeAlias = Literal["deny", "allowlist", "full"]
ExecAsk: TypeAlias = Literal["off", "on-miss", "always"]
ExecHost: TypeAlias = Literal["sandbox", "gateway", "node"]
ElevatedLevel: TypeAlias = Literal["off", "on", "ask", "full"]

# Ordered, the strictest first. A value that is none of these counts as the strictest.
SECURITIES: Final[tuple[ExecSecurity, ...]] = ("deny", "allowlist", "full")
ASKS: Final[tuple[ExecAsk, ...]] = ("always", "on-miss", "off")
HOSTS: Final[tuple[ExecHost, ...]] = get_args(ExecHost)
LEVELS: Final[tuple[ElevatedLevel, ...]] = get_args(ElevatedLevel)

_W = TypeVar("_W", bound=str)


@dataclass(frozen=True, slots=True)
class ExecSettings:
    """How commands of a session are judged, after config, approvals file and session are merged.

    `ask_fallback` is what holds when no approver can be reached or none answers in time.
    """

    security: ExecSecurity = "allowlist"
    ask: ExecAsk = "on-miss"
    ask_fallback: ExecSecurity = "deny"
    auto_allow_skills: bool = False
    host: ExecHost = "gateway"


DEFAULTS: Final = ExecSettings()


def resolve_exec_settings(
    config: Config,
    approvals: Sequence[Mapping[str, Json]],
    agent_id: str,
    entry: Mapping[str, Json],
    *,
    is_owner: bool = False,
) -> ExecSettings:
    """Return the settings for the commands of a session.

    `approvals` are the contents of the approvals files, `entry` is the session's, with the options
    of one message laid over it (`with_exec_options`). `is_owner`: every message of the run is the
    owner's.
    """
    base = config_exec_settings(config, agent_id)
    security = _session_value(
        SECURITIES, base.security, entry.get("execSecurity"), is_owner=is_owner
    )
    if base.security == "deny":
        security = "deny"
    ask = _session_value(ASKS, base.ask, entry.get("execAsk"), is_owner=is_owner)
    host = _first_word(HOSTS, "sandbox", entry.get("execHost")) or base.host
    fallbacks, skills = list[ExecSecurity](), list[bool]()
    for one in approvals:
        sections = list(approval_sections(one, agent_id))
        security = _stricter(SECURITIES, security, _file_value(SECURITIES, sections, "security"))
        ask = _stricter(ASKS, ask, _file_value(ASKS, sections, "ask"))
        fallbacks.append(_file_value(SECURITIES, sections, "askFallback") or "deny")
        skills.append(_first(sections, "autoAllowSkills") is True)
    fallback = min(fallbacks, key=SECURITIES.index, default=DEFAULTS.ask_fallback)
    return ExecSettings(security, ask, fallback, bool(skills) and all(skills), host)


def config_exec_settings(config: Config, agent_id: str) -> ExecSettings:
    """Return the settings that the config has for an agent's commands, with the defaults."""
    own = agent_entry(config, agent_id).tools
    sections = [*([own.exec] if own else []), config.tools.exec]
    security = next((each.security for each in sections if each.security), DEFAULTS.security)
    ask = next((each.ask for each in sections if each.ask), DEFAULTS.ask)
    host = next((each.host for each in sections if each.host), DEFAULTS.host)
    return ExecSettings(security, ask, host=host)


def approval_sections(approvals: Mapping[str, Json], agent_id: str) -> Iterator[Mapping[str, Json]]:
    """Yield the sections of an approvals file for an agent, the most specific first.

    The section of an agent `default` is a part of that of `main`.
    """
    agents = approvals.get("agents")
    by_id = agents if isinstance(agents, dict) else {}
    agent = normalize_agent_id(agent_id)
    names = [name for name in by_id if name != "*" and normalize_agent_id(name) == agent]
    legacy = ["default"] if agent == DEFAULT_AGENT else []
    found = [by_id.get(name) for name in (*names, *legacy, "*")] + [approvals.get("defaults")]
    yield from (each for each in found if isinstance(each, dict))


def with_exec_options(entry: Mapping[str, Json], options: RunOptions) -> Mapping[str, Json]:
    """Return a session's entry with the `/exec` and `/elevated` of one message laid over it."""
    given = {
        "execHost": options.exec_host,
        "execSecurity": options.exec_security,
        "execAsk": options.exec_ask,
        "elevatedLevel": options.elevated,
    }
    own = {name: value for name, value in given.items() if value}
    return {**entry, **own} if own else entry


def resolve_elevated(  # noqa: PLR0917 - who calls, and from where
    config: Config,
    agent_id: str,
    entry: Mapping[str, Json],
    channel: str,
    sender: str,
    find_traits: FindTraits,
) -> tuple[ElevatedLevel, bool]:
    """Return the elevated level of a sender's commands, and whether they may be elevated.

    `tools.elevated` must name the sender for the channel, and so must the agent's own section where
    it has a list. Without that the level is `off`, whatever the session has.
    """
    if elevated_refusal(config, agent_id, channel, sender, find_traits):
        return "off", False
    level = _first_word(LEVELS, "off", entry.get("elevatedLevel"))
    return level or config.agents.defaults.elevated_default or "off", True


def elevated_refusal(
    config: Config, agent_id: str, channel: str, sender: str, find_traits: FindTraits
) -> str:
    """Return which setting keeps a sender from elevated commands; "" when none does."""
    own = agent_entry(config, agent_id).tools
    sections: list[tuple[str, ElevatedConfig]] = [("tools.elevated", config.tools.elevated)]
    if own:
        path = f"agents.list[{normalize_agent_id(agent_id)}].tools.elevated"
        sections.append((path, own.elevated))
    for path, section in sections:
        if not section.enabled:
            return f"{path}.enabled is false"
    for path, section in sections:
        if path != "tools.elevated" and not section.allow_from:
            continue  # an agent without a list of its own has that of all agents
        if not is_listed(channel, sender, section.allow_from.get(channel, ()), find_traits):
            return f"{path}.allowFrom.{channel or 'CHANNEL'} does not list you"
    return ""


def _session_value(words: Sequence[_W], base: _W, stored: Json, *, is_owner: bool) -> _W:
    """Return a setting of the session; one looser than the config's is for the owner alone."""
    if stored is None:
        return base
    value = _to_word(words, stored)
    return value if is_owner else _stricter(words, base, value)


def _file_value(
    words: Sequence[_W], sections: Sequence[Mapping[str, Json]], name: str
) -> _W | None:
    value = _first(sections, name)
    return None if value is None else _to_word(words, value)


def _first(sections: Sequence[Mapping[str, Json]], name: str) -> Any:
    return next((each[name] for each in sections if each.get(name) is not None), None)


def _to_word(words: Sequence[_W], value: Json) -> _W:
    """Return the value as one of the words; anything else is the strictest, which is the first."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return next((each for each in words if each == text), words[0])


def _first_word(words: Sequence[_W], strictest: _W, value: Json) -> _W | None:
    """Return a stored word, None where there is none; an unknown one is the strictest."""
    if value is None:
        return None
    return next((each for each in words if each == value), strictest)


def _stricter(words: Sequence[_W], one: _W, other: _W | None) -> _W:
    return one if other is None else min(one, other, key=words.index)
