"""The text of a heartbeat."""

import pytest

from homarus.config.heartbeat_settings import DEFAULT_PROMPT, HeartbeatSettings
from homarus.memory.cleaning import clean_user
from homarus.schedule.heartbeat_prompt import make_heartbeat_prompt
from homarus.sessions.notices import Notice

AT_MS = 1_800_000_000_000


def prompt(*sources: str, own: str = "") -> str:
    notices = [Notice("x", AT_MS, source=source) for source in sources]
    settings = HeartbeatSettings("main", prompt=own)
    return make_heartbeat_prompt(settings, notices, "Europe/Berlin", AT_MS)


def test_prompt_without_notices_is_the_configured_one() -> None:
    assert prompt() == (
        f"{DEFAULT_PROMPT}\nCurrent time: Friday, January 15th, 2027 — 09:00 (Europe/Berlin)"
    )
    assert prompt(own="Look around.").startswith("Look around.\nCurrent time: ")
    assert prompt("", own="Look around.").startswith("Look around.\nThe lines above are new")


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (("exec",), "A command that you started"),
        (("cron:1",), "A reminder or a job"),
        (("hook:mail",), "A program has reported"),
        (("exec", "hook:mail"), "A program has reported"),
        (("", "exec", "cron:1"), "A reminder or a job"),
    ],
)
def test_prompt_with_notices_is_about_them(sources: tuple[str, ...], text: str) -> None:
    assert prompt(*sources, own="Look around.").startswith(text)


@pytest.mark.parametrize("sources", [(), ("exec",), ("cron:1",), ("hook:mail",), ("",)])
def test_prompt_is_no_memory_of_a_person(sources: tuple[str, ...]) -> None:
    assert clean_user(prompt(*sources)) == ""
