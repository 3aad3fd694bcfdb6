"""A running gateway of OpenClaw keeps ours from starting, and its memory index is left alone."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from homarus.cli.doctor import command as doctor
from homarus.cli.memory import command as memory
from homarus.cli.memory_files import index_files
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.core.errors import StateInUseError
from homarus.gateway.openclaw_process import find_openclaw_gateway
from homarus.memory.database import own_index_path
from homarus.memory.note_search import NoteSearch
from homarus.memory.spec import resolve_memory_spec
from homarus.process import serve
from tests.crash.harness import wait_for

CONFIG = {
    "logging": {"level": "silent"},
    "agents": {"defaults": {"memorySearch": {"provider": "none"}}},
}
# Tables of OpenClaw's index that ours does not have.
FOREIGN = "CREATE TABLE embedding_cache (provider TEXT, hash TEXT); PRAGMA user_version = 7"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / ".openclaw"
    (state / "memory").mkdir(parents=True)
    (state / "workspace").mkdir()
    (state / "openclaw.json").write_text(json.dumps(CONFIG))
    (state / "workspace/MEMORY.md").write_text("- Ann's boat is called Lobster.\n")
    (tmp_path / "tmp").mkdir()
    for name in ("OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


def env_of(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "TMPDIR": str(home / "tmp"), "PATH": os.environ["PATH"]}


def find(home: Path) -> int:
    return find_openclaw_gateway(Paths.find(env_of(home)), env_of(home))


def take_lock(home: Path, pid: int, config: Path | None = None, **more: object) -> Path:
    """Write the lock file that OpenClaw's gateway writes."""
    path = str(config or home / ".openclaw/openclaw.json")
    digest = hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:8]
    folder = home / "tmp" / f"openclaw-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = folder / f"gateway.{digest}.lock"
    file.write_text(json.dumps({"pid": pid, "createdAt": "x", "configPath": path, **more}))
    return file


def start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_lock_of_running_process_is_found(home: Path) -> None:
    assert find(home) == 0
    take_lock(home, os.getpid())
    assert find(home) == os.getpid()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": -5}'])
def test_lock_that_is_unreadable_is_no_gateway(home: Path, content: str) -> None:
    take_lock(home, os.getpid()).write_text(content)
    assert find(home) == 0


def test_lock_of_ended_process_or_other_folder_is_no_gateway(home: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    take_lock(home, ended.pid)
    assert find(home) == 0
    take_lock(home, os.getpid(), home / "other/openclaw.json")
    assert find(home) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the start time is in /proc")
def test_lock_of_reused_process_id_is_no_gateway(home: Path) -> None:
    take_lock(home, os.getpid(), startTime=start_time(os.getpid()) - 1)
    assert find(home) == 0
    take_lock(home, os.getpid(), startTime=start_time(os.getpid()))
    assert find(home) == os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are listed in /proc")
def test_process_with_title_of_openclaws_gateway_is_found(home: Path) -> None:
    # Its command line is the title alone, as Node's process.title leaves it.
    process = subprocess.Popen(
        ["openclaw-gateway"], executable="/bin/sh", env=env_of(home), stdin=subprocess.PIPE
    )
    try:
        wait_for(lambda: find(home) == process.pid, "its title")  # set shortly after the start
        assert find_openclaw_gateway(Paths.find({"HOME": "/nowhere"}), {}) != process.pid
    finally:
        process.kill()
        process.communicate()


async def test_gateway_does_not_start_beside_one_of_openclaw(home: Path) -> None:
    take_lock(home, os.getpid())
    with pytest.raises(StateInUseError, match=r"a gateway of OpenClaw \(process") as refused:
        await serve(env_of(home), port=0)
    assert "openclaw gateway stop" in refused.value.fix
    assert not (home / ".openclaw/state.sqlite").exists()


def test_doctor_counts_conversations_of_openclaw_and_writes_nothing(home: Path) -> None:
    sessions = home / ".openclaw/agents/main/sessions"
    sessions.mkdir(parents=True)
    entries = {f"agent:main:{n}": {"sessionId": f"s{n}", "updatedAt": n} for n in range(3)}
    (sessions / "sessions.json").write_text(json.dumps(entries))
    before = contents(home)
    shown = CliRunner().invoke(doctor, ["--all"]).stdout
    assert "has 3 conversations of OpenClaw" in shown
    assert contents(home) == before


def contents(home: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in home.rglob("*") if file.is_file()}


# The memory index


def openclaw_index(home: Path) -> Path:
    file = home / ".openclaw/memory/main.sqlite"
    db = apsw.Connection(str(file))
    db.execute(FOREIGN)
    db.close()
    return file


def search(*words: str) -> str:
    return CliRunner().invoke(memory, ["search", *words]).stdout


def test_index_of_openclaw_is_never_changed(home: Path) -> None:
    theirs = openclaw_index(home)
    before = theirs.read_bytes()
    assert "Lobster" in search("boat")
    CliRunner().invoke(memory, ["index", "--force"])
    CliRunner().invoke(doctor, [])
    assert theirs.read_bytes() == before
    assert [one.agent for one in index_files(Paths.find({"HOME": str(home)}))] == ["main"]
    names = sorted(file.name for file in theirs.parent.iterdir())
    assert "main.homarus.sqlite" in names and "main.sqlite-wal" not in names


@pytest.mark.parametrize("is_sealed", [True, False])
def test_index_of_earlier_version_is_moved_out_of_openclaws_place(
    home: Path, *, is_sealed: bool
) -> None:
    former = home / ".openclaw/memory/main.sqlite"
    with NoteSearch(home / ".openclaw/workspace", former) as notes:
        notes.sync()
    vectors = former.with_name("main.sqlite-vectors")
    vectors.write_bytes(b"paid for")
    if not is_sealed:
        former.with_name("main.sqlite-seal").unlink()
        vectors.unlink()
    assert "Lobster" in search("boat")
    assert not former.exists() and own_index_path(former).exists()
    assert former.with_name("main.homarus.sqlite-vectors").exists() == is_sealed
    assert not list(former.parent.glob("main.sqlite*"))


def test_configured_index_path_gets_a_file_next_to_it(home: Path) -> None:
    store = {"path": "~/indexes/{agentId}.db"}
    tree = {"agents": {"defaults": {"memorySearch": {"provider": "none", "store": store}}}}
    (home / ".openclaw/openclaw.json").write_text(json.dumps(tree))
    paths = Paths.find({"HOME": str(home)})
    spec = resolve_memory_spec(load_config(paths, {}).config, paths, {}, "main")
    assert spec.database == home / "indexes/main.homarus.db"
