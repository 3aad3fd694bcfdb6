"""Who sees which notes, by the key of a conversation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core import session_keys
from homarus.memory.view import (
    EVERYTHING,
    PRIVATE,
    SHARED,
    audience_of,
    audience_of_path,
    chat_of,
    day_note,
    folder_of,
    slug_for,
    view_for,
)

ANN, BOB = "agent:main:telegram:direct:1", "agent:main:telegram:direct:2"
GROUP = "agent:main:telegram:group:7"
KEYS = st.builds(
    session_keys.peer_key,
    st.just("main"),
    st.sampled_from(["telegram", "irc", "slack"]),
    st.sampled_from(["direct", "group", "channel"]),
    st.text(min_size=1, max_size=30),
    scope=st.just("per-channel-peer"),
)


@pytest.mark.parametrize(
    "key",
    [
        "agent:main:main", "agent:main:work", "agent:main:boot", "agent:main:heartbeat",
        "agent:main:main:heartbeat", "agent:main:main:thread:5", "agent:ops:main",
        "agent:main:acp:5f2c", " AGENT:MAIN:MAIN ",
    ],
)  # fmt: skip
def test_view_of_main_session_shows_everything(key: str) -> None:
    assert view_for(key) == EVERYTHING and audience_of(key) == PRIVATE


@pytest.mark.parametrize("key", [ANN, "agent:main:direct:ann", "agent:main:x:work:direct:1"])
def test_view_of_person_shows_private_and_own(key: str) -> None:
    view = view_for(key)
    assert view.audiences == frozenset({PRIVATE, SHARED, chat_of(key)})
    assert audience_of(key) == chat_of(key) != chat_of(BOB)
    assert not view.shows(audience_of(BOB)) and not view.shows(audience_of(GROUP))


@pytest.mark.parametrize(
    "key",
    [
        GROUP, "agent:main:slack:channel:c1", "agent:main:telegram:group:7:topic:2",
        "agent:main:hook:5", "hook:gmail", "agent:main:\uff48ook:5", "agent:main:subagent:5f2c",
        "agent:main:subagent:main:main", "subagent:x", "global", "unknown", "", "main",
        "agent:main:\uff47\uff52\uff4f\uff55\uff50:7", "agent:main:telegram:direct:group",
        "agent::main", "agent:main",
    ],
)  # fmt: skip
def test_view_of_others_shows_shared_and_own(key: str) -> None:
    assert view_for(key).audiences == frozenset({SHARED, chat_of(key)})
    assert audience_of(key) == chat_of(key)
    assert not view_for(key).shows(PRIVATE) and view_for(key).shows(SHARED)


def test_view_of_job_is_that_of_owner() -> None:
    assert audience_of("agent:main:cron:j1") == PRIVATE
    assert not view_for("agent:main:cron:j1").shows(audience_of(BOB))
    assert view_for("agent:main:cron:j1").shows(PRIVATE)


def test_view_of_thread_is_that_of_its_chat() -> None:
    assert audience_of(f"{GROUP}:topic:3") == audience_of(GROUP)
    assert audience_of("agent:main:slack:channel:c:thread:1.2") == audience_of(
        "agent:main:slack:channel:c"
    )


@given(KEYS, KEYS)
def test_slug_differs_for_different_chats(one: str, other: str) -> None:
    assert (chat_of(one) == chat_of(other)) == (
        one.partition(":thread:")[0] == other or one == other
    )
    name = slug_for(one)
    assert name.isascii() and len(name) <= 80 and not {*name} & {*"/\\.: "}
    assert audience_of_path(f"{folder_of(chat_of(one))}/x.md") == chat_of(one)


@pytest.mark.parametrize(
    ("path", "audience"),
    [
        ("MEMORY.md", PRIVATE),
        ("memory/2026-01-31.md", PRIVATE),
        ("memory/shared.md", PRIVATE),
        ("memory/shared/a.md", SHARED),
        ("memory/shared/deep/a.md", SHARED),
        ("./memory/shared/a.md", SHARED),
        ("memory/Shared/a.md", PRIVATE),
        ("memory/sharedx/a.md", PRIVATE),
        ("Memory/shared/a.md", PRIVATE),
        ("bank/shared/a.md", PRIVATE),
        ("bank/memory/shared/a.md", PRIVATE),
        ("/other/memory/shared/a.md", PRIVATE),
        ("memory/chats/a.md", PRIVATE),
        ("memory/chats/x-1/a.md", "chat:x-1"),
        ("memory/chats/x-1/shared/a.md", "chat:x-1"),
        ("memory/CHATS/X-1/a.md", "chat:x-1"),
        ("memory/chats./x-1. /a.md", "chat:x-1"),
        ("memory/ch\u200dats/x-1/a.md", "chat:x-1"),
        ("memory/\uff43hats/x-1/a.md", "chat:x-1"),
        ("./memory/chats/x-1/a.md", "chat:x-1"),
        ("/srv/ws/memory/chats/x-1/a.md", "chat:x-1"),
        ("memory/shared/memory/chats/x-1/a.md", "chat:x-1"),
    ],
)
def test_audience_of_path_follows_folder(path: str, audience: str) -> None:
    assert audience_of_path(path) == audience


def test_day_note_path_for_each_audience() -> None:
    assert day_note("2026-01-31") == "memory/2026-01-31.md"
    assert day_note("2026-01-31", SHARED) == "memory/shared/2026-01-31.md"
    assert day_note("2026-01-31", audience_of(GROUP)) == (
        f"memory/chats/{slug_for(GROUP)}/2026-01-31.md"
    )
    assert slug_for(GROUP).startswith("telegram-group-7-")
