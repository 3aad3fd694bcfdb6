"""`session.store`: the list of sessions and the transcripts in a configured place."""

import json
import os
from pathlib import Path

import apsw
import pytest

from homarus.config.check import check_config
from homarus.config.paths import Paths, SessionStorePath
from homarus.config.schema import Config
from homarus.config.session_store import find_session_store, with_session_store
from homarus.core.clock import SystemClock
from homarus.core.message import user_message
from homarus.sessions.session import SessionRepository
from homarus.store.damage import find_bad_rows, find_damage
from homarus.store.sessions_file import count_sessions
from homarus.store.sqlite import open_store
from homarus.store.state_paths import StatePaths

MAIN = "agent:main:main"


def paths_of(home: Path, store: str, *agents: str) -> Paths:
    listed = {"list": [{"id": agent} for agent in agents]} if agents else {}
    config = Config.model_validate({"session": {"store": store}, "agents": listed})
    return with_session_store(Paths.find({"HOME": str(home)}), config)


async def talk(paths: Paths, key: str, text: str) -> None:
    async with open_store(paths.state, sessions=paths.session_store) as store:
        session = await SessionRepository(store, SystemClock()).load(key, key.split(":")[1])
        await session.start_turn(user_message(text), provider="mock", model="mock-1")


def test_session_store_is_resolved_for_each_agent(tmp_path: Path) -> None:
    paths = paths_of(tmp_path, "~/s/{agentId}/list.json", "main", "ops")
    assert paths.sessions_index("ops") == tmp_path / "s/ops/list.json"
    assert paths.sessions_dir("main") == tmp_path / "s/main"
    one = paths_of(tmp_path, "~/all.json", "ops")
    assert one.sessions_index("ops") == tmp_path / "all.json"
    assert one.sessions_dir("gone") == tmp_path / ".openclaw/agents/gone/sessions"
    inside = paths_of(tmp_path, "lists/{agentId}.json")
    assert inside.sessions_index("ops") == tmp_path / ".openclaw/lists/ops.json"
    default = paths_of(tmp_path, "~/.openclaw/agents/{agentId}/sessions/sessions.json")
    assert default.session_store is None


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        ("~/a/../{agentId}.json", "path of a file"),
        ("/s/{agentId}/", "path of a file"),
        ("/s/all.json", "2 agents"),
    ],
)
def test_session_store_that_cannot_be_obeyed_is_refused(store: str, reason: str) -> None:
    agents = {"list": [{"id": "main"}, {"id": "ops"}]}
    [problem] = check_config({"session": {"store": store}, "agents": agents}).problems
    assert problem.path == ("session", "store") and reason in problem.message and problem.fix


@pytest.mark.parametrize("store", ["~/s/{agentId}/list.json", "s/{agentId}/list.json"])
async def test_session_store_holds_list_and_transcripts(tmp_path: Path, store: str) -> None:
    paths = paths_of(tmp_path, store)
    await talk(paths, MAIN, "hello")
    folder = paths.sessions_dir("main")
    assert count_sessions(paths.state, paths.session_store) == 1
    [entry] = json.loads((folder / "list.json").read_text()).values()
    assert entry["sessionFile"] == str(folder / f"{entry['sessionId']}.jsonl")
    assert "hello" in Path(entry["sessionFile"]).read_text()
    assert not (paths.state / "agents/main/sessions").exists()
    db = apsw.Connection(str(paths.database))
    assert find_damage(db) == find_bad_rows(db) == ""
    db.close()
    assert StatePaths(paths.state, paths.session_store).agents() == ["main"]


async def test_session_store_written_by_another_program_is_read(tmp_path: Path) -> None:
    paths = paths_of(tmp_path, "~/s/{agentId}.json")
    await talk(paths, MAIN, "hello")
    file = tmp_path / "s/main.json"
    entries = json.loads(file.read_text())
    entries["agent:main:other"] = {"sessionId": "o-1", "updatedAt": 5, "label": "theirs"}
    file.write_text(json.dumps(entries))
    async with open_store(paths.state, sessions=paths.session_store) as store:
        found = {record.key: record.data for record in await store.sessions()}
    assert found.keys() == {MAIN, "agent:main:other"}
    assert found["agent:main:other"]["label"] == "theirs"


async def test_session_store_set_later_keeps_all_sessions(tmp_path: Path) -> None:
    before = Paths.find({"HOME": str(tmp_path)})
    await talk(before, MAIN, "old")
    file = tmp_path / "s/main.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"agent:main:theirs": {"sessionId": "t-1", "updatedAt": 5}}))
    after = paths_of(tmp_path, "~/s/{agentId}.json")
    for paths in (after, before, after):
        async with open_store(paths.state, sessions=paths.session_store) as store:
            keys = {record.key for record in await store.sessions()}
        assert keys == {MAIN, "agent:main:theirs"}
        assert json.loads(paths.sessions_index("main").read_text()).keys() == keys


def test_session_file_in_configured_folder_is_trusted(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path, SessionStorePath("/srv/{agentId}/list.json"))
    assert paths.transcript("main", "a", "/srv/main/a-topic-1.jsonl") == "/srv/main/a-topic-1.jsonl"
    old = str(tmp_path / "agents/main/sessions/a.jsonl")
    assert paths.transcript("main", "a", old) == old
    for refused in ("/srv/ops/a.jsonl", "/etc/a.jsonl", "/srv/main/../a.jsonl"):
        assert paths.transcript("main", "a", refused) == "/srv/main/a.jsonl"


def test_find_session_store_reads_the_config_of_a_command(tmp_path: Path) -> None:
    paths = Paths.find({"HOME": str(tmp_path)})
    assert find_session_store(paths, {}) is paths
    paths.state.mkdir()
    paths.config.write_text('{"session": {"store": "~/all.json"}}')
    assert find_session_store(paths, {}).sessions_index("main") == tmp_path / "all.json"
    paths.config.write_text("{")
    assert find_session_store(paths, os.environ) is paths
