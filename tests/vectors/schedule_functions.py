"""Adapters of the functions for cron schedules and jobs."""

from homarus.schedule import absolute_time, job_input, schedules
from tests.vectors.cases import Adapter, Json


def compute_next_run_at_ms(schedule: Json, now_ms: int) -> Json:
    return schedules.next_run_at_ms(schedules.parse_schedule(schedule), now_ms)


def resolve_cron_stagger_ms(schedule: Json) -> Json:
    found = schedules.parse_schedule(schedule)
    assert isinstance(found, schedules.CronSchedule)
    return schedules.resolve_stagger_ms(found)


TABLE: dict[str, Adapter] = {
    "compute_next_run_at_ms": compute_next_run_at_ms,
    "is_recurring_top_of_hour": schedules.is_recurring_top_of_hour,
    "resolve_cron_stagger_ms": resolve_cron_stagger_ms,
    "parse_absolute_time_ms": absolute_time.parse_absolute_time_ms,
    "normalize_cron_job_create": job_input.normalize_job_create,
}
