"""`exec-approvals.json` as clients read and replace it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from homarus.config.approvals_file import FILE, read_approvals
from homarus.config.approvals_snapshot import (
    change_approvals,
    check_approvals,
    edit_allowlist,
    read_approvals_snapshot,
    write_approvals,
)
from homarus.core.errors import ConflictError, UserError

EMPTY = {"version": 1, "defaults": {}, "agents": {}}


def test_snapshot_without_file_is_empty_and_can_be_created(tmp_path: Path) -> None:
    found = read_approvals_snapshot(tmp_path)
    assert (found.exists, found.file) == (False, EMPTY)
    written = write_approvals(tmp_path, {"version": 1, "defaults": {"security": "deny"}})
    assert written.exists and written.file["defaults"] == {"security": "deny"}
    assert written.path.stat().st_mode & 0o777 == 0o600
    assert written.hash == hashlib.sha256(written.path.read_bytes()).hexdigest()


def test_write_needs_hash_of_current_file(tmp_path: Path) -> None:
    first = write_approvals(tmp_path, {"version": 1})
    with pytest.raises(ConflictError, match="name its hash"):
        write_approvals(tmp_path, {"version": 1})
    write_approvals(tmp_path, {"version": 1, "agents": {}}, first.hash)
    with pytest.raises(ConflictError, match="has changed"):
        write_approvals(tmp_path, {"version": 1}, first.hash)


def test_socket_token_is_hidden_and_kept(tmp_path: Path) -> None:
    file = {"version": 1, "socket": {"path": "/s", "token": "secret"}}
    (tmp_path / FILE).write_text(json.dumps(file))
    found = read_approvals_snapshot(tmp_path)
    assert found.file["socket"] == {"path": "/s"}
    written = write_approvals(tmp_path, {"version": 1, "socket": {"path": "/t"}}, found.hash)
    stored = json.loads(written.path.read_text())
    assert stored["socket"] == {"path": "/t", "token": "secret"}


def test_unreadable_file_is_shown_as_deny_and_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    found = read_approvals_snapshot(tmp_path)
    assert found.exists and found.file["defaults"] == {"security": "deny"}
    assert write_approvals(tmp_path, {"version": 1}, found.hash).file == EMPTY


@pytest.mark.parametrize(
    ("file", "at"),
    [
        ({}, "version"),
        ({"version": True}, "version"),
        ({"version": 1, "defaults": []}, "defaults"),
        ({"version": 1, "defaults": {"security": "some"}}, "defaults.security"),
        ({"version": 1, "defaults": {"ask": True}}, "defaults.ask"),
        ({"version": 1, "defaults": {"autoAllowSkills": 1}}, "defaults.autoAllowSkills"),
        ({"version": 1, "agents": {"a": []}}, "agents.a"),
        ({"version": 1, "agents": {"a": {"askFallback": "x"}}}, "agents.a.askFallback"),
        ({"version": 1, "agents": {"a": {"allowlist": {}}}}, "agents.a.allowlist"),
        ({"version": 1, "agents": {"a": {"allowlist": [{"pattern": " "}]}}}, "pattern"),
        ({"version": 1, "agents": {"a": {"allowlist": [{"pattern": "a\nb"}]}}}, "pattern"),
        ({"version": 1, "agents": {"a": {"allowlist": [{"pattern": "a", "id": 1}]}}}, "id"),
        ({"version": 1, "socket": {"path": 5}}, "socket.path"),
    ],
)
def test_check_approvals_invalid_file_names_the_place(file: Any, at: str) -> None:
    with pytest.raises(UserError, match=at.replace(".", r"\.")):
        check_approvals(file)


def test_check_approvals_text_entries_get_ids_and_default_becomes_main() -> None:
    given = {"default": {"allowlist": ["/bin/ls"]}, "main": {"ask": "off", "allowlist": ["/bin/a"]}}
    checked = check_approvals({"version": 1, "agents": given, "later": {"x": 1}})
    assert list(checked["agents"]) == ["main"] and checked["later"] == {"x": 1}
    entries = checked["agents"]["main"]["allowlist"]
    assert [each["pattern"] for each in entries] == ["/bin/ls", "/bin/a"]
    assert all(each["id"] for each in entries)


def test_allowlist_edit_adds_once_and_removes(tmp_path: Path) -> None:
    def add(agent: str) -> int:
        change_approvals(tmp_path, lambda old: edit_allowlist(old.file, agent, add=" /bin/ls "))
        return len(read_approvals_snapshot(tmp_path).file["agents"][agent]["allowlist"])

    assert (add("main"), add("main"), add("*")) == (1, 1, 1)
    found = read_approvals_snapshot(tmp_path)
    assert edit_allowlist(found.file, "main", remove="/bin/cat") is None
    edited = edit_allowlist(found.file, "main", remove="/bin/ls")
    assert edited is not None and edited["agents"]["main"]["allowlist"] == []
    assert len(edited["agents"]["*"]["allowlist"]) == 1


def test_change_of_rules_is_recorded_with_what_changed(tmp_path: Path) -> None:
    change_approvals(tmp_path, lambda old: edit_allowlist(old.file, "main", add="/bin/ls"))
    found = read_approvals_snapshot(tmp_path)
    entry = {"pattern": "python3", "argPattern": "^a\\.py$", "lastUsedAt": 7}
    agents = {"*": {"allowlist": ["npm test", entry]}}
    rules = {"version": 1, "defaults": {"ask": "always"}, "agents": agents}
    write_approvals(tmp_path, rules, found.hash)
    lines = (tmp_path / "audit-pending.jsonl").read_text().splitlines()
    first, second = (json.loads(line)["changed"] for line in lines)
    assert first == ["added main: allowlist /bin/ls"]
    assert second == [
        "added *: allowlist npm test",
        'added *: allowlist {"pattern": "python3", "argPattern": "^a\\\\.py$"}',
        "added defaults: ask always",
        "removed main: allowlist /bin/ls",
    ]


def test_rules_changed_by_hand_are_recorded_when_they_are_read(tmp_path: Path) -> None:
    file, entry = tmp_path / "exec-approvals.json", {"id": "1", "pattern": "/bin/ls"}

    def write(**fields: object) -> list[str]:
        rules = {"agents": {"main": {"allowlist": [entry | fields]}}}
        file.write_text(json.dumps(rules))
        read_approvals(tmp_path)
        read_approvals(tmp_path)
        pending = tmp_path / "audit-pending.jsonl"
        return pending.read_text().splitlines() if pending.exists() else []

    assert write() == []  # what is there at first is no change
    assert write(lastUsedAt=5, lastUsedCommand="ls") == []
    (line,) = write(pattern="/bin/rm")
    assert '"action": "load"' in line and "not known" in line
    assert json.loads(line)["changed"] == [
        "added main: allowlist /bin/rm",
        "removed main: allowlist /bin/ls",
    ]
    file.unlink()
    assert read_approvals(tmp_path) == {}
    assert len((tmp_path / "audit-pending.jsonl").read_text().splitlines()) == 2
