"""The section `cron` of the config."""

from typing import Annotated, Literal

from pydantic import Field

from homarus.config.section import ConfigSection, NonEmptyStr, NonNegativeInt, parsed_by
from homarus.core.units import parse_duration_ms

Retention = Annotated[str, parsed_by(lambda text: parse_duration_ms(text, "h"))]


class MisfireConfig(ConfigSection):
    """What happens with slots that were missed, unless a job says otherwise.

    `skip` records them, `once` runs the last one, `all` runs every one; those older than
    `maxAgeMinutes` are recorded as skipped.
    """

    policy: Literal["skip", "once", "all"] = "once"
    max_age_minutes: NonNegativeInt = 24 * 60


class CronConfig(ConfigSection):
    """Scheduled jobs: whether they run, where their file is, and where results are posted."""

    enabled: bool = True
    store: NonEmptyStr | None = None
    max_concurrent_runs: Annotated[int, Field(gt=0)] = 1
    webhook: str | None = None
    webhook_token: str | None = Field(None, repr=False)
    session_retention: Retention | Literal[False] = "24h"
    misfire: MisfireConfig = MisfireConfig.model_construct()
