"""Resolve the heartbeat of one agent, and what a chat gets of it, from the config."""

from typing import Final, Literal

from homarus.config.agent_settings import agent_entry, agent_ids, default_agent_id
from homarus.config.heartbeat_schema import HeartbeatConfig
from homarus.config.schema import Config
from homarus.config.timezone import hours_zone_name, is_within_hours
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import normalize_account_id
from homarus.core.silent_reply import ACK_MAX_CHARS
from homarus.core.units import parse_duration_ms

DEFAULT_EVERY: Final = "30m"
CHECKLIST: Final = "HEARTBEAT.md"
# `memory/cleaning.py` recognises its start: it is no message of a person.
DEFAULT_PROMPT: Final = (
    "Read HEARTBEAT.md in your workspace if it exists, and do what it says is due now. Do not take "
    "up or repeat tasks of earlier messages. If nothing needs the person's attention, answer "
    "HEARTBEAT_OK."
)


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """The heartbeat of one agent, with the defaults filled in.

    `every_ms` is 0 for one that is switched off. `target` is `last`, `none` or a channel; `account`
    "" is the account of the last chat, or the default one.
    """

    agent: str
    every: str = DEFAULT_EVERY
    every_ms: int = 0
    start: str = ""
    end: str = ""
    zone: str = ""
    target: str = "last"
    to: str = ""
    account: str = ""
    model: str = ""
    prompt: str = ""
    session: str = ""
    ack_max_chars: int = ACK_MAX_CHARS
    includes_reasoning: bool = False
    direct_policy: Literal["allow", "block"] = "allow"
    suppresses_tool_errors: bool = False
    is_isolated: bool = False
    is_light: bool = False

    @property
    def is_enabled(self) -> bool:
        return self.every_ms > 0

    def is_active_at(self, at_ms: int) -> bool:
        """Return whether a time is within the active hours."""
        return not self.start or is_within_hours(self.start, self.end, self.zone, at_ms)


@dataclass(frozen=True, slots=True)
class HeartbeatVisibility:
    """What a chat gets of heartbeats, and whether clients show an indicator."""

    shows_ok: bool = False
    shows_alerts: bool = True
    uses_indicator: bool = True

    @property
    def is_hidden(self) -> bool:
        """Whether no one would notice a heartbeat."""
        return not (self.shows_ok or self.shows_alerts or self.uses_indicator)


def heartbeat_agent_ids(config: Config) -> tuple[str, ...]:
    """Return the agents that may have a heartbeat: those with a section, else the default one."""
    known = agent_ids(config)
    listed = tuple(each for each in known if agent_entry(config, each).heartbeat is not None)
    return listed or (default_agent_id(config),)


def resolve_heartbeat(config: Config, agent: str) -> HeartbeatSettings:
    """Return the heartbeat of an agent; one without a heartbeat has an interval of 0."""
    own, defaults = agent_entry(config, agent).heartbeat, config.agents.defaults
    found = _merge(own, defaults.heartbeat)
    every = found.every or DEFAULT_EVERY
    every_ms = parse_duration_ms(every, "m")
    if found.enabled is False or agent not in heartbeat_agent_ids(config):
        every_ms = 0
    hours = found.active_hours
    return HeartbeatSettings(
        agent,
        every=every if every_ms else "disabled",
        every_ms=every_ms,
        start=(hours.start or "00:00") if hours else "",
        end=(hours.end or "24:00") if hours else "",
        zone=hours_zone_name(hours.timezone, defaults.user_timezone) if hours else "",
        target=(found.target or "last").strip().lower(),
        to=(found.to or "").strip(),
        account=normalize_account_id(found.account_id) if found.account_id else "",
        model=found.model or "",
        prompt=(found.prompt or "").strip(),
        session=(found.session or "").strip(),
        ack_max_chars=ACK_MAX_CHARS if found.ack_max_chars is None else found.ack_max_chars,
        includes_reasoning=bool(found.include_reasoning),
        direct_policy=found.direct_policy or "allow",
        suppresses_tool_errors=bool(found.suppress_tool_error_warnings),
        is_isolated=bool(found.isolated_session),
        is_light=bool(found.light_context),
    )


def _merge(own: HeartbeatConfig | None, common: HeartbeatConfig) -> HeartbeatConfig:
    if own is None:
        return common
    return common.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def resolve_visibility(config: Config, channel: str, account: str = "") -> HeartbeatVisibility:
    """Return what an account of a channel gets; without a channel, what `channels.defaults` say."""
    if not config.channels:
        return HeartbeatVisibility()
    from homarus.config.channels import common_settings  # only for configs that name channels

    found = common_settings(config, channel, account).heartbeat
    return HeartbeatVisibility(
        bool(found.show_ok), found.show_alerts is not False, found.use_indicator is not False
    )
