"""The heartbeat sections of `openclaw.json`: of agents, and what a channel shows of heartbeats."""

from typing import Annotated, Literal

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from homarus.config.section import ConfigSection, Duration, NonEmptyStr, NonNegativeInt
from homarus.config.timezone import load_zone, minutes_of_day

_OWN_ZONES = frozenset({"user", "local"})


def _check_time(value: str) -> str:
    if minutes_of_day(value) is None:
        message = f"{value!r} is not a time of day: write for example 08:00 or 24:00"
        raise PydanticCustomError("time_of_day", "{message}", {"message": message})
    return value


def _check_zone(value: str) -> str:
    if value.strip() not in _OWN_ZONES and load_zone(value.strip()) is None:
        message = f"{value!r} is not a time zone: write user, local or for example Europe/Berlin"
        raise PydanticCustomError("timezone", "{message}", {"message": message})
    return value


class ActiveHoursConfig(ConfigSection):
    """The hours in which heartbeats run; the end is excluded, and the range may cross midnight."""

    start: Annotated[str, AfterValidator(_check_time)] | None = None
    end: Annotated[str, AfterValidator(_check_time)] | None = None
    timezone: Annotated[str, AfterValidator(_check_zone)] | None = None


class HeartbeatConfig(ConfigSection):
    """The heartbeat of an agent; absent values come from the defaults of all agents.

    `isolated_session` gives each heartbeat an empty history, `light_context` no workspace file but
    HEARTBEAT.md.
    """

    enabled: bool | None = None
    every: Duration | None = None
    active_hours: ActiveHoursConfig | None = None
    target: NonEmptyStr | None = None
    to: NonEmptyStr | None = None
    account_id: NonEmptyStr | None = None
    model: NonEmptyStr | None = None
    prompt: str | None = None
    session: NonEmptyStr | None = None
    ack_max_chars: NonNegativeInt | None = None
    include_reasoning: bool | None = None
    direct_policy: Literal["allow", "block"] | None = None
    suppress_tool_error_warnings: bool | None = None
    isolated_session: bool | None = None
    light_context: bool | None = None


class HeartbeatVisibilityConfig(ConfigSection):
    """What a channel gets of heartbeats: acknowledgements, alerts; and whether clients show it."""

    show_ok: bool | None = None
    show_alerts: bool | None = None
    use_indicator: bool | None = None
