import threading
import time
from pathlib import Path

import pytest

from homarus.core.errors import ConfigError, StoreError
from homarus.memory.qmd.process import MAX_OUTPUT_BYTES, QmdProcess, error_line
from tests.unit.memory.fake_qmd import FakeQmd, fake_qmd, make_qmd_spec

GUARD_S = 60
# A child of the fake that outlives it, and keeps its output open.
CHILD = """
import os, time
child = os.fork()
if not child:
    (here / "child").write_text(str(os.getpid()))
    time.sleep(600)
    os._exit(0)
while not (here / "child").exists() or not (here / "child").read_text():
    time.sleep(0.01)
"""


@pytest.fixture
def fake(tmp_path: Path) -> FakeQmd:
    return fake_qmd(tmp_path)


def ended(pid: int) -> bool:
    """Whether a process is gone, within a while; one that nobody waited for yet counts."""
    for _ in range(GUARD_S * 100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        except OSError:
            return True
        if state.split()[0] in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_process_gets_own_folders_and_no_keys(fake: FakeQmd) -> None:
    QmdProcess(fake.spec).run("update", timeout_ms=0)
    (call,) = fake.calls()
    base = fake.spec.agent_folder / "qmd"
    env = call["env"]
    assert env["XDG_CONFIG_HOME"] == str(base / "xdg-config")
    assert env["XDG_CACHE_HOME"] == str(base / "xdg-cache")
    assert env["NO_COLOR"] == "1"
    assert "OPENAI_API_KEY" not in env and "QMD_CONFIG_DIR" not in env
    assert call["cwd"] == str(base)
    assert call["argv"] == ["update", "--index", "index"]
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in (base, base / "xdg-cache"))


def test_process_over_timeout_is_killed_with_children(fake: FakeQmd) -> None:
    fake.does("search", CHILD + "time.sleep(600)")
    with pytest.raises(StoreError, match=r"qmd search took longer than 3 s"):
        QmdProcess(fake.spec).run("search", timeout_ms=3_000)
    assert ended(int((fake.folder / "child").read_text(encoding="utf-8")))


def test_process_child_holding_output_open_is_not_awaited(fake: FakeQmd) -> None:
    fake.does("search", CHILD + "print('[]', flush=True)\nos._exit(0)")
    assert QmdProcess(fake.spec).run("search", timeout_ms=GUARD_S * 1000) == "[]\n"
    assert ended(int((fake.folder / "child").read_text(encoding="utf-8")))


def test_process_closing_output_and_hanging_is_killed(fake: FakeQmd) -> None:
    fake.does("search", "import time\nos.close(1)\nos.close(2)\ntime.sleep(600)")
    with pytest.raises(StoreError, match="took longer"):
        QmdProcess(fake.spec).run("search", timeout_ms=1_000)


def test_process_too_much_output_is_refused(fake: FakeQmd) -> None:
    fake.does("search", f"for _ in range({MAX_OUTPUT_BYTES >> 16} + 20): print('x' * 65_536)")
    with pytest.raises(StoreError, match="printed more than 16 MB"):
        QmdProcess(fake.spec).run("search", timeout_ms=0)


def test_process_stderr_noise_does_not_block_or_show(fake: FakeQmd) -> None:
    fake.does("search", "sys.stderr.write('warning\\n' * 500_000)\nprint('[]')")
    assert QmdProcess(fake.spec).run("search", timeout_ms=0) == "[]\n"


def test_process_failure_reports_reason(fake: FakeQmd) -> None:
    fake.does("embed", "sys.exit('Warning: slow\\nModelError: no weights\\n    at x.js:1')")
    with pytest.raises(StoreError, match="status 1: ModelError: no weights") as caught:
        QmdProcess(fake.spec).run("embed", timeout_ms=0)
    assert "searchMode" in caught.value.fix
    fake.does("update", "os.kill(os.getpid(), 9)")
    with pytest.raises(StoreError, match="status -9: it said nothing"):
        QmdProcess(fake.spec).run("update", timeout_ms=0)


def test_error_line_names_the_error() -> None:
    said = b"x.js:9\n\texec(sql);\nSqliteError: file is not a database\n    at a.js\nNode.js v22\n"
    assert error_line(said) == "SqliteError: file is not a database"
    assert error_line(b"Collection not found: x\n") == "Collection not found: x"
    assert error_line(b"\xff\xfe\x1b[2J") == "��\\u{1b}[2J"


def test_process_missing_program_says_how_to_install(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not installed") as caught:
        QmdProcess(make_qmd_spec(tmp_path, {"command": "no-such-qmd"})).run("update", timeout_ms=0)
    assert "npm install" in caught.value.fix


def test_process_command_is_name_or_absolute_path_without_shell(tmp_path: Path) -> None:
    for command in ("./qmd", "bin/qmd"):
        with pytest.raises(ConfigError, match="absolute path"):
            QmdProcess(make_qmd_spec(tmp_path, {"command": command})).run("update", timeout_ms=0)
    with pytest.raises(StoreError, match="is not installed"):
        QmdProcess(make_qmd_spec(tmp_path, {"command": "touch x; true"})).run(
            "update", timeout_ms=0
        )


def test_process_unrunnable_command_is_reported(fake: FakeQmd) -> None:
    (fake.folder / "qmd").write_bytes(b"\x7fELF broken")
    with pytest.raises(StoreError, match="could not be started"):
        QmdProcess(fake.spec).run("update", timeout_ms=0)
    with pytest.raises(StoreError, match="could not be started"):
        QmdProcess(fake.spec).run("search", "a\0b", timeout_ms=0)


def test_process_stopped_from_other_thread_ends(fake: FakeQmd) -> None:
    fake.does("update", "import time\n(here / 'begun').touch()\ntime.sleep(600)")
    program = QmdProcess(fake.spec)
    failed: list[StoreError] = []

    def work() -> None:
        try:
            program.run("update", timeout_ms=0)
        except StoreError as exc:
            failed.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive() and not (fake.folder / "begun").exists():
        time.sleep(0.01)
    program.stop()
    thread.join(GUARD_S)
    assert not thread.is_alive()
    assert failed[0].message == "qmd update was stopped"
    with pytest.raises(StoreError, match="was stopped"):
        program.run("update", timeout_ms=0)


def test_process_uses_weights_of_users_own_qmd(fake: FakeQmd) -> None:
    theirs = fake.spec.home / ".cache" / "qmd" / "models"
    theirs.mkdir(parents=True)
    for _ in range(2):
        QmdProcess(fake.spec).run("update", timeout_ms=0)
    models = fake.spec.agent_folder / "qmd" / "xdg-cache" / "qmd" / "models"
    assert models.readlink() == theirs
