from pathlib import Path

import pytest

from homarus.core.errors import StoreError, UserError
from homarus.store.state_paths import StatePaths, is_session_id, stat_stamp, transcript_file_name


@pytest.mark.parametrize(
    ("session_id", "topic", "expected"),
    [
        ("abc", None, "abc.jsonl"),
        ("A.b_c-1", None, "A.b_c-1.jsonl"),
        ("abc", "a/b c", "abc-topic-a%2Fb%20c.jsonl"),
        ("abc", 42, "abc-topic-42.jsonl"),
        ("abc", "../../x", "abc-topic-..%2F..%2Fx.jsonl"),
        ("abc", "\ud800", "abc-topic-%3F.jsonl"),
    ],
)
def test_transcript_path_is_named_after_session(
    session_id: str, topic: str | int | None, expected: str
) -> None:
    assert transcript_file_name(session_id, topic) == expected


@pytest.mark.parametrize(
    "session_id", ["../x", "", ".hidden", "a/b", "a\\b", "a\0b", "x" * 129, "a\n", "-a", "é"]
)
def test_session_id_unsafe_as_file_name_is_refused(session_id: str) -> None:
    assert not is_session_id(session_id)
    with pytest.raises(UserError, match="Invalid session ID"):
        transcript_file_name(session_id)


def test_agent_id_outside_state_directory_is_refused(tmp_path: Path) -> None:
    for agent in ("../x", "", "A", "a/b", ".."):
        with pytest.raises(StoreError):
            StatePaths(tmp_path).sessions_dir(agent)


def test_session_file_outside_sessions_directory_is_ignored(tmp_path: Path) -> None:
    places = StatePaths(tmp_path)
    home = tmp_path / "agents/main/sessions"
    home.mkdir(parents=True)
    default = str(home / "abc.jsonl")
    topic = str(home / "abc-topic-7.jsonl")
    elsewhere = tmp_path / "elsewhere/agents/main/sessions"
    elsewhere.mkdir(parents=True)
    (tmp_path / "agents/evil").mkdir()
    (tmp_path / "agents/evil/sessions").symlink_to("/etc")
    assert places.transcript("main", "abc", topic) == topic
    for refused in (
        None,
        5,
        "",
        "abc.jsonl",
        "/etc/abc.jsonl",
        str(elsewhere / "abc.jsonl"),
        str(home / "other.jsonl"),
        str(home / "../../../abc.jsonl"),
        str(home / "abc-topic-7.txt"),
        "/home/user/.openclaw/agents/main/sessions/abc.jsonl",
        f"{home}/\0abc.jsonl",
    ):
        assert places.transcript("main", "abc", refused) == default


def test_session_file_by_directory_alias_is_accepted(
    tmp_path: Path,
) -> None:
    real = tmp_path / "real"
    (real / "agents/main/sessions").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    places = StatePaths(tmp_path / "link")
    given = str(real / "agents/main/sessions/abc-topic-1.jsonl")
    expected = str(tmp_path / "link/agents/main/sessions/abc-topic-1.jsonl")
    assert places.transcript("main", "abc", given) == expected


def test_stamp_of_irregular_file_is_none(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("x")
    link = tmp_path / "b"
    link.symlink_to(file)
    assert stat_stamp(file)
    assert stat_stamp(link) is None
    assert stat_stamp(tmp_path) is None
    assert stat_stamp(tmp_path / "c") is None


def test_agents_are_found_by_their_index(tmp_path: Path) -> None:
    for name in ("main", "ops", "Bad Name", "empty"):
        (tmp_path / "agents" / name / "sessions").mkdir(parents=True)
    for name in ("main", "ops", "Bad Name"):
        (tmp_path / "agents" / name / "sessions/sessions.json").write_text("{}")
    assert StatePaths(tmp_path).agents() == ["main", "ops"]
    assert StatePaths(tmp_path / "none").agents() == []
