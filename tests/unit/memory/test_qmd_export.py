import json
import os
from pathlib import Path
from typing import Any

import pytest

from homarus.config.memory import MemorySearchConfig
from homarus.core.errors import StoreError
from homarus.memory.spec import MemorySpec
from homarus.memory.transcript_export import audience_of_export, export_sessions, exports_folder
from homarus.memory.view import PRIVATE, chat_of
from tests.unit.memory.fake_qmd import make_qmd_spec

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-7"
TOPIC = "agent:main:telegram:group:-7:topic:3"


def make_spec(base: Path, sessions: dict[str, Any] | None = None, **sync: int) -> MemorySpec:
    search = MemorySearchConfig.model_validate({"sync": {"sessions": sync}})
    return make_qmd_spec(base, {"sessions": {"enabled": True, **(sessions or {})}}, search)


def say(spec: MemorySpec, name: str, *words: str, at_ms: int = NOW_MS, role: str = "user") -> Path:
    """Add messages to a transcript."""
    file = spec.transcripts / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        for word in words:
            content = [{"type": "text", "text": word}, {"type": "image", "data": "secret"}]
            message = {"role": role, "content": content, "timestamp": at_ms}
            line = {"type": "message", "id": os.urandom(4).hex(), "message": message}
            opened.write(json.dumps(line) + "\n")
    os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
    return file


def claim(spec: MemorySpec, **keys: str) -> None:
    spec.transcripts.mkdir(parents=True, exist_ok=True)
    named = {"main": MAIN, "group": GROUP, "topic": TOPIC}
    index = {named[one]: {"sessionId": name, "updatedAt": NOW_MS} for one, name in keys.items()}
    (spec.transcripts / "sessions.json").write_text(json.dumps(index), encoding="utf-8")


def exported(spec: MemorySpec) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in exports_folder(spec).iterdir()}


def test_export_writes_private_markdown_files(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    claim(spec, main="s-1")
    say(spec, "s-1", "The boat is red.\nReally.")
    say(spec, "s-1", "I see.", role="assistant")
    say(spec, "s-1", "rm -rf", role="toolResult")
    say(spec, "s-2-topic-3", "A topic.")
    done = export_sessions(spec, NOW_MS)
    assert done.written == ("s-1.md", "s-2-topic-3.md")
    files = exported(spec)
    assert "User: The boat is red.\nUser: Really.\nAssistant: I see.\n" in files["s-1.md"]
    assert "rm -rf" not in files["s-1.md"] and "secret" not in files["s-1.md"]
    folder = spec.agent_folder / "qmd/sessions"
    assert exports_folder(spec) == folder
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_export_audience_survives_session_reset(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    claim(spec, main="s-1", group="s-2")
    for name in ("s-1", "s-2", "s-3"):
        say(spec, name, "words")
    export_sessions(spec, NOW_MS)
    claim(spec, main="s-1")  # the group began anew
    export_sessions(spec, NOW_MS)
    seen = [audience_of_export(spec, name) for name in ("s-1.md", "s-2.md", "s-3.md", "other.md")]
    assert seen == [PRIVATE, chat_of(GROUP), "unclaimed", "unclaimed"]


def test_export_rewritten_after_enough_growth_or_idle_time(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, deltaBytes=100_000, deltaMessages=3)
    say(spec, "s-1", "one")
    assert export_sessions(spec, NOW_MS).written == ("s-1.md",)
    file = exports_folder(spec) / "s-1.md"
    before = file.stat()
    assert export_sessions(spec, NOW_MS).unchanged == 1
    say(spec, "s-1", "two", "three")
    assert export_sessions(spec, NOW_MS).written == ()
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    say(spec, "s-1", "four")
    assert export_sessions(spec, NOW_MS).written == ("s-1.md",)
    say(spec, "s-1", "five")
    assert export_sessions(spec, NOW_MS).written == ()
    assert export_sessions(spec, NOW_MS + 2 * 3_600_000).written == ("s-1.md",)
    assert "User: five" in exported(spec)["s-1.md"]


def test_export_rewritten_after_many_bytes_or_deletion(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, deltaBytes=1_000, deltaMessages=50)
    say(spec, "s-1", "one")
    export_sessions(spec, NOW_MS)
    say(spec, "s-1", "x" * 1_000)
    assert export_sessions(spec, NOW_MS).written == ("s-1.md",)
    (exports_folder(spec) / "s-1.md").unlink()
    export_sessions(spec, NOW_MS)
    assert "x" * 1_000 in exported(spec)["s-1.md"]


def test_export_removes_old_and_deleted_sessions_keeps_other_files(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    say(spec, "s-1", "old", at_ms=NOW_MS - 29 * DAY_MS)
    deleted = say(spec, "s-2", "new")
    export_sessions(spec, NOW_MS)
    theirs = exports_folder(spec) / "theirs.md"
    theirs.write_text("mine", encoding="utf-8")
    os.utime(theirs, (0, 0))
    deleted.unlink()
    done = export_sessions(spec, NOW_MS + 2 * DAY_MS)
    assert done.removed == ("s-1.md", "s-2.md")
    assert list(exported(spec)) == ["theirs.md"]


def test_export_retention_zero_keeps_all(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, {"retentionDays": 0})
    say(spec, "s-1", "old", at_ms=NOW_MS - 3_000 * DAY_MS)
    assert export_sessions(spec, NOW_MS).written == ("s-1.md",)


def test_export_folder_changed_moves_our_files(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    say(spec, "s-1", "words")
    export_sessions(spec, NOW_MS)
    moved = make_spec(tmp_path, {"exportDir": "~/exports"})
    export_sessions(moved, NOW_MS)
    assert exports_folder(moved) == tmp_path / "exports"
    assert list(exported(moved)) == ["s-1.md"] and not exported(spec)
    assert audience_of_export(spec, "s-1.md") == "unclaimed"


@pytest.mark.parametrize("record", ["", "[]", '{"files": {"../x.md": {}}}', "\x00"])
def test_export_unreadable_record_is_ignored(tmp_path: Path, record: str) -> None:
    spec = make_spec(tmp_path)
    say(spec, "s-1", "words")
    export_sessions(spec, NOW_MS)
    (spec.agent_folder / "qmd/exported.json").write_text(record, encoding="utf-8")
    assert export_sessions(spec, NOW_MS).written == ("s-1.md",)


def test_export_forged_record_removes_no_other_files(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    precious = spec.agent_folder / "qmd/precious.md"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine", encoding="utf-8")
    one = {"audience": "private", "hash": "", "size": 0, "mtime_ns": 0}
    record = {"folder": str(exports_folder(spec)), "files": {"../precious.md": one, "x.txt": one}}
    (spec.agent_folder / "qmd/exported.json").write_text(json.dumps(record), encoding="utf-8")
    export_sessions(spec, NOW_MS)
    assert precious.exists()


def test_export_link_in_place_of_file_is_replaced(
    tmp_path: Path,
) -> None:
    spec = make_spec(tmp_path)
    say(spec, "s-1", "words")
    target = tmp_path / "target"
    target.write_text("mine", encoding="utf-8")
    exports_folder(spec).mkdir(parents=True)
    (exports_folder(spec) / "s-1.md").symlink_to(target)
    export_sessions(spec, NOW_MS)
    assert target.read_text(encoding="utf-8") == "mine"
    assert not (exports_folder(spec) / "s-1.md").is_symlink()


def test_export_unwritable_file_is_named_and_others_written(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    say(spec, "s-1", "words")
    say(spec, "s-2", "words")
    (exports_folder(spec) / "s-1.md").mkdir(parents=True)
    done = export_sessions(spec, NOW_MS)
    assert done.written == ("s-2.md",)
    assert [one.path for one in done.failed] == ["s-1.md"] and done.failed[0].why
    blocked = make_spec(tmp_path, {"exportDir": str(tmp_path / "agents/main/qmd/exported.json/x")})
    with pytest.raises(StoreError, match="cannot be made"):
        export_sessions(blocked, NOW_MS)


def test_export_empty_session_writes_nothing(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    assert export_sessions(spec, NOW_MS).written == ()
    say(spec, "s-1", "HEARTBEAT_OK", role="assistant")
    (spec.transcripts / "s-2.jsonl").write_bytes(b"\xff\x00 garbage\n{}\n")
    assert export_sessions(spec, NOW_MS).written == ()
    assert exported(spec) == {}
